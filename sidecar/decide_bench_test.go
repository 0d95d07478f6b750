package sidecar

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// POST /v1/decide about one group, beside 3,000 other groups' transcripts and beside
// none: the ratio of the two should be near 1.
func BenchmarkDecideAmongManyTranscripts(b *testing.B) {
	open := func(others int) *Sidecar {
		dir := b.TempDir()
		cfg := Config{Agent: "agent_a", ListenAddr: "127.0.0.1:0", Backend: "file", RelayDir: filepath.Join(dir, "relay"),
			TranscriptDir: filepath.Join(dir, "transcripts"), MaxAge: time.Minute, GroupPolicy: "auto", MembershipCheck: "off",
			Limits: policy.Limits{MaxDepth: 3, Threshold: 1, Timeout: time.Second}}
		s, err := New(cfg, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.close() })
		line := `{"role":"assistant","content":"hello","sender":"agent_b","message_id":"om_1","ts":1795211093522}` + "\n"
		for i := range others + 1 {
			name := fmt.Sprintf("feishu_oc_%d.jsonl", i)
			if err := os.WriteFile(filepath.Join(cfg.TranscriptDir, name), []byte(line), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		old := time.Now().Add(-time.Hour) // nothing changes in the folder
		if err := os.Chtimes(cfg.TranscriptDir, old, old); err != nil {
			b.Fatal(err)
		}
		return s
	}
	few, many := open(0), open(3000)
	decide := func(s *Sidecar) time.Duration {
		start := time.Now()
		if _, err := s.decide.Decide(b.Context(), relay.Question{SenderAgentName: "agent_b",
			Outbound: relay.Outbound{ChatID: "oc_0", Content: "hello"}}); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var took [2][]time.Duration
	for b.Loop() {
		took[0], took[1] = append(took[0], decide(few)), append(took[1], decide(many))
	}
	for i := range took {
		slices.Sort(took[i])
		took[i] = took[i][len(took[i])/2 : len(took[i])/2+1]
	}
	b.ReportMetric(float64(took[0][0].Microseconds()), "us/few")
	b.ReportMetric(float64(took[1][0].Microseconds()), "us/many")
	b.ReportMetric(float64(took[1][0])/float64(took[0][0]), "many/few")
}
