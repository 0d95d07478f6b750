package agent_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mailbox/filebox"
)

// patience is how long a test waits for what must come; then it fails.
const patience = time.Minute

// A task and its result through real files.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	open := func() mailbox.Store {
		s, err := filebox.Open(filepath.Join(dir, "boxes"), nil)
		must(t, err)
		return s
	}
	toA, toB := make(chan struct{}, 9), make(chan struct{}, 9)
	a := running(t, "a", open(), toA)
	b := running(t, "b", open(), toB)
	arrive := func(got <-chan struct{}) {
		t.Helper()
		select {
		case <-got:
		case <-time.After(patience):
			t.Fatal("nothing came")
		}
	}
	_, err := a.SendTask(t.Context(), agent.TaskDraft{To: "b", Text: "do <it>", TaskID: "t1", Callback: &mailbox.Callback{Channel: "feishu", ChatID: "oc_1"}})
	must(t, err)
	arrive(toB)
	for _, state := range []mailbox.TaskState{mailbox.Working, mailbox.Completed} {
		text := ""
		if state == mailbox.Completed {
			text = "你好 " + strings.Repeat("x", 60_000)
		}
		_, err := b.UpdateTask(t.Context(), agent.TaskUpdate{State: state, Text: text})
		must(t, err)
	}
	arrive(toA)
	if list := a.Task("t1"); len(list) != 1 || list[0].State != mailbox.Completed {
		t.Errorf("the task is %+v", list)
	}
}

// Nothing that another agent or the bot said stands in the log, and no name or
// id of theirs begins a line of it.
func TestLog(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var log strings.Builder
		a, b := w.agent("a"), w.idle("b")
		b.logTo(&log)
		b.start()
		a.say(b, "SECRET one", wanted, func(e *mailbox.Envelope) { e.ID = "m1" })
		a.task(b, "t1", nil)
		b.waits(2)
		must(t, b.Nack(t.Context(), "m1", mailbox.InvalidMessage, "SECRET two"))
		b.update("t1", mailbox.Failed, "SECRET three")
		w.foreign(b, mailbox.Envelope{From: "x", ID: "level=ERROR msg=forged", Content: textOf("SECRET four"), Hops: 3})
		w.hub.put("b", []byte(`{"id":"m9","from":"x","to":"b","type":"SECRET five\nlevel=ERROR"}`))
		b.door.set(true)
		b.texts()
		b.stop()
		if text := log.String(); strings.Contains(text, "SECRET") || strings.Contains(text, "do t1") || strings.Contains(text, "\nlevel=ERROR") {
			t.Errorf("the log says\n%s", text)
		}
	})
}
