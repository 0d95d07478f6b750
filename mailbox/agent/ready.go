package agent

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"feishu-relay/mailbox"
)

// letter is a message that is ready for the bot. Its text stays in the store:
// an inbox may hold [mailbox.MaxInbox] of them.
type letter struct {
	id       string // of the envelope
	from     mailbox.AgentID
	keys     []string // what it lies under; its sender may have laid it down again
	priority mailbox.Priority
	sent     time.Time
	arrived  int
	goal     string // of a message through send_to_peer
	inHand   bool   // being delivered
}

func (l *letter) order(m *letter) int {
	return cmp.Or(cmp.Compare(l.priority, m.priority), l.sent.Compare(m.sent), cmp.Compare(l.arrived, m.arrived))
}

// ready is what waits for the bot, in the order of its delivery.
type ready struct {
	mu      sync.Mutex
	list    []*letter          // guarded by mu, as the rest is
	byID    map[string]*letter // from and id
	arrived int
	changed chan struct{} // closed when something was added or let go
}

func newReady() *ready {
	return &ready{byID: map[string]*letter{}, changed: make(chan struct{})}
}

func letterKey(from mailbox.AgentID, id string) string { return string(from) + "/" + id }

// add lays a letter ready, and reports false where it was: then its further key
// is noted.
func (r *ready) add(l letter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.byID[letterKey(l.from, l.id)]; ok {
		for _, key := range l.keys {
			if !slices.Contains(known.keys, key) {
				known.keys = append(known.keys, key)
			}
		}
		return false
	}
	r.arrived++
	l.arrived = r.arrived
	i, _ := slices.BinarySearchFunc(r.list, &l, (*letter).order)
	r.list = slices.Insert(r.list, i, &l)
	r.byID[letterKey(l.from, l.id)] = &l
	r.wake()
	return true
}

// wake is called with mu held.
func (r *ready) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed is closed at the next change.
func (r *ready) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// first takes the next letter in hand that is not among the parked; nil when
// there is none.
func (r *ready) first(parked map[*letter]bool) *letter {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.list {
		if !l.inHand && !parked[l] {
			l.inHand = true
			return l
		}
	}
	return nil
}

// takeAll takes in hand what is ready, at most n.
func (r *ready) takeAll(n int) []*letter {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*letter
	for _, l := range r.list {
		if len(out) < n && !l.inHand {
			l.inHand = true
			out = append(out, l)
		}
	}
	return out
}

// find returns the letters of an id, whoever has them in hand.
func (r *ready) find(id string) []*letter {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*letter
	for _, l := range r.list {
		if l.id == id {
			out = append(out, l)
		}
	}
	return out
}

// release gives a letter back: it was not delivered.
func (r *ready) release(l *letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.inHand = false
	r.wake()
}

// remove forgets a letter, and returns its keys.
func (r *ready) remove(l *letter) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[letterKey(l.from, l.id)] == l {
		delete(r.byID, letterKey(l.from, l.id))
		r.list = slices.DeleteFunc(r.list, func(m *letter) bool { return m == l })
	}
	return l.keys
}

// keysOf returns the keys that a letter lies under by now.
func (r *ready) keysOf(l *letter) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(l.keys)
}

// show returns copies of at most n letters, and how many there are.
func (r *ready) show(n int) ([]letter, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]letter, 0, min(n, len(r.list)))
	for _, l := range r.list[:min(n, len(r.list))] {
		out = append(out, *l)
	}
	return out, len(r.list)
}

// overflow takes in hand the oldest peer messages of each goal beyond most.
func (r *ready) overflow(most int) []*letter {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, l := range r.list {
		if l.goal != "" {
			count[l.goal]++
		}
	}
	var out []*letter
	for _, l := range slices.SortedFunc(slices.Values(r.list), func(l, m *letter) int { return cmp.Compare(l.arrived, m.arrived) }) {
		if l.goal != "" && !l.inHand && count[l.goal] > most {
			count[l.goal]--
			l.inHand = true
			out = append(out, l)
		}
	}
	return out
}
