package sidecar

import (
	"context"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// BenchmarkMetrics is what the metrics add to the way of one message: all that
// is counted from its line to its delivery, around ten stages that do nothing.
func BenchmarkMetrics(b *testing.B) {
	m := newMetrics("agent_b", "1.2.3")
	s := &Sidecar{metrics: m}
	w := s.botsWay()
	for _, stages := range []relay.Pipeline[*passage]{w.arrive, w.decide} {
		for i := range stages {
			stages[i].Apply = func(context.Context, *passage) (relay.Reason, error) { return relay.Pass, nil }
		}
	}
	now := time.Now()
	p := &passage{arrived: now, sent: now, final: now}
	count := func(w way) {
		m.read(outboundQueue, now)
		m.arrived(outboundQueue, p)
		_, _, _ = s.apply(b.Context(), w.arrive, p)
		_, _, _ = s.apply(b.Context(), w.decide, p)
		m.recorded(relay.RoleAssistant, true)
		m.decided(policy.Decision{Tier: policy.TierThreshold, Allow: true, Depth: 1})
		m.delivered(doorStream, now)
	}
	for name, w := range map[string]way{"stages measured": m.measured(w), "stages bare": w} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				count(w)
			}
		})
	}
}
