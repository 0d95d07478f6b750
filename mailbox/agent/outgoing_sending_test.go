package agent

import (
	"context"
	"testing"

	"feishu-relay/mailbox"
)

// Answers may come before Put has returned.
func TestFastAnswers(t *testing.T) {
	for _, tt := range []struct {
		name          string
		answer        func(*rig)
		waiting, dead int
	}{
		{"ack", func(r *rig) { r.Acked("m", "coder") }, 0, 0},
		{"nack", func(r *rig) { r.Nacked("m", "coder", mailbox.Unauthorized, "") }, 0, 1},
		{"nack for now", func(r *rig) { r.Nacked("m", "coder", mailbox.AgentBusy, "") }, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			story(t, func(r *rig) {
				hurry := make(chan struct{})
				put := r.opts.Store.(*store).put
				r.opts.Store.(*store).put = func(ctx context.Context, e mailbox.Envelope) (string, error) {
					key, err := put(ctx, e)
					tt.answer(r)
					close(hurry)
					return key, err
				}
				r.send(message("m"))
				<-hurry
				r.wantLeft(tt.waiting, tt.dead)
				r.after(3 * s)
				if want := 1 + tt.waiting; len(r.calls) != want {
					r.t.Errorf("calls %v", r.calls)
				}
				r.reopen()
				r.wantLeft(tt.waiting, tt.dead)
			})
		})
	}
}
