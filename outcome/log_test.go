package outcome

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// memory is a Store whose faults and pace the test sets.
type memory struct {
	mu sync.Mutex
	held
	news chan struct{} // pokes one reader
}

type held struct {
	lines    [][]byte
	batches  []int // how many lines each had
	calls    int
	away     error // what Append returns
	hang     bool  // Append waits for its ctx
	deaf     bool  // Follow hands nothing over
	silent   bool  // Follow never catches up
	part     bool  // what is kept is not all
	readers  int   // that follow now
	followed int   // how many began
}

var errAway = errors.New("away")

func newMemory() *memory { return &memory{news: make(chan struct{}, 1)} }

func (m *memory) Append(ctx context.Context, lines [][]byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.hang {
		m.mu.Unlock()
		<-ctx.Done()
		m.mu.Lock()
		return ctx.Err()
	}
	if m.away != nil {
		return m.away
	}
	for _, line := range lines {
		m.lines = append(m.lines, slices.Clone(line))
	}
	m.batches = append(m.batches, len(lines))
	wait.Wake(m.news)
	return nil
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

func (m *memory) Close() error { return nil }

// now is what the store holds and counts now.
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

// bubble runs a test with a Log over a store, in synthetic time.
func bubble(t *testing.T, test func(t *testing.T, m *memory, l *Log, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := New(Options{Store: m, Agent: "a", Logger: logger(t)})
		test(t, m, l, running(t, l))
	})
}

func recent(t *testing.T, l *Log, limit int) ([]Outcome, bool) {
	t.Helper()
	list, complete, err := l.Recent(t.Context(), "feishu", "oc_1", limit)
	must(t, err)
	return list, complete
}

func TestBatches(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		l.Note(about(1, func(o *Outcome) { o.Decision = allow }))
		time.Sleep(batchAfter - 1)
		l.Note(about(1, func(o *Outcome) { o.Delivered, o.Door = relay.MillisOf(time.Now()), "stream" }))
		l.Note(about(2, func(o *Outcome) { o.Stopped = relay.Expired }))
		synctest.Wait()
		if len(m.now().lines) != 0 {
			t.Error("written too early")
		}
		time.Sleep(1)
		synctest.Wait()
		if !slices.Equal(m.now().batches, []int{2}) {
			t.Fatalf("got batches of %d lines, want one of 2", m.now().batches)
		}
		first, err := decode(m.now().lines[0], "", time.Now())
		if err != nil || *first.Decision != *allow || first.Door != "stream" || first.Agent != "a" {
			t.Errorf("a decision and its delivery became %s", m.now().lines[0])
		}
		for i := range maxBatch { // a full batch does not wait
			l.Note(about(i, nil))
		}
		synctest.Wait()
		if !slices.Equal(m.now().batches, []int{2, maxBatch}) {
			t.Errorf("got batches of %d lines, want 2 and %d", m.now().batches, maxBatch)
		}
		l.Note(about(3, nil))
		stop() // what is left is written at the end
		if got := l.Stats(); len(m.now().lines) != maxBatch+3 || got.Written != maxBatch+3 || got.Pending != 0 {
			t.Errorf("wrote %d lines at the end, and %+v", len(m.now().lines), got)
		}
	})
}

// Nothing ticks while there is nothing to do.
func TestIdle(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		time.Sleep(1000 * time.Hour)
		if m.now().calls != 0 || m.now().followed != 0 {
			t.Errorf("%d writes and %d readings while idle", m.now().calls, m.now().followed)
		}
	})
}

func TestStoreAway(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		m.set(func() { m.away = errAway })
		for i := range maxBatch + maxPending + 100 {
			l.Note(about(i, nil))
			if i == maxBatch {
				synctest.Wait() // the first batch is being written
			}
		}
		time.Sleep(time.Hour)
		got := l.Stats()
		if got.Dropped != 100 || got.Pending != maxBatch+maxPending || got.Written != 0 {
			t.Errorf("got %+v, want 100 dropped and %d pending", got, maxBatch+maxPending)
		}
		if calls := int64(m.now().calls); got.Failed != calls || calls > 1000 || calls < 200 {
			t.Errorf("%d writes and %d faults within an hour", m.now().calls, got.Failed)
		}
		l.Note(about(maxBatch, nil)) // one that was dropped, for one more
		m.set(func() { m.away = nil })
		time.Sleep(2 * backoffMax)
		synctest.Wait()
		if got := l.Stats(); got.Pending != 0 || got.Written != maxBatch+maxPending {
			t.Errorf("got %+v afterwards", got)
		}
		lost := map[string]bool{}
		for i := range maxBatch + maxPending + 100 {
			lost[string(about(i, nil).RelayMsgID)] = true
		}
		for _, line := range m.now().lines {
			o, err := decode(line, "", time.Now())
			must(t, err)
			delete(lost, string(o.RelayMsgID))
		}
		for i := range 101 { // the oldest beside the batch that was being written
			id := string(about(maxBatch+i, nil).RelayMsgID)
			if again := i == 0; lost[id] == again {
				t.Errorf("%s: lost %v, noted again %v", id, lost[id], again)
			}
		}
	})
}

func TestLastWritesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		for i := range 700 {
			l.Note(about(i, nil))
		}
		m.set(func() { m.hang = true })
		began := time.Now()
		stop()
		if took := time.Since(began); took > lastWrites {
			t.Errorf("the end took %v", took)
		}
		if got := l.Stats(); got.Pending != 0 || got.Dropped+got.Written != 700 {
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

func TestRecentKnowsWhatIsPending(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		l.Note(about(1, func(o *Outcome) { o.Decision = allow }))
		time.Sleep(time.Second) // written
		m.set(func() { m.away = errAway })
		l.Note(about(1, func(o *Outcome) { o.Door = "webhook" }))
		time.Sleep(time.Second) // being written
		l.Note(about(1, func(o *Outcome) { o.Acknowledged = 5 }))
		l.Note(about(2, nil))
		l.Note(about(3, func(o *Outcome) { o.ChatID = "oc_2" }))
		list, complete := recent(t, l, 10)
		if !complete || len(list) != 2 || *list[0].Decision != *allow || list[0].Door != "webhook" || list[0].Acknowledged != 5 {
			t.Errorf("got %+v, %v", list, complete)
		}
		m.set(func() { m.away = nil })
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

func TestIncomplete(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		m.set(func() { m.part = true })
		l.Note(about(1, nil))
		l.Note(about(2, nil))
		time.Sleep(time.Second)
		if list, complete := recent(t, l, 3); len(list) != 2 || complete {
			t.Errorf("of a store that forgot some: got %d, %v", len(list), complete)
		}
		if list, complete := recent(t, l, 2); len(list) != 2 || !complete {
			t.Errorf("as many as were asked for: got %d, %v", len(list), complete)
		}
	})
}

func TestEviction(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		now := relay.MillisOf(time.Now())
		n := maxIndex + maxIndex/8 + 1
		for i := range n { // the newest first, as when agents' files are read one by one
			o := about(i, func(o *Outcome) { o.Agent, o.At = "z", now-relay.Millis(i) })
			line, err := encode(&o, "")
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

// Reading goes on for a while after the last one who looked on, and begins anew
// for the next.
func TestReadingOnlyWhileSomebodyLooksOn(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		readers := func(want, begun int) {
			t.Helper()
			synctest.Wait()
			if m.now().readers != want || m.now().followed != begun {
				t.Errorf("%d read and %d began, want %d and %d", m.now().readers, m.now().followed, want, begun)
			}
		}
		readers(0, 0)
		recent(t, l, 1)
		readers(1, 1)
		time.Sleep(linger - 1)
		recent(t, l, 1)
		time.Sleep(linger - 1)
		readers(1, 1)
		time.Sleep(1)
		readers(0, 1)
		l.Note(about(1, nil))
		unwatch := l.Watch(func(Outcome) {})
		also := l.Watch(func(Outcome) {})
		time.Sleep(10 * linger)
		readers(1, 2)
		unwatch()
		unwatch()
		time.Sleep(10 * linger)
		readers(1, 2)
		if list, complete := recent(t, l, 5); len(list) != 1 || !complete {
			t.Errorf("got %+v, %v", list, complete)
		}
		also()
		time.Sleep(linger)
		readers(0, 2)
		stop()
		running(t, l) // it may be run again
		recent(t, l, 1)
		readers(1, 3)
	})
}

func TestRecentWaitsNotLong(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		m.set(func() { m.silent = true })
		l.Note(about(1, nil))
		began := time.Now()
		list, complete := recent(t, l, 1)
		if took := time.Since(began); took != patience || complete || len(list) != 1 {
			t.Errorf("after %v: got %d outcomes, %v", took, len(list), complete)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := l.Recent(ctx, "feishu", "oc_1", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// A watcher sees what changes, once, and not what stood there before.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		add := func(o Outcome) {
			o.Agent = "b"
			line, err := encode(&o, "")
			must(t, err)
			must(t, m.Append(t.Context(), [][]byte{line}))
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

// What this bot's sidecar wrote is shown before it is read back, once.
func TestOwnOutcomesAreShownAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		recent(t, l, 1)
		m.set(func() { m.deaf = true })
		var seen []Outcome
		defer l.Watch(func(o Outcome) { seen = append(seen, o) })()
		l.Note(about(1, nil))
		time.Sleep(batchAfter)
		synctest.Wait()
		if list, complete := recent(t, l, 5); len(list) != 1 || !complete || len(seen) != 1 {
			t.Errorf("got %+v, %v, and saw %+v", list, complete, seen)
		}
		m.set(func() { m.deaf = false })
		wait.Wake(m.news)
		synctest.Wait()
		if len(seen) != 1 {
			t.Errorf("saw %+v", seen)
		}
	})
}

// A store that is read late is told of too, as far as it is new.
func TestWatchWhileTheStoreIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, m *memory, l *Log, stop func()) {
		m.set(func() { m.silent = true })
		var seen []Outcome
		defer l.Watch(func(o Outcome) { seen = append(seen, o) })()
		for i, at := range []relay.Millis{5, relay.MillisOf(time.Now())} {
			o := about(i+1, func(o *Outcome) { o.Agent, o.At = "b", at })
			line, err := encode(&o, "")
			must(t, err)
			must(t, m.Append(t.Context(), [][]byte{line}))
		}
		synctest.Wait()
		if len(seen) != 1 || seen[0].RelayMsgID != "om_00002" {
			t.Errorf("saw %+v, want what is newer than the watcher", seen)
		}
	})
}
