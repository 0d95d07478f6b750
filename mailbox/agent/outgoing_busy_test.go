package agent

import (
	"errors"
	"os"
	"testing"

	"feishu-relay/mailbox"
)

// Letters do not wait for an overdue task whose end cannot be written down. Where too much waits to be sent, it ends
// all the same, though nobody is told.
func TestOverdueTaskHoldsUpNothing(t *testing.T) {
	for _, direction := range []Direction{Received, Given} {
		story(t, func(r *rig) {
			r.set(func() { r.err = errAway })
			r.send(plain("m"))
			r.send(message("large"))
			r.change("large", func(n *letter) { n.Size = 2 * maxBytes })
			late := taskIn("t", mailbox.Working)
			late.Direction, late.Deadline = direction, r.start.Add(10*s)
			r.Agent.mu.Lock()
			_ = r.commit(late.record())
			r.Agent.mu.Unlock()
			r.stop()
			r.after(10 * s)
			r.set(func() { r.err, r.calls = nil, nil })
			if err := r.watchTimes(r.t.Context()); !errors.Is(err, os.ErrClosed) {
				r.t.Errorf("got %v, want what the disk says", err)
			}
			r.wantCalls("10s put m 0 k1", "10s put large 0 k2")
			r.open()
			r.wantLeft(1, 0)
			if got := r.Task("t")[0]; got.State != mailbox.Failed || !got.Overdue {
				r.t.Errorf("the task is %s", got.State)
			}
		})
	}
}
