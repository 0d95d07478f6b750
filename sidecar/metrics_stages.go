package sidecar

import (
	"context"
	"sync"
	"time"

	"feishu-relay/relay"
)

// measured is a way whose stages show in /metrics how long they take: from
// passage.staged on, so that the clock is read once for each.
func (m *metrics) measured(w way) way {
	w.arrive, w.decide = m.timed(w.arrive), m.timed(w.decide)
	return w
}

func (m *metrics) timed(stages relay.Pipeline[*passage]) relay.Pipeline[*passage] {
	out := make(relay.Pipeline[*passage], len(stages))
	for i, stage := range stages {
		duration := m.stages.WithLabelValues(stage.Name)
		m.retried.WithLabelValues(stage.Name)
		out[i] = relay.Stage[*passage]{Name: stage.Name, Apply: func(ctx context.Context, p *passage) (relay.Reason, error) {
			why, err := stage.Apply(ctx, p)
			now := time.Now()
			duration.Observe(now.Sub(p.staged).Seconds())
			p.staged = now
			return why, err
		}}
	}
	return out
}

// undelivered are the messages that may go to the bot and that it does not have
// yet, at most one of each chat. The zero value is usable.
type undelivered struct {
	mu       sync.Mutex
	messages map[*passage]struct{} // guarded by mu
}

func (u *undelivered) begin(p *passage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.messages == nil {
		u.messages = map[*passage]struct{}{}
	}
	u.messages[p] = struct{}{}
}

func (u *undelivered) end(p *passage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.messages, p)
}

// waiting tells how many there are and since when the oldest is here.
func (u *undelivered) waiting(now time.Time) (count int, oldest time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for p := range u.messages {
		oldest = max(oldest, now.Sub(p.arrived))
	}
	return len(u.messages), oldest
}
