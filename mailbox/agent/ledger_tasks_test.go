package agent

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"feishu-relay/mailbox"
)

func TestAdd(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	first := task("t1", mailbox.Pending)
	add(t, l, first)

	again := first
	again.Text = "something else"
	if got, added, err := l.Add(again); err != nil || added || got.Text != first.Text {
		t.Errorf("the same task again: %q, %t, %v", got.Text, added, err)
	}
	other, given := first, first
	other.Peer = "other"
	given.Direction = Given
	add(t, l, other, given)
	if got := l.Find("t1"); len(got) != 3 {
		t.Errorf("found %d tasks of one id, want 3: its givers chose it", len(got))
	}
	if got := l.Find("t2"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	if got, ok := l.Get(Given, "manager", "t1"); !ok || got.Direction != Given {
		t.Errorf("got %+v, %t", got, ok)
	}
	if _, ok := l.Get(Given, "other", "t1"); ok {
		t.Error("got a task that nobody added")
	}
	wantSame(t, openTasks(t, dir), l)
}

func TestAddFillsIn(t *testing.T) {
	l := openTasks(t, t.TempDir())
	r, _, err := l.Add(TaskRecord{ID: "t", Direction: Given, Peer: "coder"})
	if err != nil {
		t.Fatal(err)
	}
	if r.State != mailbox.Pending || r.CreatedAt.IsZero() || !r.UpdatedAt.Equal(r.CreatedAt) || r.Trace == nil {
		t.Errorf("got %+v", r)
	}
}

func TestAddRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(*TaskRecord)
		field string
	}{
		{"no id", func(r *TaskRecord) { r.ID = "" }, "task.id"},
		{"a long id", func(r *TaskRecord) { r.ID = strings.Repeat("x", 201) }, "task.id"},
		{"an id that is no text", func(r *TaskRecord) { r.ID = "\xff" }, "task.id"},
		{"a long message id", func(r *TaskRecord) { r.MessageID = strings.Repeat("x", 201) }, "id"},
		{"no direction", func(r *TaskRecord) { r.Direction = "" }, "direction"},
		{"a path as direction", func(r *TaskRecord) { r.Direction = "../x" }, "direction"},
		{"no peer", func(r *TaskRecord) { r.Peer = "" }, "peer"},
		{"a path as peer", func(r *TaskRecord) { r.Peer = "../x" }, "peer"},
		{"an unknown state", func(r *TaskRecord) { r.State = "done" }, "task.state"},
		{"a deadline that JSON cannot hold", func(r *TaskRecord) { r.Deadline = time.Unix(1e12, 0) }, "task.deadline"},
		{"too much", func(r *TaskRecord) { r.Callback = &mailbox.Callback{ChatID: strings.Repeat("x", 300<<10)} }, "task"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			l := openTasks(t, dir)
			r := task("t", mailbox.Pending)
			tt.spoil(&r)
			_, added, err := l.Add(r)
			wantError(t, err, mailbox.InvalidMessage, tt.field)
			if added || len(l.List()) != 0 || len(taskFiles(t, dir)) != 0 {
				t.Error("it was added all the same")
			}
		})
	}
}

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

func TestLists(t *testing.T) {
	l := openTasks(t, t.TempDir())
	for i, state := range states {
		r := task(string(state), state)
		r.CreatedAt = start.Add(time.Duration(i) * time.Second)
		add(t, l, r)
		r.Direction = Given
		r.ID = "sent-" + r.ID
		add(t, l, r)
	}
	wantIDs(t, "open", l.Open(), "working", "accepted")
	if all := l.List(); len(all) != 12 || all[0].ID != "rejected" || all[11].ID != "sent-pending" {
		t.Errorf("not the newest first: %v", ids(all))
	}
}

func TestMove(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	r := task("t", mailbox.Pending)
	add(t, l, r)
	for _, to := range []mailbox.TaskState{mailbox.Accepted, mailbox.Working, mailbox.Working, mailbox.Completed} {
		got, changed := move(t, l, r, to)
		if !changed || got.State != to || got.Reason+got.Result != "because" || (got.Result != "") != (to == mailbox.Completed) || !got.UpdatedAt.Equal(start.Add(time.Minute)) {
			t.Errorf("to %s: changed %t, %+v", to, changed, got)
		}
		wantSame(t, openTasks(t, dir), l)
	}
	if got, changed := move(t, l, r, mailbox.Completed); changed || got.State != mailbox.Completed {
		t.Errorf("told again: changed %t, %+v", changed, got)
	}
	got, changed, err := l.Move(r.Direction, r.Peer, r.ID, mailbox.Failed, "", start)
	if wantError(t, err, mailbox.InvalidMessage, "state"); changed || got.State != mailbox.Completed {
		t.Errorf("ended twice: %+v", got)
	}
	for _, dir := range []Direction{Received, Given} {
		_, _, err = l.Move(dir, "manager", "ghost", mailbox.Accepted, "", start)
		wantError(t, err, mailbox.TaskNotFound, "task.id", `"ghost"`, "manager")
	}
}

// What the other agent says of a task it was given may come late, or not at all.
func TestMoveOfATaskGiven(t *testing.T) {
	for _, tt := range []struct {
		from, to mailbox.TaskState
		changed  bool
	}{
		{mailbox.Pending, mailbox.Completed, true},
		{mailbox.Pending, mailbox.Working, true},
		{mailbox.Working, mailbox.Rejected, true},
		{mailbox.Working, mailbox.Working, true},
		{mailbox.Pending, mailbox.Pending, false},
		{mailbox.Accepted, mailbox.Accepted, false},
		{mailbox.Working, mailbox.Accepted, false},
		{mailbox.Completed, mailbox.Accepted, false},
		{mailbox.Completed, mailbox.Failed, false},
		{mailbox.Rejected, mailbox.Completed, false},
	} {
		l := openTasks(t, t.TempDir())
		r := task("t", tt.from)
		r.Direction = Given
		add(t, l, r)
		want := tt.from
		if tt.changed {
			want = tt.to
		}
		if got, changed := move(t, l, r, tt.to); changed != tt.changed || got.State != want {
			t.Errorf("%s to %s: changed %t, now %s", tt.from, tt.to, changed, got.State)
		}
		_, _, err := l.Move(Given, r.Peer, r.ID, "done", "", start)
		wantError(t, err, mailbox.InvalidMessage, "state")
	}
}

func TestExpire(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	if _, ok := l.files.Next(); ok {
		t.Error("an empty ledger has something due")
	}
	late := task("late", mailbox.Working)
	late.Deadline = start.Add(time.Minute)
	silent := task("silent", mailbox.Pending)
	silent.Direction = Given
	over := task("over", mailbox.Completed)
	over.Deadline = start
	long := task("long", mailbox.Accepted)
	long.Deadline = start.Add(48 * time.Hour) // silence does not end it
	add(t, l, late, silent, over, long)
	if next, _ := l.files.Next(); !next.Equal(late.Deadline) {
		t.Errorf("next due at %s", next)
	}
	wantExpired := func(at time.Time, want ...string) {
		t.Helper()
		got, err := l.Expire(at)
		if err != nil {
			t.Fatal(err)
		}
		wantIDs(t, "expired", got, want...)
		for _, r := range got {
			if now, _ := l.Get(r.Direction, r.Peer, r.ID); now.State != mailbox.Failed || !now.Overdue || now.Reason == "" {
				t.Errorf("%+v", now)
			}
		}
		wantSame(t, openTasks(t, dir), l)
	}
	wantExpired(late.Deadline.Add(-1))
	wantExpired(late.Deadline, "late")
	if next, _ := l.files.Next(); !next.Equal(start.Add(maxSilence)) {
		t.Errorf("next due at %s", next)
	}
	wantExpired(start.Add(49*time.Hour), "silent", "long")
	wantExpired(start.Add(50 * time.Hour))

	t.Run("a late result counts, once", func(t *testing.T) {
		if got, changed := move(t, l, late, mailbox.Completed); !changed || got.State != mailbox.Completed || got.Overdue {
			t.Errorf("changed %t, %+v", changed, got)
		}
		_, changed, err := l.Move(late.Direction, late.Peer, late.ID, mailbox.Failed, "", start)
		if wantError(t, err, mailbox.InvalidMessage, "state"); changed {
			t.Error("and again")
		}
		if _, changed := move(t, l, long, mailbox.Failed); !changed {
			t.Error("the reason why it failed was lost")
		}
		if _, changed := move(t, l, long, mailbox.Failed); changed {
			t.Error("twice")
		}
		wantSame(t, openTasks(t, dir), l)
	})
	t.Run("a silent one that speaks goes on", func(t *testing.T) {
		if _, changed := move(t, l, silent, mailbox.Rejected); changed { // for the deadline had passed when it came
			t.Error("it was rejected after its end")
		}
		if r, changed := move(t, l, silent, mailbox.Working); !changed || r.State != mailbox.Working || r.Overdue {
			t.Errorf("changed %t, %+v", changed, r)
		}
	})
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

// A task that expires together with ended ones that are removed then leaves no task without a name behind.
func TestExpireBesideOldTasks(t *testing.T) {
	dir := t.TempDir()
	l := openTasks(t, dir)
	open, ended := task("open", mailbox.Working), task("ended", mailbox.Completed)
	open.Deadline = start.Add(keepEnded)
	ended.UpdatedAt = start.Add(time.Second) // due behind the other, and too old at the same time
	add(t, l, open, ended)
	got, err := l.Expire(start.Add(2 * keepEnded))
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "expired", got, "open")
	wantIDs(t, "kept", l.List(), "open")
	wantSame(t, openTasks(t, dir), l)
}

// What a task costs does not grow with the number of those that are kept: each step would copy them all.
func TestLedgerCopiesNoTasks(t *testing.T) {
	l := openTasks(t, t.TempDir())
	n := 0
	cost := func() uint64 { // bytes for 20 tasks, half of which end
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 10 {
			n += 2
			ended := task(fmt.Sprint(n), mailbox.Working)
			add(t, l, task(fmt.Sprint(n+1), mailbox.Working), ended)
			move(t, l, ended, mailbox.Completed)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	first := cost()
	for n < 500 {
		_ = cost()
	}
	if last := cost(); last > 3*first {
		t.Errorf("%d bytes beside none, %d beside %d", first, last, n)
	}
}

// A task whose folder is gone does not move: what Move says is on disk.
func TestLedgerDiskFails(t *testing.T) {
	dir := t.TempDir() + "/tasks"
	l := openTasks(t, dir)
	r := task("t", mailbox.Working)
	add(t, l, r)
	removeAll(t, dir)
	if got, changed, err := l.Move(r.Direction, r.Peer, r.ID, mailbox.Completed, "", start); err == nil || changed || got.State != mailbox.Working {
		t.Errorf("moved: %s, %t, %v", got.State, changed, err)
	}
	if got, err := l.Expire(start.Add(2 * maxSilence)); err == nil || len(got) != 0 {
		t.Errorf("expired: %v, %v", got, err)
	}
	if _, added, err := l.Add(task("u", mailbox.Pending)); err == nil || added {
		t.Errorf("added: %t, %v", added, err)
	} else if _, refusal := errors.AsType[*mailbox.Error](err); refusal {
		t.Errorf("a disk error is no refusal: %v", err)
	}
	wantIDs(t, "open", l.Open(), "t")
}
