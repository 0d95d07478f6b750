package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

func plain(id string) mailbox.Envelope {
	e := message(id)
	e.Metadata.RequiresAck = false
	return e
}

// Messages outlive a store that is away, whether they ask for an acknowledgement or not.
func TestStoreAway(t *testing.T) {
	for _, ack := range []bool{true, false} {
		story(t, func(r *rig) {
			r.set(func() { r.err = errAway })
			e := message("m")
			e.Metadata.RequiresAck = ack
			r.send(e)
			r.wantLeft(1, 0)
			r.after(4 * s)
			r.reopen() // nor is it lost with the process
			r.wantLeft(1, 0)
			r.after(2 * s)
			r.set(func() { r.err = nil })
			r.after(20 * s)
			r.wantCalls("0s put m 0 failed", "1s put m 0 failed", "3s put m 0 failed",
				"4s put m 0 failed", "5s put m 0 failed", "7s put m 0 k1")
			if ack {
				r.wantLeft(1, 0)
				r.Acked("m", "coder")
			}
			r.wantLeft(0, 0)
		})
	}
	t.Run("for the whole life", func(t *testing.T) {
		story(t, func(r *rig) {
			r.set(func() { r.err = errAway })
			e := plain("m")
			e.Metadata.TTL = new(100)
			r.send(e)
			r.after(100 * s)
			r.wantDied("m", mailbox.AgentOffline, 0, "the store could not take it within its life of 1m40s")
			r.wantLeft(0, 1)
		})
	})
	t.Run("what waits goes with the next that gets through", func(t *testing.T) {
		story(t, func(r *rig) {
			r.set(func() { r.err = errAway })
			for _, id := range []string{"a", "b", "c"} {
				r.send(plain(id))
				r.after(time.Millisecond)
			}
			r.after(time.Hour)
			for _, call := range r.calls { // one fails for all: a store that is away is not asked for each
				if !strings.HasSuffix(call, " a 0 failed") && !strings.HasPrefix(call, "0") {
					r.t.Errorf("asked for more than the oldest: %s", call)
				}
			}
			r.set(func() { r.err, r.calls = nil, nil })
			r.send(plain("d")) // behind those that came before it
			r.after(3 * s)
			var order []string
			for _, call := range r.calls {
				order = append(order, strings.Fields(call)[2])
			}
			if got := fmt.Sprint(order); got != "[a b c d]" {
				r.t.Errorf("sent in the order %s", got)
			}
			r.wantLeft(0, 0)
		})
	})
	t.Run("an inbox that is full", func(t *testing.T) {
		story(t, func(r *rig) {
			r.set(func() { r.err = mailbox.ErrFull })
			r.send(plain("a"))
			for i := range maxUnstored - 1 {
				r.send(plain(fmt.Sprint(i)))
			}
			for _, e := range []mailbox.Envelope{plain("b"), message("c")} { // they do not heap up here
				err := r.Send(e)
				if !errors.Is(err, mailbox.ErrFull) {
					r.t.Errorf("got %v", err)
				}
			}
			e := plain("d")
			e.To = "tester"
			r.send(e)
			r.set(func() { r.err, r.calls = nil, nil })
			r.after(time.Minute)
			if len(r.calls) != maxUnstored+1 || r.Counts().Unacknowledged != 0 {
				r.t.Errorf("%d calls, %d wait", len(r.calls), r.Counts().Unacknowledged)
			}
		})
	})
	t.Run("others do not wait for a receiver whose mail waits", func(t *testing.T) {
		story(t, func(r *rig) {
			r.set(func() { r.err = errAway })
			r.send(plain("a"))
			r.set(func() { r.err, r.calls = nil, nil })
			e := plain("b")
			e.To = "tester"
			r.send(e)
			r.wantCalls("0s put b 0 k1")
		})
	})
	t.Run("at a retry, which does not count", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(message("m"))
			r.after(30 * s)
			r.set(func() { r.err = errAway })
			r.after(3 * s)
			r.set(func() { r.err = nil })
			r.after(2 * s)
			r.wantCalls("0s put m 0 k1", "31s again m 1 failed", "32s again m 1 failed", "34s again m 1 k1")
		})
	})
	t.Run("when it is asked where", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(message("m"))
			r.set(func() { r.wheres = errAway })
			r.after(10 * time.Minute)
			r.wantLeft(1, 0)
			r.wantCalls("0s put m 0 k1")
			r.set(func() { r.wheres = nil })
			r.after(65 * s)
			if len(r.calls) < 2 {
				r.t.Error("it does not go on")
			}
		})
	})
}

func TestRefused(t *testing.T) {
	t.Run("later", func(t *testing.T) {
		story(t, func(r *rig) {
			r.set(func() { r.err = errAway })
			r.send(message("m"))
			r.set(func() { r.err = mailbox.Invalid("to", "no") })
			r.after(s)
			r.wantDied("m", mailbox.InvalidMessage, 0, "the store refused it: no")
		})
	})
	t.Run("too many wait", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(message("large"))
			r.change("large", func(n *letter) { n.Size = maxBytes })
			r.set(func() { r.calls = nil })
			wantError(r.t, r.Send(message("m")), mailbox.AgentBusy, "")
			r.wantCalls()
		})
	})
}

// Without a disk nothing is sent, and the caller is told.
func TestDiskFails(t *testing.T) {
	story(t, func(r *rig) {
		_ = r.Close()
		for _, e := range []mailbox.Envelope{message("m"), plain("n")} {
			if err := r.Send(e); !errors.Is(err, os.ErrClosed) {
				r.t.Errorf("got %v, want what the disk says", err)
			}
		}
		r.wantCalls()
	})
}
