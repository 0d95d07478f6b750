package sidecar

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// Texts of recalled messages are taken out of the other chats while one chat's file fails, and out of
// that once it can be written; a restart looks for none of them again, and knows them as recalled
// before it has read the marks.
func TestRedactions(t *testing.T) {
	dir := t.TempDir()
	ids := map[relay.ChatID]relay.MessageID{"oc_bad": "om_bad", "oc_1": "om_1", "oc_2": "om_2"}
	bad := filepath.Join(dir, "transcripts", "feishu_oc_bad.jsonl")
	life := func(live func(c *chats, redacted func() int)) {
		synctest.Test(t, func(t *testing.T) {
			c, closed := openedChats(t, dir)
			defer closed()
			var n atomic.Int32
			c.trace = func(step string) {
				if step == "redacted" {
					n.Add(1)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.redact(ctx)
			}()
			live(c, func() int {
				synctest.Wait()
				return int(n.Load())
			})
			cancel()
			<-done
		})
	}
	life(func(c *chats, redacted func() int) {
		for chat, id := range ids {
			e := transcript.Entry{Role: "user", Sender: "ou_1", Content: "secret", MessageID: string(id), TS: time.Now().UnixMilli()}
			if _, err := c.transcript.Append("feishu", string(chat), e); err != nil {
				t.Fatal(err)
			}
		}
		aside := bad + ".aside"
		if err := errors.Join(os.Rename(bad, aside), os.Symlink("/nowhere", bad)); err != nil {
			t.Fatal(err)
		}
		for _, chat := range []relay.ChatID{"oc_bad", "oc_1", "oc_2"} {
			c.recalls.note(recalled{"feishu", chat, ids[chat]})
		}
		if n := redacted(); n != 2 {
			t.Errorf("%d were redacted while a file fails, want 2", n)
		}
		if err := errors.Join(os.Remove(bad), os.Rename(aside, bad)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if n := redacted(); n != 3 {
			t.Errorf("%d were redacted, want 3", n)
		}
		for chat := range ids {
			data, err := os.ReadFile(filepath.Join(dir, "transcripts", "feishu_"+string(chat)+".jsonl"))
			if err != nil || strings.Contains(string(data), "secret") {
				t.Errorf("%s: %v, %s", chat, err, data)
			}
		}
	})
	life(func(c *chats, redacted func() int) {
		for chat, id := range ids {
			if !c.recalls.has("feishu", chat, id) {
				t.Errorf("%s is not known as recalled after a restart", id)
			}
			c.recalls.note(recalled{"feishu", chat, id})
		}
		if n := redacted(); n != 0 {
			t.Errorf("%d were redacted again after a restart", n)
		}
		c.recalls.note(recalled{"feishu", "oc_1", "om_3"})
		c.recalls.add(recalled{"feishu", "oc_1", "om_1"}) // a text was written meanwhile
		if n := redacted(); n != 2 {
			t.Errorf("%d were redacted, want 2: a new one, and one again", n)
		}
	})
}

// What a mark says is cut, and one that no sidecar would read is refused.
func TestMarksHaveBounds(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3}).steer
	marks := []steer.Mark{{ID: "long", Kind: steer.Notice, Channel: "feishu", ChatID: "oc_own", Text: strings.Repeat("停", 2000)}}
	if err := s.publish(marks...); err != nil {
		t.Fatal(err)
	}
	if got, want := marks[0].Text, strings.Repeat("停", maxMarkText/3); got != want {
		t.Errorf("the text has %d bytes, want %d", len(got), len(want))
	}
	large := steer.Mark{ID: "large", Kind: steer.Notice, Channel: "feishu", ChatID: "oc_own",
		Bots: slices.Repeat([]relay.AgentName{"agent_b"}, steer.MaxMark/10)}
	if err := s.publish(large); !errors.Is(err, steer.ErrMark) {
		t.Errorf("a mark that is too large: got %v, want %v", err, steer.ErrMark)
	}
	if s.known.Contains("large") {
		t.Error("it was taken in all the same")
	}
}
