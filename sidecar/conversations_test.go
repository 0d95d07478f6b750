package sidecar

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// The depth that is kept while lines are appended is the one that is counted by who reads
// the files, whoever writes, repeats, edits, cuts and rotates them; and it is known for
// many of the messages.
func TestKeptDepthAgreesWithTheFiles(t *testing.T) {
	t.Parallel()
	known, asked := 0, 0
	for seed := range uint64(2) {
		k, a := compareDepths(t, seed)
		known, asked = known+k, asked+a
	}
	if known < asked/3 {
		t.Errorf("%d of %d depths were known", known, asked)
	}
}

func compareDepths(t *testing.T, seed uint64) (known, asked int) {
	r := rand.New(rand.NewPCG(seed, 5))
	never, err := lru.New[string, steer.Mark](1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	open := func(opts transcript.Options) *transcript.Store {
		s, err := transcript.Open(dir, &opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	rotate := 3000 + r.Int64N(60_000)
	kept := open(transcript.Options{RotateSize: rotate, Keep: 100, Index: newConversations})
	other := open(transcript.Options{RotateSize: rotate, Keep: 100})
	files := open(transcript.Options{ReadOnly: true})
	path := filepath.Join(dir, "feishu_oc_x.jsonl")
	ts, user, person, late := int64(1_000_000), int64(0), 1+r.IntN(150), r.IntN(4)
	var said []transcript.Entry
	count := policy.Count{Turns: r.IntN(2) == 0, IdleReset: time.Duration(r.IntN(2)*20) * time.Second}
	for i := range 700 {
		ts += r.Int64N(12) * r.Int64N(2000)
		e := transcript.Entry{Role: relay.RoleAssistant, Content: "字\n", Sender: string(rune('A' + r.IntN(3))),
			MessageID: fmt.Sprint("om_", i), TS: ts, UserTS: user}
		writer := kept
		switch k := r.IntN(100); {
		case r.IntN(person) == 0:
			e.Role, e.Sender, e.UserTS, user = relay.RoleUser, "u", 0, e.TS
		case k < late:
			e.TS -= r.Int64N(30_000)
		case k < 20:
			writer = other
		case k < 30:
			e.ThreadID = "omt_1"
		case k < 40 && i > 0:
			e.ParentID = said[max(0, i-1-r.IntN(9))].MessageID
		case k < 42 && i > 0:
			e.EditOf, e.Sender = said[i-1].MessageID, said[i-1].Sender
		case k == 42 && late > 0: // by a program that knows nothing of ids
			e.MessageID = ""
		case k == 43 && late > 0:
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
			if err == nil {
				line := `{"role":"assistant","content":"","sender":"B","message_id":"om_%d","ts":%d}` + "\n" + `{"role":`
				_, err = fmt.Fprintf(f, line, r.IntN(i+1), ts)
				_ = f.Close()
			}
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		case k == 44 && late > 0 && r.IntN(5) == 0:
			if info, err := os.Stat(path); err == nil {
				_ = os.Truncate(path, info.Size()/2)
			}
		}
		said = append(said, e)
		if _, err := writer.Append("feishu", "oc_x", e); err != nil {
			t.Fatal(err)
		}
		w, m := where{channel: "feishu", chat: "oc_x"}, said[max(0, i-r.IntN(1+r.IntN(40)))]
		if m.Role == relay.RoleUser || m.EditOf != "" {
			continue
		}
		limits := policy.Limits{MaxDepth: 1 << 20, Count: count}
		want, err := (&chats{transcript: files, continues: never}).depth(w, policyEntry(m), limits)
		if err != nil {
			t.Fatal(err)
		}
		asked++
		kept.Index("feishu", "oc_x", func(index transcript.Index) {
			entry := policyEntry(m)
			if _, ok := index.(conversations).Depth(&entry, count, nearTail, farTail); ok {
				known++
			}
		})
		if got, err := (&chats{transcript: kept, continues: never}).depth(w, policyEntry(m), limits); err != nil || got != want {
			t.Fatalf("seed %d, line %d: depth %d, %v, the files have %d of %+v", seed, i, got, err, want, m)
		}
	}
	return known, asked
}
