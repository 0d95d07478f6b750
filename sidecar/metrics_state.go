package sidecar

import (
	"github.com/prometheus/client_golang/prometheus"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/send"
	"feishu-relay/feishu/webhook"
	"feishu-relay/loop"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
	"feishu-relay/relay/redisrelay"
)

// measure shows in /metrics what is a state and not an event: it is read when
// somebody asks.
func (s *Sidecar) measure() {
	m := s.metrics
	m.gauge("ready", "1 while the backend is connected and being read and the folders can be written, as /readyz says.",
		nil,
		func() float64 { return zeroOne(s.Ready() == nil) })
	for _, name := range laneNames {
		m.measureQueue(name, s.lanes.of(name))
		m.measureLane(name, s.core)
	}
	m.gauge("chat_queue_messages",
		"Messages that are being decided on, or that wait behind such a one in their chat.", nil,
		func() float64 { return float64(s.queued()) })
	undelivered := func() deliver.Count { c, _ := s.deliveryCounts(); return c }
	inProgress := func() deliver.Count { _, c := s.deliveryCounts(); return c }
	m.gauge("undelivered_messages",
		"Messages that are to be written to the bot, a first time or again.", nil,
		func() float64 { return float64(undelivered().Items) })
	m.gauge("undelivered_oldest_seconds",
		"How long the oldest of the undelivered messages has waited for the bot; 0: no message does.", nil,
		func() float64 { return float64(age(undelivered())) / 1000 })
	m.gauge("in_progress_messages", "Messages and mail that the bot was given and has not answered.", nil,
		func() float64 { return float64(inProgress().Items) })
	m.gauge("in_progress_oldest_seconds", "How long the bot has had the oldest of them; 0: it has none.", nil,
		func() float64 { return float64(age(inProgress())) / 1000 })
	m.counter("transcript_skipped_lines_total", "Lines of transcripts that are no entries.", nil,
		func() float64 { return float64(s.chats.transcript.Skipped()) })
	for answer, total := range map[string]func() int64{
		"refused":  func() int64 { n, _ := s.api.failures.Totals(); return n },
		"too_many": func() int64 { _, n := s.api.failures.Totals(); return n },
	} {
		m.counter("wrong_tokens_total",
			"Wrong tokens and sessions at the local API and of tunnels; too_many were answered 429.",
			prometheus.Labels{"answer": answer}, func() float64 { return float64(total()) })
	}
	s.measureDoors()
	if s.mail != nil {
		s.measureMailbox()
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

// measureDoors shows the ways to the bot, and what belongs to them.
func (s *Sidecar) measureDoors() {
	m, d := s.metrics, &s.channels
	connected := func(door string, is func() bool) {
		m.expectDoor(door)
		m.gauge("door_connected", "1 while the bot is connected, by channel (door); webhook: while the last try reached it.",
			prometheus.Labels{"door": door}, func() float64 { return zeroOne(is()) })
	}
	if d.stream != nil {
		connected(doorStream, d.stream.Connected)
	}
	if d.webhook != nil {
		connected(doorWebhook, func() bool { return !d.webhook.away() })
	}
	if s.front != nil {
		status := s.front.gateway.Status
		connected(doorGateway, func() bool { return status().Connected })
		m.gauge("gateway_connections", "Long connections of bots that are open.", nil,
			func() float64 { return float64(s.connections()) })
		m.gauge("gateway_drafts", "Messages of the bot that wait until their text is final.", nil,
			func() float64 { return float64(status().Drafts) })
		m.expectGateway(entryEvents, gateway.Counted, link.Counted)
		if s.cfg.BotWebhookURL != "" {
			m.expectGateway(webhook.Counted)
		}
	}
	if s.speak != nil {
		m.gauge("connector_connected", "1 while the connector's connection to Feishu is up.", nil,
			func() float64 { return zeroOne(s.speak.connector.Connected()) })
		m.expectGateway(link.CountedByConnector, send.Counted)
	}
}

// connections are the long connections of bots that are open at the gateway.
func (s *Sidecar) connections() int {
	if s.front == nil {
		return 0
	}
	return len(s.front.gateway.Status().LongConnection.Connections)
}

func (s *Sidecar) measureMailbox() {
	s.metrics.expectMail()
	for _, g := range []struct {
		name, help string
		value      func(agent.Counts) int
	}{
		{"waiting_messages", "Messages in the inbox that the bot has not taken.",
			func(n agent.Counts) int { return n.Waiting }},
		{"unacknowledged_messages", "Messages sent and not acknowledged yet.",
			func(n agent.Counts) int { return n.Unacknowledged }},
		{"open_tasks", "Tasks that the bot works on.", func(n agent.Counts) int { return n.OpenTasks }},
	} {
		s.metrics.gauge("mailbox_"+g.name, g.help, nil,
			func() float64 { return float64(g.value(s.mail.agent.Counts())) })
	}
}

func zeroOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// measureQueue shows the reading side of a queue. A lag has the unit that the
// backend has: bytes of a file, entries of a stream.
func (m *metrics) measureQueue(name string, q relay.Backend) {
	labels := prometheus.Labels{"queue": name}
	m.gauge("backend_connected", "1 while the queue's backend answers.", labels,
		func() float64 { return zeroOne(q.Status().Connected) })
	lag, unit := "queue_lag_bytes", "Bytes of the queue's files that are still to be read."
	if _, ok := q.(*redisrelay.Queue); ok {
		lag, unit = "queue_lag_entries", "Entries of the queue's stream that are still to be read."
	}
	m.gauge(lag, unit, labels, func() float64 { return float64(q.Status().Lag) })
	m.gauge("queue_unsettled_messages", "Messages read and not settled.", labels,
		func() float64 { return float64(q.Status().Unsettled) })
	for event := range counted(q) {
		m.counter("queue_events_total",
			"What the backend came upon; trimmed and foreign_dropped are losses.",
			prometheus.Labels{"queue": name, "event": event}, func() float64 { return counted(q)[event] })
	}
}

// measureLane shows the writing side of a queue.
func (m *metrics) measureLane(name string, c *core.Core) {
	labels := prometheus.Labels{"queue": name}
	gauge := func(metric, help string, value func(core.LaneStatus) float64) {
		m.gauge(metric, help, labels, func() float64 { return value(c.Lane(name)) })
	}
	counter := func(metric, help string, value func(core.LaneStatus) int64) {
		m.counter(metric, help, labels, func() float64 { return float64(value(c.Lane(name))) })
	}
	gauge("outbox_pending_messages", "Own lines that the backend does not have yet.",
		func(st core.LaneStatus) float64 { return float64(st.Pending) })
	gauge("outbox_pending_bytes", "Size of the own lines that the backend does not have yet.",
		func(st core.LaneStatus) float64 { return float64(st.Bytes) })
	gauge("outbox_stalled_seconds",
		"How long the backend has been offered the oldest pending lines and has not taken them; 0: it takes them.",
		func(st core.LaneStatus) float64 { return st.Stalled.Seconds() })
	gauge("last_published_timestamp_seconds", "When the backend last took own lines; 0: not since the start.",
		func(st core.LaneStatus) float64 {
			if st.Last.IsZero() {
				return 0
			}
			return float64(st.Last.UnixMilli()) / 1000
		})
	counter("published_total", "Own lines that the backend has taken.",
		func(st core.LaneStatus) int64 { return st.Published })
	counter("republished_total", "Own lines published again after the backend had lost them.",
		func(st core.LaneStatus) int64 { return st.Republished })
	counter("publish_errors_total", "Tries to publish that failed.", func(st core.LaneStatus) int64 { return st.Failed })
}
