package agent

import (
	"context"
	"testing"
	"time"

	"feishu-relay/internal/wait"
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

// While Send is putting a message down, Run does not.
func TestRunKeepsOffWhatIsBeingSent(t *testing.T) {
	story(t, func(r *rig) {
		put := r.opts.Store.(*store).put
		r.opts.Store.(*store).put = func(ctx context.Context, e mailbox.Envelope) (string, error) {
			time.Sleep(3 * s)
			return put(ctx, e)
		}
		done := make(chan error)
		go func() { done <- r.Send(r.t.Context(), message("m")) }()
		r.after(s)
		r.outgoing.mu.Lock()
		wait.Wake(r.wake)
		r.outgoing.mu.Unlock()
		r.after(s)
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		r.after(s)
		r.wantCalls("3s put m 0 k1")
		r.wantLeft(1, 0)
	})
}
