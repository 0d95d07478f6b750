package agent

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

// Whatever steps come in whatever order: a task that has ended stays as it
// ended, but for the late result of an overdue one, and the disk knows the same.
func TestRandomSteps(t *testing.T) {
	for seed := range uint64(15) {
		random := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		l := openTasks(t, dir)
		now, minute := start, maxSilence/60
		var all []TaskRecord
		for i := range 6 {
			r := task(fmt.Sprint(i), mailbox.Pending)
			if random.IntN(2) == 0 {
				r.Direction = Given
			}
			if random.IntN(2) == 0 {
				r.Deadline = start.Add(time.Duration(random.IntN(200)) * minute)
			}
			add(t, l, r)
			all = append(all, r)
		}
		for range 60 {
			now = now.Add(time.Duration(random.IntN(8)) * minute)
			if random.IntN(10) == 0 {
				if _, err := l.Expire(now); err != nil {
					t.Fatal(err)
				}
				continue
			}
			r := all[random.IntN(len(all))]
			before, _ := l.Get(r.Direction, r.Peer, r.ID)
			to := states[random.IntN(len(states))]
			got, changed, err := l.Move(r.Direction, r.Peer, r.ID, to, "step", now)
			after, _ := l.Get(r.Direction, r.Peer, r.ID)
			what := fmt.Sprintf("seed %d: %s, overdue %t, %s to %s: changed %t, %v", seed, r.Direction, before.Overdue, before.State, to, changed, err)
			if got.State != after.State {
				t.Fatalf("%s: returned %s, holds %s", what, got.State, after.State)
			}
			if changed != (after.UpdatedAt != before.UpdatedAt || after.State != before.State || after.Reason != before.Reason) && !before.UpdatedAt.Equal(now) {
				t.Fatal(what)
			}
			lateResult := before.Overdue && (to == mailbox.Completed || to == mailbox.Failed)
			goesOn := before.Overdue && r.Direction == Given && (to == mailbox.Accepted || to == mailbox.Working)
			if before.State.Ended() && changed && !lateResult && !goesOn {
				t.Fatal(what)
			}
			if changed && (after.State != to || after.Overdue) {
				t.Fatal(what)
			}
			if r.Direction == Received && !lateResult && !(before.State == to && to.Ended()) {
				if stepErr := checkStep(before.State, to); (stepErr == nil) != changed || (stepErr == nil) != (err == nil) {
					t.Fatalf("%s, but Step says %v", what, stepErr)
				}
			}
			if r.Direction == Given && err != nil {
				t.Fatal(what)
			}
		}
		wantSame(t, openTasks(t, dir), l)
	}
}
