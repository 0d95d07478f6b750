package outcome

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// memory is a Queue whose faults and pace the test sets.
type memory struct {
	mu sync.Mutex
	held
	news chan struct{} // wakes one reader
}

type held struct {
	lines    [][]byte
	batches  []int // how many lines each had
	calls    int   // of Publish
	away     error // what Publish returns
	hang     bool  // Publish waits for its ctx
	deaf     bool  // Follow hands nothing over
	silent   bool  // Follow never catches up
	part     bool  // what is kept is not all
	readers  int   // that follow now
	followed int   // how many began
}

var errAway = errors.New("away")

func newMemory() *memory { return &memory{news: make(chan struct{}, 1)} }

func (m *memory) Publish(ctx context.Context, lines [][]byte, _ relay.Receipt) (relay.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.hang {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		return "", ctx.Err()
	}
	if m.away != nil {
		return "", m.away
	}
	for _, line := range lines {
		m.lines = append(m.lines, slices.Clone(line))
	}
	m.batches = append(m.batches, len(lines))
	wait.Wake(m.news)
	return "", nil
}

// add adds an outcome of another bot.
func (m *memory) add(t *testing.T, o Outcome) {
	t.Helper()
	line, err := encode(&o, 1)
	must(t, err)
	_, err = m.Publish(t.Context(), [][]byte{line}, "")
	must(t, err)
}

func (m *memory) Follow(ctx context.Context, take func([]byte), caughtUp func(bool)) error {
	m.count(1)
	defer m.count(-1)
	for read, caught := 0, false; ; {
		m.mu.Lock()
		fresh := m.lines[read:]
		silent, part := m.silent, m.part
		if m.deaf {
			fresh = nil
		}
		m.mu.Unlock()
		for _, line := range fresh {
			take(line)
		}
		read += len(fresh)
		if !caught && !silent {
			caught = true
			caughtUp(!part)
		}
		select {
		case <-m.news:
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *memory) count(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.readers += n
	m.followed += max(0, n)
}

// now is what the queue holds and counts now.
func (m *memory) now() held {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.held
	h.lines, h.batches = slices.Clone(h.lines), slices.Clone(h.batches)
	return h
}

func (m *memory) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// bubble runs a test with a Log over a queue, in synthetic time.
func bubble(t *testing.T, test func(t *testing.T, m *memory, l *Log, stop func())) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := New(Options{Box: openBox(t, dir, "", logger(t)), Queue: m, Agent: "a", Logger: logger(t)})
		test(t, m, l, running(t, l))
	})
}

func recent(t *testing.T, l *Log, limit int) ([]Outcome, bool) {
	t.Helper()
	list, complete, err := l.Recent(t.Context(), "feishu", "oc_1", limit)
	must(t, err)
	return list, complete
}

// What is settled is on disk when Settle returns, and a process that is killed then
// shares it after its restart; a viewer sees it before.
func TestSettledOutcomesSurvive(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.away = errAway
		l := New(Options{Box: openBox(t, dir, "", logger(t)), Queue: m, Agent: "a", Logger: logger(t)})
		l.Note(about(1, func(o *Outcome) { o.Decision = allow }))
		l.Note(about(1, func(o *Outcome) { o.Delivered, o.Door = relay.MillisOf(time.Now()), "webhook" }))
		l.Note(about(2, nil)) // is not settled
		l.Settle("", "oc_1", about(1, nil).RelayMsgID)
		l.Settle("", "oc_1", about(1, nil).RelayMsgID) // has nothing more to write
		l.Settle("", "oc_1", "om_unknown")
		if got := l.Stats(); got.Written != 1 || got.Pending != 2 {
			t.Errorf("got %+v, want one written and both pending", got)
		}

		l = New(Options{Box: openBox(t, dir, "", logger(t)), Queue: m, Agent: "a", Logger: logger(t)}) // after a SIGKILL
		m.silent = true
		stop := running(t, l)
		defer stop()
		list, complete := recent(t, l, 10)
		if len(list) != 1 || complete || list[0].Door != "webhook" || *list[0].Decision != *allow {
			t.Errorf("after the restart, with the queue away: %+v, %v", list, complete)
		}
		m.set(func() { m.away = nil })
		time.Sleep(10 * time.Second)
		if got := m.now(); len(got.lines) != 1 {
			t.Errorf("%d lines are shared, want 1", len(got.lines))
		}
	})
}

// While the disk takes nothing, no settlement waits; the newest outcomes are written when
// it takes something again.
func TestDiskAway(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := New(Options{Box: openBox(t, dir, "", logger(t)), Queue: m, Agent: "a", Logger: logger(t)})
		stop := running(t, l)
		defer stop()
		inTheWay := filepath.Join(dir, fmt.Sprintf("%020d.jsonl", 1)) // of the first segment
		must(t, os.Mkdir(inTheWay, 0o700))
		for i := range maxPending + 100 {
			l.Note(about(i, nil))
			l.Settle("", "oc_1", about(i, nil).RelayMsgID)
		}
		time.Sleep(10 * time.Minute)
		got := l.Stats()
		if got.Dropped != 100 || got.Pending != maxPending || got.Written != 0 || got.Failed < 30 || got.Failed > 200 {
			t.Errorf("got %+v, want 100 dropped, %d pending, and 30 to 200 faults within 10 minutes", got, maxPending)
		}
		must(t, os.Remove(inTheWay))
		time.Sleep(2*backoffMax + time.Second)
		synctest.Wait()
		lines := m.now().lines
		if got := l.Stats(); got.Pending != 0 || got.Written != maxPending || len(lines) != maxPending {
			t.Fatalf("%d are shared, and %+v afterwards", len(lines), got)
		}
		first, err := decode(lines[0], "", time.Now())
		must(t, err)
		if first.RelayMsgID != about(100, nil).RelayMsgID {
			t.Errorf("the oldest that was kept is %s", first.RelayMsgID)
		}
		l.Note(about(1, nil)) // a settlement writes again
		l.Settle("", "oc_1", about(1, nil).RelayMsgID)
		if got := l.Stats(); got.Written != maxPending+1 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestNotesThatAreNone(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		l.Note(Outcome{})
		l.Note(about(1, func(o *Outcome) { o.ChatID = "a\nb" }))
		d := &policy.Decision{Detail: string(make([]byte, 10*maxLine))}
		l.Note(about(2, func(o *Outcome) { o.Decision = d }))
		l.Note(Outcome{ChatID: "oc_1", RelayMsgID: "om_x"})
		stop()
		if got := l.Stats(); got.Dropped != 2 || got.Written != 2 {
			t.Errorf("got %+v", got)
		}
		if len(d.Detail) != 10*maxLine {
			t.Error("the caller's decision was changed")
		}
		last, err := decode(m.now().lines[1], "", time.Now())
		if err != nil || last.Agent != "a" || last.Channel != "feishu" || last.At != relay.MillisOf(time.Now()) {
			t.Errorf("what is left out became %+v, %v", last, err)
		}
	})
}

func TestRecentIsLimitedAndInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		for i := range 10 {
			for _, agent := range []relay.AgentName{"b", "a"} {
				l.Note(about(9-i, func(o *Outcome) { o.Agent = agent }))
				time.Sleep(time.Millisecond)
			}
		}
		l.Note(about(9, nil)) // the oldest message changes and stays the oldest
		time.Sleep(time.Second)
		list, complete := recent(t, l, 4)
		if !complete || len(list) != 4 {
			t.Fatalf("got %+v, %v", list, complete)
		}
		for i, want := range []Outcome{{RelayMsgID: "om_00001", Agent: "b"}, {RelayMsgID: "om_00001", Agent: "a"},
			{RelayMsgID: "om_00000", Agent: "b"}, {RelayMsgID: "om_00000", Agent: "a"}} {
			if list[i].RelayMsgID != want.RelayMsgID || list[i].Agent != want.Agent {
				t.Errorf("outcome %d is %+v, want %+v", i, list[i], want)
			}
		}
		if list, _ := recent(t, l, 0); len(list) != 0 {
			t.Errorf("got %d outcomes, want none", len(list))
		}
	})
}

func TestEviction(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		now := relay.MillisOf(time.Now())
		n := maxIndex + maxIndex/8 + 1
		for i := range n { // the newest first, as when agents' files are read one by one
			o := about(i, func(o *Outcome) { o.Agent, o.At = "z", now-relay.Millis(i) })
			line, err := encode(&o, 1)
			must(t, err)
			m.lines = append(m.lines, line)
		}
		list, complete := recent(t, l, n)
		if len(list) != maxIndex || complete {
			t.Fatalf("got %d outcomes, %v, want %d", len(list), complete, maxIndex)
		}
		if newest := list[len(list)-1]; newest.RelayMsgID != about(0, nil).RelayMsgID {
			t.Errorf("the newest is %+v", newest)
		}
		if _, complete := recent(t, l, maxIndex); !complete {
			t.Error("the newest are not complete")
		}
	})
}

// A watcher gets each change once, and no earlier outcomes.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		add := func(o Outcome) {
			o.Agent = "b"
			m.add(t, o)
			synctest.Wait()
		}
		old := about(1, func(o *Outcome) { o.At = 5; o.Decision = allow })
		add(old)
		var seen []Outcome
		unwatch := l.Watch(func(o Outcome) { seen = append(seen, o) })
		synctest.Wait()
		add(old)
		add(about(1, func(o *Outcome) { o.At = 6; o.Door = "stream" }))
		add(old)
		add(about(2, func(o *Outcome) { o.At = 7 }))
		if len(seen) != 2 || seen[0].Door != "stream" || *seen[0].Decision != *allow || seen[1].RelayMsgID != "om_00002" {
			t.Errorf("saw %+v", seen)
		}
		unwatch()
		add(about(3, func(o *Outcome) { o.At = 8 }))
		if len(seen) != 2 {
			t.Errorf("saw %+v after the end", seen[2:])
		}
	})
}
