package sidecar

import (
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"feishu-relay/loop"
	"feishu-relay/mailbox/redisbox"
	"feishu-relay/relay/redisrelay"
)

// states are the metrics of what is a state and not an event: the status at the time of a scrape.
type states struct{ *Sidecar }

// Describe lists none: which there are depends on the settings.
func (states) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (s states) Collect(out chan<- prometheus.Metric) {
	show := func(kind prometheus.ValueType, name, help string, value float64, labels []string) {
		constant := prometheus.Labels{}
		for pair := range slices.Chunk(labels, 2) {
			constant[pair[0]] = pair[1]
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("feishu_relay_"+name, help, nil, constant), kind, value)
	}
	gauge := func(name, help string, value float64, labels ...string) {
		show(prometheus.GaugeValue, name, help, value, labels)
	}
	counter := func(name, help string, value float64, labels ...string) {
		show(prometheus.CounterValue, name, help, value, labels)
	}
	st := s.Status()
	gauge("build_info", "Always 1; version and goversion tell what runs.", 1,
		"version", s.version, "goversion", runtime.Version())
	gauge("ready", "1 while the backend is connected and being read and the folders can be written, as /readyz says.",
		zeroOne(st.Ready))
	for name, q := range st.Queues { // a lag has the unit that the backend has
		gauge("backend_connected", "1 while the queue's backend answers.", zeroOne(q.Connected), "queue", name)
		if _, ok := s.lanes[name].(*redisrelay.Queue); ok {
			gauge("queue_lag_entries", "Entries of the queue's stream that are still to be read.", float64(q.Lag), "queue", name)
		} else {
			gauge("queue_lag_bytes", "Bytes of the queue's files that are still to be read.", float64(q.Lag), "queue", name)
		}
		gauge("queue_unsettled_messages", "Messages read and not settled.", float64(q.Unsettled), "queue", name)
		for event, n := range q.Counted {
			counter("queue_events_total", "What the backend came upon; trimmed and foreign_dropped are losses.", n,
				"queue", name, "event", event)
		}
		own := q.Outbox
		gauge("outbox_pending_messages", "Own lines that the backend does not have yet.", float64(own.Pending), "queue", name)
		gauge("outbox_pending_bytes", "Size of the own lines that the backend does not have yet.", float64(own.Bytes),
			"queue", name)
		gauge("outbox_stalled_seconds",
			"How long the backend has been offered the oldest pending lines and has not taken them; 0: it takes them.",
			own.Stalled.Seconds(), "queue", name)
		last := 0.0
		if !own.Last.IsZero() {
			last = float64(own.Last.UnixMilli()) / 1000
		}
		gauge("last_published_timestamp_seconds", "When the backend last took own lines; 0: not since the start.", last,
			"queue", name)
		counter("published_total", "Own lines that the backend has taken.", float64(own.Published), "queue", name)
		counter("republished_total", "Own lines published again after the backend had lost them.", float64(own.Republished),
			"queue", name)
		counter("publish_errors_total", "Tries to publish that failed.", float64(own.Failed), "queue", name)
	}
	gauge("chat_queue_messages", "Messages that are being decided on, or that wait behind such a one in their chat.",
		float64(s.queued()))
	undelivered, inProgress := s.deliveryCounts()
	gauge("undelivered_messages", "Messages that are to be written to the bot, a first time or again.",
		float64(undelivered.Items))
	gauge("undelivered_oldest_seconds",
		"How long the oldest of the undelivered messages has waited for the bot; 0: no message does.",
		float64(age(undelivered))/1000)
	gauge("in_progress_messages", "Messages and mail that the bot was given and has not answered.",
		float64(inProgress.Items))
	gauge("in_progress_oldest_seconds", "How long the bot has had the oldest of them; 0: it has none.",
		float64(age(inProgress))/1000)
	counter("transcript_skipped_lines_total", "Lines of transcripts that are no entries.",
		float64(s.chats.transcript.Skipped()))
	refused, tooMany := s.api.failures.Totals()
	for answer, n := range map[string]int64{"refused": refused, "too_many": tooMany} {
		counter("wrong_tokens_total",
			"Wrong tokens and sessions at the local API and of tunnels; too_many were answered 429.", float64(n),
			"answer", answer)
	}
	for door, connected := range s.channels.connected() {
		gauge("door_connected", "1 while the bot is connected, by channel (door); webhook: while the last try reached it.",
			zeroOne(connected), "door", door)
	}
	if s.front != nil {
		gauge("gateway_connections", "Long connections of bots that are open.", float64(s.connections()))
		gauge("gateway_drafts", "Messages of the bot that wait until their text is final.",
			float64(s.front.gateway.Status().Drafts))
	}
	if st.Feishu != nil {
		gauge("connector_connected", "1 while the connector's connection to Feishu is up.", zeroOne(*st.Feishu))
	}
	if st.Mailbox != nil {
		n := st.Mailbox
		gauge("mailbox_waiting_messages", "Messages in the inbox that the bot has not taken.", float64(n.Waiting))
		gauge("mailbox_unacknowledged_messages", "Messages sent and not acknowledged yet.", float64(n.Unacknowledged))
		gauge("mailbox_open_tasks", "Tasks that the bot works on.", float64(n.OpenTasks))
	}
	if store, ok := s.presence.store.(*redisbox.Store); ok {
		counter("mailbox_foreign_dropped_total", "Messages on the peer channels of Redis that could not be taken.",
			float64(store.Dropped()))
	}
}

// queued is how many messages wait for a stage.
func (s *Sidecar) queued() (n int) {
	s.core.View(func(c *loop.Core) {
		for _, of := range c.Chats() {
			n += c.Group(of).Queued()
		}
	})
	return n
}

// connections are the long connections of bots that are open at the gateway.
func (s *Sidecar) connections() int {
	if s.front == nil {
		return 0
	}
	return len(s.front.gateway.Status().LongConnection.Connections)
}

func zeroOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
