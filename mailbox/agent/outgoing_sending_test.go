package agent

import (
	"context"
	"fmt"
	"sync"
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
				put := r.store.put
				r.store.put = func(ctx context.Context, e mailbox.Envelope) (string, error) {
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

// A process that was killed between Put and its record sends the message again, under the same id.
func TestKilledBehindPut(t *testing.T) {
	story(t, func(r *rig) {
		put := r.store.put
		r.store.put = func(ctx context.Context, e mailbox.Envelope) (string, error) {
			_, _ = put(ctx, e)
			<-ctx.Done() // here it is killed
			return "", ctx.Err()
		}
		r.send(message("m"))
		r.store.put = put
		r.reopen()
		r.wantCalls("0s put m 0 k1", "0s put m 0 k2")
		if r.Counts().Unacknowledged != 1 || !r.Acked("m", "coder") {
			t.Error("it does not wait for its acknowledgement")
		}
	})
}

// Eight goroutines send, and the receiver answers at once.
func TestConcurrentSend(t *testing.T) {
	const each = 25
	story(t, func(r *rig) {
		put := r.store.put
		var answering, sending sync.WaitGroup
		r.store.put = func(ctx context.Context, e mailbox.Envelope) (string, error) {
			answering.Go(func() {
				if e.Type == mailbox.TypeQuestion {
					r.Nacked(e.ID, "coder", mailbox.Unauthorized, "")
				} else {
					r.Acked(e.ID, "coder")
				}
			})
			return put(ctx, e)
		}
		for i := range 8 {
			sending.Go(func() {
				for j := range each {
					e := message(fmt.Sprintf("m-%d-%d", i, j))
					if j%5 == 0 {
						e.Type = mailbox.TypeQuestion
					}
					if err := r.Send(e); err != nil {
						t.Error(err)
					}
				}
			})
		}
		sending.Wait()
		r.after(s)
		answering.Wait()
		r.wantLeft(0, 8*each/5)
		if n := len(r.calls); n != 8*each {
			t.Errorf("%d messages in the store", n)
		}
	})
}
