package sidecar

// The words of the gateway's parts and of the connector, whose package comments
// explain them. They are counted from 0 on where the part is in use; a test
// keeps the lists complete.
var (
	entryEvents = []string{"crowded", "forward", "opened", "proxy_denied", "proxy_failed", "proxy_refused",
		"tls_failed", "tls_refused", "tunnel", "tunnel_full"}

	gatewayEvents = []string{"aborted", "answer_cut", "card_unreadable", "chat_asked", "cross_origin", "draft",
		"draft_broken", "draft_expired", "draft_lost",
		"draft_private", "draft_published", "draft_recalled", "draft_unsaved", "foreign_app", "foreign_host", "foreign_user", "heard_error", "lookup_answered", "mention_refused", "mention_written",
		"names_asked", "native", "native_refused", "panic", "peer_answered", "sent", "sent_error", "tap_slow", "unreadable", "untapped_busy", "untapped_encoding",
		"untapped_large", "upstream_error", "withheld"}

	longconnEvents = []string{"ack_error", "ack_late", "after_dropped", "bootstrap_failed", "bootstrapped",
		"bot_closed", "bot_silent", "connected",
		"delivered", "injected", "kept", "late_ack", "panic", "passed", "redelivered", "refused", "silent", "stopped", "tap_slow", "too_many",
		"unknown_ticket", "untapped", "upstream_closed", "upstream_refused"}

	webhookEvents = []string{"ack_error", "after_dropped", "after_late", "bot_away", "challenge", "delivered", "forged",
		"in_progress", "injected",
		"kept", "panic", "passed", "redelivered", "refused", "repeated", "tap_slow", "too_large", "too_many", "too_slow", "untapped"}

	connectorEvents = []string{"bad_frame", "connected", "disconnected", "event", "event_late", "event_refused", "refused"}

	sendEvents = []string{"rate_limited", "reply_gone", "retried", "send_failed", "sent"}
)

// expectGateway shows the events of a part that have not happened yet.
func (m *metrics) expectGateway(parts ...[]string) {
	for _, events := range parts {
		for _, event := range events {
			m.gateway.WithLabelValues(event)
		}
	}
}

// gatewayEvent counts one of the few events that the gateway's parts name.
func (m *metrics) gatewayEvent(event string) { m.gateway.WithLabelValues(event).Inc() }
