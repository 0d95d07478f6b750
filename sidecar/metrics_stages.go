package sidecar

import (
	"context"
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
