package endurance

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// secret is the RELAY_SECRET of the groups.
const secret = "a secret of the tests"

// talk lets every bot send a message to the group, and those with a webhook mail to each other and
// a task.
func (n *team) talk(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, from := range n.bots {
		_, err := from.say(ctx, "a word of "+from.name)
		must(t, err)
	}
	for _, from := range n.bots {
		for _, to := range n.bots {
			if from == to || from.sdk != nil || to.sdk != nil {
				continue
			}
			_, err := from.mail(ctx, to, "mail of "+from.name)
			must(t, err)
			id := n.id("t", from.name)
			from.give(ctx, to, id, "do "+id)
			n.book.hasText(ctx, t, to.name, "do "+id)
			to.report(ctx, id, "completed", "end of "+id)
			n.book.hasText(ctx, t, from.name, "end of "+id)
		}
	}
	n.book.complete(ctx, t)
}

// verify waits for the end of everything and looks for what was lost or came twice.
func (n *team) verify(ctx context.Context, t *testing.T) {
	t.Helper()
	n.book.complete(ctx, t)
	for _, s := range n.bots {
		eventually(ctx, t, s.name+" is idle", func() bool { return s.idle(ctx) })
	}
	found, _ := n.book.faults(func(string, int) bool { return false })
	for _, f := range found {
		t.Error(f)
	}
	n.recorded(ctx, t)
}

// recorded checks that the group's transcript has each accepted message once.
func (n *team) recorded(ctx context.Context, t *testing.T) {
	t.Helper()
	want := map[string]int{}
	n.book.mu.Lock()
	for id, m := range n.book.sent {
		if m.to == "" {
			want[id] = 1
		}
	}
	n.book.mu.Unlock()
	var got map[string]int
	complete := func() bool {
		got = n.transcript(t)
		for id := range want {
			if got[id] == 0 {
				return false
			}
		}
		return true
	}
	eventually(ctx, t, "the transcript is complete", complete)
	for id, times := range got {
		if times > 1 {
			t.Errorf("%s is in the transcript %d times", id, times)
		}
	}
}

// transcript is how often each message is in the group's transcript.
func (n *team) transcript(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "transcripts", "feishu_"+n.chat+".jsonl*"))
	must(t, err)
	times := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(data)) {
			var e struct {
				ID   string `json:"message_id"`
				Edit bool   `json:"edited"`
			}
			if json.Unmarshal([]byte(line), &e) == nil && !e.Edit {
				times[e.ID]++
			}
		}
	}
	return maps.Clone(times)
}
