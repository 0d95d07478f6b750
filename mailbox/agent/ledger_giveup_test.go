package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

func TestFailPending(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	waits, runs := task("waits", mailbox.Pending), task("runs", mailbox.Working)
	waits.Direction, runs.Direction = Given, Given
	add(t, l, waits, runs, task("waits", mailbox.Pending)) // the last one was taken, not given
	giveUp := func(id string) TaskRecord {
		t.Helper()
		r, err := l.FailPending("manager", id, "nobody there", start.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := giveUp("waits"); r.State != mailbox.Failed || !r.Overdue || r.Reason != "nobody there" {
		t.Errorf("got %+v", r)
	}
	if r := giveUp("runs"); r.State != mailbox.Working {
		t.Errorf("a task that goes on: %+v", r)
	}
	if r, _ := l.Get(Received, "manager", "waits"); r.State != mailbox.Pending {
		t.Errorf("the task taken: %+v", r)
	}
	wantSame(t, openTasks(t, dir), l)
	if r, changed := move(t, l, waits, mailbox.Completed); !changed || r.State != mailbox.Completed {
		t.Errorf("its result came after all: changed %t, %+v", changed, r)
	}
	if r := giveUp("waits"); r.State != mailbox.Completed {
		t.Errorf("a task that has ended: %+v", r)
	}
	_, err := l.FailPending("manager", "ghost", "", start)
	wantError(t, err, mailbox.TaskNotFound, "task.id", `"ghost"`)
}

func TestForget(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	unsent, runs := task("unsent", mailbox.Pending), task("runs", mailbox.Working)
	unsent.Direction, runs.Direction = Given, Given
	add(t, l, unsent, runs, task("unsent", mailbox.Pending)) // the last one was taken, not given
	for _, id := range []string{"unsent", "runs", "ghost"} {
		if err := l.Forget("manager", id); err != nil {
			t.Error(err)
		}
	}
	if _, ok := l.Get(Given, "manager", "unsent"); ok {
		t.Error("the task that was not sent is still known")
	}
	if _, ok := l.Get(Given, "manager", "runs"); !ok {
		t.Error("a task that goes on is forgotten")
	}
	if _, ok := l.Get(Received, "manager", "unsent"); !ok {
		t.Error("the task taken is forgotten")
	}
	wantSame(t, openTasks(t, dir), l)
	add(t, l, unsent) // its id is free again
}

// A task whose file stays is still known, as it is after a restart, and expires.
func TestForgetFails(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	unsent := task("unsent", mailbox.Pending)
	unsent.Direction = Given
	add(t, l, unsent)
	file := filepath.Join(dir, taskFiles(t, dir)[0])
	data, err := os.ReadFile(file)
	must(t, err)
	must(t, os.Remove(file))
	must(t, os.MkdirAll(filepath.Join(file, "in the way"), 0o700)) // what is not empty cannot be removed
	if err := l.Forget("manager", "unsent"); err == nil {
		t.Error("no error")
	}
	if r, ok := l.Get(Given, "manager", "unsent"); !ok || r.State != mailbox.Pending {
		t.Errorf("the task is %+v, %t", r, ok)
	}
	must(t, os.RemoveAll(file))
	must(t, os.WriteFile(file, data, 0o600))
	if expired, err := l.Expire(start.Add(2 * maxSilence)); err != nil || len(expired) != 1 {
		t.Errorf("expired %v, %v", expired, err)
	}
}
