package agent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// queued is a message that is ready for the bot. Its text stays in the store: an inbox may
// hold [mailbox.MaxInbox] of them, and what left it meanwhile is not delivered.
type queued struct {
	id       string // of the envelope; other programs' messages may share one
	key      string // what Seen and ready know the message by (messageKey)
	sum      string // its fingerprint
	name     string // the id that the bot gets: no other message has it
	from     mailbox.AgentID
	priority mailbox.Priority
	sent     time.Time
	expires  time.Time // zero: never
	arrived  int
	came     time.Time
	goal     string // of a message through send_to_peer that may be dropped
	session  string // the goal that it is for, the agent's name where it names no goal
	asks     bool   // a result may answer it
	inChat   bool   // it belongs in a conversation: those and the others do not wait for each other

	conversation string            // the next message of it waits until this one is written, or answered
	keys         []string          // the store's for it; its sender may have sent it again
	fresh        *mailbox.Envelope // its text, of the message that came last: see [queue.takeFresh]
	progress
}

// progress is how far a message's delivery has come.
type progress struct {
	delivering bool              // somebody is delivering it
	tried      int               // the number of openings of channels when that began
	given      time.Time         // the bot was given it first; zero: never
	giving     *mailbox.Envelope // what is being delivered; cancel ends that
	cancel     context.CancelCauseFunc
	state      queueState
	over       bool      // the task that it gave has ended since its delivery began
	claimed    bool      // somebody settles it, or has
	fails      int       // how often the bot could not take it, in a row
	hold       time.Time // nothing is done for it until then
}

// queueState is whether a message can be delivered.
type queueState int

const (
	deliverable queueState = iota
	noChannel              // no delivery channel was open for it
	unanswered             // the bot did not answer: it is not delivered again
)

func (l *queued) order(m *queued) int {
	return cmp.Or(cmp.Compare(l.priority, m.priority), l.sent.Compare(m.sent), cmp.Compare(l.arrived, m.arrived))
}

// free reports whether nobody is delivering l or settling it.
func (l *queued) free() bool { return !l.delivering && !l.claimed }

// ready is what waits for the bot, in the order of its delivery.
type queue struct {
	mu       sync.Mutex
	list     []*queued // guarded by mu, as the rest is, and the messages
	byKey    map[string]*queued
	byName   map[string]*queued
	byItem   map[string]*queued // by the store's key: the last message under it
	arrived  int
	occupied map[string]*queued // by conversation, what its other messages wait for
	newest   *queued            // the only one with a fresh text; nil: none has
	drains   int                // drains that are taking what is ready: nothing is delivered meanwhile
	openings int                // how often a delivery channel has opened
	changed  chan struct{}      // closed at the next change
}

func newQueue() *queue {
	return &queue{byKey: map[string]*queued{}, byName: map[string]*queued{}, byItem: map[string]*queued{},
		occupied: map[string]*queued{}, changed: make(chan struct{})}
}

// update makes a change, and wakes those who wait for one.
func (q *queue) update(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	close(q.changed)
	q.changed = make(chan struct{})
}

// look returns what f does while nothing changes.
func look[T any](q *queue, f func() T) T {
	q.mu.Lock()
	defer q.mu.Unlock()
	return f()
}

// Changed is closed at the next change.
func (q *queue) Changed() <-chan struct{} {
	return look(q, func() <-chan struct{} { return q.changed })
}

// any reports whether there is a message that which picks.
func (q *queue) any(which func(*queued) bool) bool {
	return look(q, func() bool { return slices.ContainsFunc(q.list, which) })
}

// knows reports whether a message of that key waits.
func (q *queue) knows(key string) bool {
	return look(q, func() bool { return q.byKey[key] != nil })
}

// find returns the message that the bot was given under an id, also one that
// is being delivered; nil: there is no such message.
func (q *queue) find(id string) *queued {
	return look(q, func() *queued { return q.byName[id] })
}

// now returns a message as it is now.
func (q *queue) now(l *queued) queued {
	return look(q, func() queued { now := *l; now.keys = slices.Clone(l.keys); return now })
}

// show returns at most n messages, and how many there are.
func (q *queue) show(n int) ([]*queued, int) {
	all := look(q, func() []*queued { return slices.Clone(q.list) })
	return all[:min(n, len(all))], len(all)
}

// count is how many messages wait for a goal, "" for any.
func (q *queue) count(goal string) int {
	return look(q, func() int { return len(q.copies(goal)) })
}

// add puts a message into the queue, and reports false where it is known: then its further keys
// are noted. unique is the name that it gets where another one has its name.
func (q *queue) add(l queued, unique string) (added bool) {
	q.update(func() {
		known := q.byKey[l.key]
		if added = known == nil; added {
			if q.byName[l.name] != nil {
				l.name = unique
			}
			q.arrived++
			l.arrived = cmp.Or(l.arrived, q.arrived)
			known = &l
			i, _ := slices.BinarySearchFunc(q.list, known, (*queued).order)
			q.list = slices.Insert(q.list, i, known)
			q.byKey[l.key], q.byName[l.name] = known, known
			q.forgetFresh()
			q.newest = known
		}
		for _, key := range l.keys {
			if !slices.Contains(known.keys, key) {
				known.keys = append(known.keys, key)
			}
			q.byItem[key] = known
		}
	})
	return added
}

// maxFresh is how long a message's text need not be read again.
const maxFresh = time.Second

// takeFresh returns the text of the message that came last, once, where it was its turn at once: what
// the store showed a moment ago is not read again. nil: read it, since it may have left the inbox.
func (q *queue) takeFresh(l *queued) *mailbox.Envelope {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := l.fresh
	l.fresh = nil
	if time.Since(l.came) > maxFresh {
		return nil
	}
	return e
}

// forgetFresh is called with mu held.
func (q *queue) forgetFresh() {
	if q.newest != nil && !q.newest.delivering {
		q.newest.fresh = nil
	}
	q.newest = nil
}

// next returns the message whose turn it is, marked as being delivered, of those that belong in a
// conversation or of the others. Without one, it returns when there may be one, if
// nothing else happens; zero: never.
func (q *queue) next(now time.Time, inChat bool) (l *queued, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drains > 0 {
		return nil, time.Time{}
	}
	if q.newest != nil && q.newest.inChat == inChat {
		defer q.forgetFresh() // that of another one than is taken now
	}
	for _, l := range q.list {
		turn := l.hold
		if l.state != deliverable {
			turn = l.expires // to be cleared away
		}
		switch {
		case !l.free() || l.inChat != inChat || q.occupied[l.conversation] != nil:
		case l.state != deliverable && l.expires.IsZero():
		case !now.Before(turn):
			l.delivering, l.over, l.tried = true, false, q.openings
			q.occupied[l.conversation] = l
			return l, time.Time{}
		case at.IsZero() || turn.Before(at):
			at = turn
		}
	}
	return nil, at
}

// copyWindow is how far apart the copies of one message for several goals are sent.
const copyWindow = 5 * time.Second

// copies returns the messages for a goal, "" for any, those together that are one
// message sent to several goals: the same content of one sender within copyWindow.
// It is called with mu held.
func (q *queue) copies(goal string) (groups [][]*queued) {
	last := map[string]int{} // sender and fingerprint → the group
	for _, l := range q.list {
		if goal != "" && l.session != goal {
			continue
		}
		same := string(l.from) + "/" + l.sum
		at, ok := last[same]
		if l.goal != "" && ok && l.sent.Sub(groups[at][0].sent) <= copyWindow &&
			!slices.ContainsFunc(groups[at], func(m *queued) bool { return m.goal == l.goal }) {
			groups[at] = append(groups[at], l)
			continue
		}
		if l.goal != "" {
			last[same] = len(groups)
		}
		groups = append(groups, []*queued{l})
	}
	return groups
}

// takeAll returns what is ready for a goal, "" for any, marked as being delivered: at most n
// messages, each with its copies for other goals.
func (q *queue) takeAll(n int, goal string) (out [][]*queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, group := range q.copies(goal) {
		group = slices.DeleteFunc(group, func(l *queued) bool { return !l.free() })
		if len(out) >= n || len(group) == 0 {
			continue
		}
		for _, l := range group {
			l.delivering = true
		}
		out = append(out, group)
	}
	return out
}

// overflow returns the oldest peer messages of each goal beyond most, marked as being delivered.
func (q *queue) overflow(most int) (out []*queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := map[string]int{}
	for _, l := range q.list {
		count[l.goal]++
	}
	oldest := func(l, m *queued) int { return cmp.Compare(l.arrived, m.arrived) }
	for _, l := range slices.SortedFunc(slices.Values(q.list), oldest) {
		if l.goal != "" && l.free() && count[l.goal] > most {
			count[l.goal]--
			l.delivering = true
			out = append(out, l)
		}
	}
	return out
}

// claim reports whether it is the caller who may settle l: of several that deliver
// it or answer for the bot, the first is. Then [queue.remove] follows, or
// [queue.unclaim].
func (q *queue) claim(l *queued) bool {
	return look(q, func() bool { was := l.claimed; l.claimed = true; return !was })
}

// unclaim undoes claim: l could not be settled.
func (q *queue) unclaim(l *queued) { q.update(func() { l.claimed = false }) }

// stop ends an attempt to deliver l.
func (q *queue) stop(l *queued) {
	q.update(func() { l.delivering, l.giving, l.fresh = false, nil, nil })
}

// putBack ends an attempt to deliver l, which left it in a state. It reports false where
// the task that l gave has ended: then it is cleared away at its next turn.
func (q *queue) putBack(l *queued, state queueState) (kept bool) {
	q.update(func() {
		l.delivering, l.giving, kept = false, nil, !l.over
		if kept && (state != noChannel || l.tried == q.openings) { // else a channel has opened since
			l.state = state
		}
	})
	return kept
}

// opened makes it the turn of all that waited for a delivery channel.
func (q *queue) opened() {
	q.update(func() {
		q.openings++
		for _, l := range q.list {
			if l.state == noChannel {
				l.state = deliverable
			}
		}
	})
}

// postpone gives back a message that could not be delivered, and leaves it alone
// for a pause that doubles with each failure.
func (q *queue) postpone(l *queued, now time.Time) {
	q.update(func() {
		l.delivering, l.giving = false, nil
		pause := wait.Doubled(retryFirst, retryMax, l.fails)
		if l.fails++; l.fails >= patientTries {
			pause *= 2
		}
		l.hold = now.Add(min(pause, retryMax))
	})
}

// written notes that the bot was given l.
func (q *queue) written(l *queued) { q.update(func() { l.given = cmp.Or(l.given, time.Now()) }) }

// release lets the next message of l's conversation follow.
func (q *queue) release(l *queued) {
	q.update(func() {
		if q.occupied[l.conversation] == l {
			delete(q.occupied, l.conversation)
		}
	})
}

// reopen makes it the turn of an agent's message of that id that waits, so that it is
// cleared away: the task that it gave has ended. A channel may be open now for another one.
func (q *queue) reopen(from mailbox.AgentID, id string) {
	defer q.opened()
	q.update(func() {
		for _, l := range q.list {
			if l.from == from && l.id == id {
				l.state, l.over = deliverable, true
			}
		}
	})
}

// remove forgets a message, and returns its keys that no other message has taken.
func (q *queue) remove(l *queued) (keys []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.claimed = true
	if q.byKey[l.key] == l {
		delete(q.byKey, l.key)
		delete(q.byName, l.name)
		q.list = slices.DeleteFunc(q.list, func(m *queued) bool { return m == l })
	}
	for _, key := range l.keys {
		if q.byItem[key] == l {
			delete(q.byItem, key)
			keys = append(keys, key)
		}
	}
	return keys
}
