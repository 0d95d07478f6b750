package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"feishu-relay/mailbox"
)

// start is when the tests' tasks are given.
var start = time.Now().UTC().Round(0)

func taskIn(id string, state mailbox.TaskState) task {
	return task{TaskRecord: TaskRecord{ID: id, Direction: Received, Peer: "manager", State: state, CreatedAt: start,
		UpdatedAt: start}}
}

func TestTextsAreCut(t *testing.T) {
	text := strings.Repeat("€", 5000) + "\xff"
	given := newTask(Received, "manager", mailbox.Envelope{Task: &mailbox.Task{ID: "t"},
		Content: mailbox.Content{Parts: []mailbox.Part{mailbox.TextPart(text)}}})
	given.State = mailbox.Accepted
	working, _, _ := given.moved(mailbox.Working, text, start)
	done, _, _ := given.moved(mailbox.Completed, text, start)
	for _, text := range []string{given.Text, working.Reason, done.Result, given.givenUp(text, start).Reason} {
		if len(text) > 4<<10 || len(text) < 4000 || !utf8.ValidString(text) || !strings.HasSuffix(text, "…") {
			t.Errorf("cut to %d bytes, ends in %q", len(text), text[max(0, len(text)-6):])
		}
	}
}

func TestLedgerBounds(t *testing.T) {
	l := ledger{}
	set := func(t task) { l[t.key()] = t }
	for i := range maxOpen {
		set(taskIn(fmt.Sprint("open", i), mailbox.Working))
	}
	wantError(t, l.full(), mailbox.AgentBusy, "", "10000 tasks")
	set(taskIn("open0", mailbox.Completed))
	if no := l.full(); no != nil {
		t.Error(no)
	}
	for i := range maxEnded + 1 {
		ended := taskIn(fmt.Sprint("ended", i), mailbox.Failed)
		ended.UpdatedAt = start.Add(time.Duration(i+1) * time.Second)
		set(ended)
	}
	old := func(after time.Duration) (ids []string) {
		_, list, _ := l.due(start.Add(after))
		for _, t := range list {
			ids = append(ids, t.ID)
		}
		return ids
	}
	if got := fmt.Sprint(old(time.Hour)); got != "[open0 ended0]" {
		t.Errorf("too many: %s", got)
	}
	if n := len(old(keepEnded + time.Hour)); n != maxEnded+2 {
		t.Errorf("%d ended too long ago", n)
	}
	overdue, _, next := l.due(start.Add(maxSilence))
	if len(overdue) != maxOpen-1 || !next.Equal(start.Add(keepEnded)) {
		t.Errorf("%d are overdue, the next is due at %v", len(overdue), next.Sub(start))
	}
}
