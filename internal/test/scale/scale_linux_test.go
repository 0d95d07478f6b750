package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/internal/test/verify"
)

// A short run with real processes: each message reaches the other bots of its group or is stopped by
// the policy, once, and the line of figures has them all.
func TestAShortRunMeasuresAndLosesNothing(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	out := filepath.Join(t.TempDir(), "scale.jsonl")
	var table strings.Builder
	err := run(t.Context(), []string{"-bots", "3", "-members", "3", "-groups", "4", "-rate", "40", "-warm", "0.2",
		"-seconds", "1", "-think", "50ms", "-calm", "0", "-give-up", "5m", "-out", out}, &table, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var r row
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	if r.Hops == 0 || r.Sent == 0 || r.P50 <= 0 || r.P99 < r.P50 || r.Max < r.P99 {
		t.Errorf("nothing was measured: %+v", r)
	}
	if r.Missing != 0 || r.Repeated != 0 || r.Refused != 0 {
		t.Errorf("%d messages are missing, %d came again, %d were refused", r.Missing, r.Repeated, r.Refused)
	}
	if r.RSS <= 0 || r.RedisRSS <= 0 || r.Connections < 1 {
		t.Errorf("what the processes use is missing: %+v", r)
	}
	if lines := strings.Count(table.String(), "\n"); lines != 3 {
		t.Errorf("the table has %d lines, want 3:\n%s", lines, table.String())
	}
}
