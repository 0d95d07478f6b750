package sidecar

import (
	"context"
	"time"

	"feishu-relay/relay"
)

// measured is a path whose stages show in /metrics how long they take: from
// arrival.staged on, so that the clock is read once for each.
func (m *metrics) measured(along path) path {
	along.arrive, along.decide = m.timed(along.arrive), m.timed(along.decide)
	return along
}

func (m *metrics) timed(stages relay.Pipeline[*arrival]) relay.Pipeline[*arrival] {
	out := make(relay.Pipeline[*arrival], len(stages))
	for i, stage := range stages {
		duration := m.stages.WithLabelValues(stage.Name)
		m.retried.WithLabelValues(stage.Name)
		out[i] = relay.Stage[*arrival]{Name: stage.Name, Apply: func(ctx context.Context, p *arrival) (relay.Reason,
			error) {
			why, err := stage.Apply(ctx, p)
			now := time.Now()
			duration.Observe(now.Sub(p.staged).Seconds())
			p.staged = now
			return why, err
		}}
	}
	return out
}
