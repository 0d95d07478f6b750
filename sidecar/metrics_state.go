package sidecar

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/send"
	"feishu-relay/feishu/webhook"
	"feishu-relay/internal/delivery"
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
	m.measureQueue(outboundQueue, s.lanes.bots.queue)
	m.measureQueue(inboundQueue, s.lanes.users.queue)
	if s.native != nil {
		m.expectQueue(nativeQueue)
		m.measureQueue(nativeQueue, s.native.queue)
	}
	m.measureOutbox(&s.lanes.bots)
	m.measureOutbox(&s.lanes.users)
	m.gauge("chat_queue_messages",
		"Messages that are being decided on or delivered, or that wait behind such a one in their chat.", nil,
		func() float64 { return float64(len(s.receive.workers.room)) })
	undelivered := func() delivery.Count { c, _ := s.deliver.deliveries.Counts(); return c }
	inProgress := func() delivery.Count { _, c := s.deliver.deliveries.Counts(); return c }
	m.gauge("undelivered_messages",
		"Messages that may go to the bot and that it was not given yet, at most one of each chat.", nil,
		func() float64 { return float64(undelivered().Messages) })
	m.gauge("undelivered_oldest_seconds",
		"How long the oldest of the undelivered messages has waited for the bot; 0: no message does.", nil,
		func() float64 { return undelivered().Oldest.Seconds() })
	m.gauge("in_progress_messages", "Messages and mail that the bot was given and has not answered.", nil,
		func() float64 { return float64(inProgress().Messages) })
	m.gauge("in_progress_oldest_seconds", "How long the bot has had the oldest of them; 0: it has none.", nil,
		func() float64 { return inProgress().Oldest.Seconds() })
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
	s.measureOutcomes()
	s.measureDoors()
	if s.mail != nil {
		s.measureMailbox()
	}
}

// measureOutcomes shows how well this bot's outcomes are shared.
func (s *Sidecar) measureOutcomes() {
	m := s.metrics
	m.gauge("outcomes_pending", "Outcomes of messages that the other sidecars cannot read yet.", nil,
		func() float64 { return float64(s.watch.outcomes.Stats().Pending) })
	m.counter("outcomes_dropped_total", "Outcomes that were never shared, since too many waited.", nil,
		func() float64 { return float64(s.watch.outcomes.Stats().Dropped) })
	m.counter("outcomes_write_errors_total", "Tries to share outcomes that failed.", nil,
		func() float64 { return float64(s.watch.outcomes.Stats().Failed) })
	m.counter("outcomes_skipped_lines_total", "Lines of other sidecars that are no outcomes, or not signed.", nil,
		func() float64 { return float64(s.watch.outcomes.Stats().Skipped) })
}

// measureDoors shows the ways to the bot, and what belongs to them.
func (s *Sidecar) measureDoors() {
	m, d := s.metrics, &s.deliver.doors
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
		status := func() gateway.Status { st, _ := s.front.gateway.Status().(gateway.Status); return st }
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
	st, _ := s.front.gateway.Status().(gateway.Status)
	return len(st.LongConnection.Connections)
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

// offeredAgain is within what time the outbox offers again what was not taken.
// Later it has given it up: what the backend lost is too old by now.
const offeredAgain = 2 * time.Minute

// publishing watches one queue's publishing. Times are Unix nanoseconds; 0: none.
type publishing struct {
	since atomic.Int64 // when the messages that are offered now were first offered
	ended atomic.Int64 // when the last try did; 0 while there is one
	last  atomic.Int64 // when some were last taken
}

func (p *publishing) stalled(now time.Time) time.Duration {
	since := p.since.Load()
	if since == 0 || p.over(now) {
		return 0
	}
	return now.Sub(time.Unix(0, since))
}

func (p *publishing) over(now time.Time) bool {
	ended := p.ended.Load()
	return ended != 0 && now.Sub(time.Unix(0, ended)) > offeredAgain
}

func (p *publishing) begin(now time.Time) {
	if p.over(now) {
		p.since.Store(0)
	}
	p.since.CompareAndSwap(0, now.UnixNano())
	p.ended.Store(0)
}

func (p *publishing) end(now time.Time, taken bool) {
	if taken {
		p.since.Store(0)
		p.last.Store(now.UnixNano())
	}
	p.ended.Store(now.UnixNano())
}

// watched is a queue's publisher whose progress is seen. A step is made of what
// the queue has taken and the outbox does not know yet.
type watched struct {
	relay.Publisher
	progress *publishing
	trace    func(step string)
}

// Publish implements [relay.Publisher].
func (w watched) Publish(ctx context.Context, lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
	if len(lines) == 0 {
		return w.Publisher.Publish(ctx, lines, after)
	}
	w.progress.begin(time.Now())
	receipt, err := w.Publisher.Publish(ctx, lines, after)
	w.progress.end(time.Now(), err == nil)
	if err == nil {
		w.trace("published")
	}
	return receipt, err
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

// measureOutbox shows the writing side of a queue.
func (m *metrics) measureOutbox(l *lane) {
	labels := prometheus.Labels{"queue": l.name}
	m.gauge("outbox_pending_messages", "Own messages that the backend does not have yet.", labels,
		func() float64 { return float64(l.box.Stats().Pending) })
	m.gauge("outbox_pending_bytes", "Size of the own messages that the backend does not have yet.", labels,
		func() float64 { return float64(l.box.Stats().Bytes) })
	m.gauge("outbox_stalled_seconds",
		"How long the backend has been offered the oldest pending messages and has not taken them; 0: it takes them.",
		labels, func() float64 { return l.publishing.stalled(time.Now()).Seconds() })
	m.gauge("last_published_timestamp_seconds", "When the backend last took own messages; 0: not since the start.",
		labels,
		func() float64 { return float64(l.publishing.last.Load()) / 1e9 })
	m.counter("published_total", "Own messages that the backend has taken.", labels,
		func() float64 { return float64(l.box.Stats().Published) })
	m.counter("republished_total", "Own messages published again after the backend had lost them.", labels,
		func() float64 { return float64(l.box.Stats().Republished) })
	m.counter("publish_errors_total", "Tries to publish that failed.", labels,
		func() float64 { return float64(l.box.Stats().Failed) })
}
