package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/book"
	"feishu-relay/mailbox"
)

func letterIDs(r *rig) (ids []string) {
	r.t.Helper()
	for _, d := range r.DeadLetters() {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestDeadLetters(t *testing.T) {
	story(t, func(r *rig) {
		for _, id := range []string{"a", "b", "c"} {
			r.send(message(id))
		}
		for _, id := range []string{"b", "c", "a"} {
			r.Nacked(id, "coder", mailbox.Unauthorized, "no")
			r.after(s)
		}
		died := r.DeadLetters()
		for range 2 {
			if got := letterIDs(r); !slices.Equal(got, []string{"a", "c", "b"}) {
				r.t.Errorf("got %v, want the newest first", got)
			}
			r.reopen()
		}
		if diff := cmp.Diff(died, r.DeadLetters()); diff != "" {
			r.t.Errorf("before and after a restart (+):\n%s", diff)
		}
	})
}

func TestReplay(t *testing.T) {
	story(t, func(r *rig) {
		e := message("m")
		e.Metadata.TTL = new(200)
		r.send(e)
		r.after(time.Hour)
		r.wantLeft(0, 1)
		r.set(func() { r.calls = nil })
		if err := r.Replay(r.t.Context(), "m"); err != nil {
			r.t.Fatal(err)
		}
		r.wantLeft(1, 0)
		r.after(32 * s)
		r.wantCalls("3600s put m 0 k2", "3631s again m 1 k2")
		r.after(200 * s)
		r.wantDied("m", mailbox.AgentOffline, 4, "no acknowledgement")
		if !r.DeadLetters()[0].Envelope.Timestamp.Equal(r.start.Add(time.Hour)) {
			r.t.Errorf("its life began at %s", r.DeadLetters()[0].Envelope.Timestamp)
		}
		if err := r.Replay(r.t.Context(), "m"); err != nil {
			r.t.Fatal(err)
		}
		if !r.Acked("m", "coder") {
			r.t.Error("unknown")
		}
		r.wantLeft(0, 0)
	})
	t.Run("refused: the dead letter stays", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(message("m"))
			r.Nacked("m", "coder", mailbox.Unauthorized, "")
			r.send(message("large"))
			r.change("large", func(n *letter) { n.Size = maxBytes })
			if err := r.Replay(r.t.Context(), "m"); err == nil {
				r.t.Error("there is no room")
			}
			r.wantLeft(1, 1)
		})
	})
	t.Run("without a store: safe on disk", func(t *testing.T) {
		story(t, func(r *rig) {
			r.send(message("m"))
			r.Nacked("m", "coder", mailbox.Unauthorized, "")
			r.set(func() { r.err = errAway })
			if err := r.Replay(r.t.Context(), "m"); err != nil {
				r.t.Errorf("got %v", err)
			}
			r.wantLeft(1, 0)
		})
	})
}

// A letter whose record cannot be read, or is lost, leaves nothing in the book.
func TestBrokenRecordOfALetter(t *testing.T) {
	for name, value := range map[string]any{"of another type": "broken", "a malformed line": nil} {
		t.Run(name, func(t *testing.T) {
			story(t, func(r *rig) {
				r.send(message("m"))
				for n := range r.all() {
					_ = r.book.Commit(book.Record{Kind: kindLetter, Key: n.name, Value: value})
				}
				r.reopen()
				r.wantLeft(0, 0)
				_ = r.book.Each(func(kind, key string, _ json.RawMessage) error {
					t.Errorf("the book has %s %s", kind, key)
					return nil
				})
			})
		})
	}
}

func TestOldDeadLettersGo(t *testing.T) {
	story(t, func(r *rig) {
		for _, id := range []string{"first", "second", "large"} {
			r.send(message(id))
			r.Nacked(id, "coder", mailbox.Unauthorized, "")
			r.after(s)
		}
		r.change("large", func(n *letter) { n.Size = maxDeadBytes / 2 })
		r.Agent.mu.Lock()
		for i := range maxDead - 3 { // younger ones
			r.insert(&letter{letterState: letterState{Head: mailbox.Envelope{ID: fmt.Sprint(i), To: "tester"}, Phase: dead,
				DeadAt: time.Now()}})
		}
		r.Agent.mu.Unlock()
		r.after(s)
		r.send(message("last"))
		r.Nacked("last", "coder", mailbox.Unauthorized, "")
		if got := letterIDs(r); len(got) != maxDead || got[0] != "last" || got[maxDead-1] != "second" {
			r.t.Errorf("%d are left, from %s to %s", len(got), got[len(got)-1], got[0])
		}
		r.send(message("larger"))
		r.change("larger", func(n *letter) { n.Size = maxDeadBytes/2 + 1 })
		r.Nacked("larger", "coder", mailbox.Unauthorized, "")
		if got := letterIDs(r); len(got) != maxDead-1 || slices.Contains(got, "large") {
			r.t.Errorf("%d are left", len(got))
		}
	})
}
