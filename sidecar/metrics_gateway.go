package sidecar

import "feishu-relay/feishu"

// entryEvents are the words of the gateway's entry, whose package comment explains them. Those of the other parts are
// in their packages; a test keeps the lists complete.
var entryEvents = []feishu.Counted{"opened", "proxy_denied", "proxy_failed", "proxy_refused", "tls_failed",
	"tls_refused", "tunnel"}

// expectGateway shows what of a part has not happened yet at 0.
func (m *metrics) expectGateway(parts ...[]feishu.Counted) {
	for _, events := range parts {
		for _, event := range events {
			m.gateway.WithLabelValues(string(event))
		}
	}
}

// gatewayEvent counts something that a part of the transport names.
func (m *metrics) gatewayEvent(event feishu.Counted) { m.gateway.WithLabelValues(string(event)).Inc() }
