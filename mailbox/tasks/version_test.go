package tasks_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/tasks"
)

// Tasks that the version wrote that had no version field in its files are read, and
// written with one at their next step.
func TestFilesOfEarlierVersions(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/unversioned")); err != nil {
		t.Fatal(err)
	}
	l, log := logged(t, dir)
	if log != "" || len(l.List()) != 3 {
		t.Errorf("%d tasks, logged %s", len(l.List()), log)
	}
	at := time.Date(2099, 11, 21, 10, 0, 0, 123456789, time.UTC)
	taken, _ := l.Get(tasks.Received, "manager", "taken")
	if taken.State != mailbox.Working || !taken.Deadline.Equal(at.Add(time.Hour)) || taken.Text != "find <b>" || taken.Hops != 2 ||
		len(taken.Trace) != 2 || taken.Callback.SessionID != "s" || taken.Type != mailbox.TypeTaskAssign || taken.MessageID != "msg_1" {
		t.Errorf("taken: %+v", taken)
	}
	given, _ := l.Get(tasks.Sent, "coder", "given")
	if !given.Overdue || given.Reason != "no news for 24h0m0s; it was working" || !given.UpdatedAt.Equal(at.Add(time.Minute)) {
		t.Errorf("given: %+v", given)
	}
	pending, _ := l.Get(tasks.Sent, "coder", "a/b 任务")
	if pending.State != mailbox.Pending {
		t.Errorf("pending: %+v", pending)
	}
	move(t, l, pending, mailbox.Accepted)
	name := "sent_coder%2Fa%2Fb%20%E4%BB%BB%E5%8A%A1.json"
	if text := readFile(t, dir, name); !strings.HasPrefix(text, `{"version":1,"id":"a/b 任务",`) || len(files(t, dir)) != 3 {
		t.Errorf("written as %s, in %v", text, files(t, dir))
	}
}
