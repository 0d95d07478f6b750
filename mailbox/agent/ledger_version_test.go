package agent

import (
	"os"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

// Tasks that the version wrote that had no version field in its files are read, and
// written with one at their next step.
func TestLedgerFilesOfEarlierVersions(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/ledger")); err != nil {
		t.Fatal(err)
	}
	l, log := logged(t, dir)
	if log != "" || len(l.List()) != 3 {
		t.Errorf("%d tasks, logged %s", len(l.List()), log)
	}
	at := time.Date(2099, 11, 21, 10, 0, 0, 123456789, time.UTC)
	taken, _ := l.Get(Received, "manager", "taken")
	if taken.State != mailbox.Working || !taken.Deadline.Equal(at.Add(time.Hour)) || taken.Text != "find <b>" || taken.Hops != 2 ||
		len(taken.Trace) != 2 || taken.Callback.SessionID != "s" || taken.Type != mailbox.TypeTaskAssign || taken.MessageID != "msg_1" {
		t.Errorf("taken: %+v", taken)
	}
	given, _ := l.Get(Given, "coder", "given")
	if !given.Overdue || given.Reason != "no news for 24h0m0s; it was working" || !given.UpdatedAt.Equal(at.Add(time.Minute)) {
		t.Errorf("given: %+v", given)
	}
	pending, _ := l.Get(Given, "coder", "a/b 任务")
	if pending.State != mailbox.Pending {
		t.Errorf("pending: %+v", pending)
	}
	move(t, l, pending, mailbox.Accepted)
	name := "sent_coder%2Fa%2Fb%20%E4%BB%BB%E5%8A%A1.json"
	if text := readTask(t, dir, name); !strings.HasPrefix(text, `{"version":1,"id":"a/b 任务",`) || len(taskFiles(t, dir)) != 3 {
		t.Errorf("written as %s, in %v", text, taskFiles(t, dir))
	}
}
