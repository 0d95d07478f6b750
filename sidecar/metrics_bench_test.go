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
	r := &receiver{base: &base{metrics: m}}
	s := &Sidecar{record: &recorder{}, receive: r, decide: &decider{}, deliver: &deliverer{}}
	w := s.botsPath()
	for _, stages := range []relay.Pipeline[*arrival]{w.arrive, w.decide} {
		for i := range stages {
			stages[i].Apply = func(context.Context, *arrival) (relay.Reason, error) { return relay.Pass, nil }
		}
	}
	now := time.Now()
	p := &arrival{arrived: now, sent: now, final: now}
	count := func(w path) {
		m.read(outboundQueue, now)
		m.arrived(outboundQueue, p)
		_, _, _ = r.apply(b.Context(), w.arrive, p)
		_, _, _ = r.apply(b.Context(), w.decide, p)
		m.recorded(relay.RoleAssistant, true)
		m.decided(policy.Decision{Tier: policy.TierThreshold, Allow: true, Depth: 1})
		m.delivered(doorStream, now)
	}
	for name, w := range map[string]path{"stages measured": m.measured(w), "stages bare": w} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				count(w)
			}
		})
	}
}
