package selftest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A test that hangs where nothing can end it costs its time and not the others; all of them end within 15 seconds.
func TestRunLeavesAHangingTestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		defer close(over)
		before := sides
		defer func() { sides = before }()
		fine := func(r *results, _ context.Context) {
			r.test("Judge", "judge")
			r.ok("judge off")
		}
		hangs := func(r *results, _ context.Context) {
			r.test("Files", "slow disk")
			<-over
			r.ok("folder", "too late")
		}
		for i := range sides {
			sides[i].run = hangs
		}
		sides[1].run = fine
		began := time.Now()
		var found []Finding
		Run(t.Context(), Options{Only: []string{"Files", "Judge", "Relay"}}, func(f ...Finding) { found = append(found, f...) })
		late := Finding{"Files", "slow disk", Fail, "no result within 12s", "look what its disk or its network is waiting for"}
		want := []Finding{late, {"Judge", "judge", OK, "off (BOT_REPLY_LLM_CHECK is false)", ""}, late}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if took := time.Since(began); took >= 15*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1536: "1.5 KiB", 2048: "2 KiB", 300 << 20: "300 MiB", 1 << 50: "1024 TiB"} {
		if got := Size(bytes); got != want {
			t.Errorf("%d: got %s, want %s", bytes, got, want)
		}
	}
}
