package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"feishu-relay/mailbox"
)

// Ids and peers are part of file names: none is a path, and no two tasks share a file.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	for _, id := range []string{"../../etc/passwd", "a/b", "a\\b", ".", "..", "a\x00b", "任务", "a_b", strings.Repeat("任", 65), strings.Repeat("x", 196)} {
		add(t, l, task(id, mailbox.Pending))
	}
	x, y := task("c", mailbox.Pending), task("b_c", mailbox.Pending)
	x.Peer, y.Peer = "a_b", "a"
	long := task(strings.Repeat("y", 196), mailbox.Pending)
	long.Peer = mailbox.AgentID(strings.Repeat("经", 21))
	add(t, l, x, y, long)
	if n := len(taskFiles(t, dir)); n != 13 {
		t.Errorf("%d files for 13 tasks", n)
	}
	wantSame(t, openTasks(t, dir), l)
}

func TestTextsAreCut(t *testing.T) {
	l := openTasks(t, t.TempDir())
	r := task("t", mailbox.Accepted)
	r.Text = strings.Repeat("字", 5000)
	add(t, l, r)
	got, _, err := l.Move(r.Direction, r.Peer, r.ID, mailbox.Working, strings.Repeat("€", 5000)+"\xff", start)
	if err != nil {
		t.Fatal(err)
	}
	done, _, err := l.Move(r.Direction, r.Peer, r.ID, mailbox.Completed, strings.Repeat("€", 5000), start)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{got.Text, got.Reason, done.Result} {
		if len(text) > 4<<10 || len(text) < 4000 || !utf8.ValidString(text) || !strings.HasSuffix(text, "…") {
			t.Errorf("cut to %d bytes, ends in %q", len(text), text[len(text)-6:])
		}
	}
}

func TestLedgerBounds(t *testing.T) {
	t.Run("open tasks", func(t *testing.T) {
		l := openTasks(t, t.TempDir())
		for i := range maxOpen - 3 { // in memory alone, which is faster
			r := task(fmt.Sprint("other", i), mailbox.Working)
			l.records[r.name()] = r
		}
		for i := range 3 {
			add(t, l, task(fmt.Sprint(i), mailbox.Accepted))
		}
		_, _, err := l.Add(task("more", mailbox.Pending))
		wantError(t, err, mailbox.AgentBusy, "", "10000 tasks")
		if _, added, err := l.Add(task("0", mailbox.Pending)); added || err != nil {
			t.Errorf("a known one: %t, %v", added, err)
		}
		add(t, l, task("refused", mailbox.Rejected)) // open it is not
		move(t, l, task("1", ""), mailbox.Completed)
		add(t, l, task("more", mailbox.Pending))
		if _, err := l.Expire(start.Add(48 * time.Hour)); err != nil {
			t.Fatal(err)
		}
		move(t, l, task("0", ""), mailbox.Completed) // it ends a second time
		add(t, l, task("3", mailbox.Pending), task("4", mailbox.Pending), task("5", mailbox.Pending))
		_, _, err = l.Add(task("6", mailbox.Pending))
		wantError(t, err, mailbox.AgentBusy, "", "10000 tasks")
	})
	t.Run("ended tasks, by number", func(t *testing.T) {
		dir := t.TempDir()
		l := openTasks(t, dir)
		add(t, l, task("open", mailbox.Working))
		for i := range 1002 {
			r := task(fmt.Sprint(i), mailbox.Completed)
			r.UpdatedAt = start.Add(time.Duration(i))
			add(t, l, r)
		}
		if n := len(taskFiles(t, dir)); n != 1001 || len(l.List()) != 1001 {
			t.Errorf("%d files, %d tasks", n, len(l.List()))
		}
		if len(l.Find("1"))+len(l.Find("open")) != 1 || len(l.Find("2")) != 1 {
			t.Error("not the ones that ended first went")
		}
		wantSame(t, openTasks(t, dir), l)
	})
	t.Run("ended tasks, by age", func(t *testing.T) {
		dir := t.TempDir()
		l := openTasks(t, dir)
		add(t, l, task("ended", mailbox.Failed))
		week := start.Add(7*24*time.Hour + time.Second)
		fresh := task("fresh", mailbox.Working)
		fresh.Deadline = week
		add(t, l, fresh)
		if _, err := l.Expire(week.Add(-2 * time.Second)); err != nil || len(l.List()) != 2 {
			t.Errorf("%v, %v", ids(l.List()), err)
		}
		if _, err := l.Expire(week); err != nil {
			t.Fatal(err)
		}
		wantIDs(t, "after a week", l.List(), "fresh")
		if n := len(taskFiles(t, dir)); n != 1 {
			t.Errorf("%d files", n)
		}
	})
	t.Run("ended tasks, at start", func(t *testing.T) {
		dir := t.TempDir()
		l := openTasks(t, dir)
		old := task("old", mailbox.Failed)
		old.CreatedAt = start.Add(-6 * 24 * time.Hour)
		add(t, l, old, task("young", mailbox.Completed))
		older := old
		older.ID, older.CreatedAt = "older", start.Add(-8*24*time.Hour)
		if _, added, err := l.Add(older); !added || err != nil {
			t.Fatal(added, err)
		}
		wantIDs(t, "kept", openTasks(t, dir).List(), "young", "old")
	})
}
