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
	name     string // the id that the bot gets: no other message has it
	from     mailbox.AgentID
	priority mailbox.Priority
	sent     time.Time
	expires  time.Time // zero: never
	arrived  int
	size     int    // of the envelope
	goal     string // of a message through send_to_peer that may be dropped
	session  string // the goal that it is for, the agent's name where it names no goal
	asks     bool   // a result may answer it
	inChat   bool   // it belongs in a conversation: those and the others do not wait for each other

	conversation string   // the next message of it waits until this one is written, or answered
	keys         []string // the store's for it; its sender may have sent it again
	stamps       []string // of these
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

func (m *queued) order(other *queued) int {
	return cmp.Or(cmp.Compare(m.priority, other.priority), m.sent.Compare(other.sent),
		cmp.Compare(m.arrived, other.arrived))
}

// weight is how much of maxInProgress m takes.
func (m *queued) weight() int64 { return int64(min(max(m.size, leastInProgress), maxInProgress)) }

// free reports whether nobody is delivering m or settling it.
func (m *queued) free() bool { return !m.delivering && !m.claimed }

// ready is what waits for the bot, in the order of its delivery.
type queue struct {
	mu       sync.Mutex
	list     []*queued // guarded by mu, as the rest is, and the messages
	byKey    map[string]*queued
	byName   map[string]*queued
	byItem   map[string]*queued // by the store's key: the last message under it
	arrived  int
	occupied map[string]*queued // by conversation, what its other messages wait for
	openings int                // how often a delivery channel has opened, or may have
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

// find returns the message that the bot was given under an id, also one that
// is being delivered; nil: there is no such message.
func (q *queue) find(id string) *queued {
	return look(q, func() *queued { return q.byName[id] })
}

// now returns a message as it is now.
func (q *queue) now(m *queued) queued {
	return look(q, func() queued { now := *m; now.keys = slices.Clone(m.keys); return now })
}

// add puts a message into the queue, and reports false where it is known: then its further keys
// are noted. unique is the name that it gets where another one has its name.
func (q *queue) add(m queued, unique string) (added bool) {
	q.update(func() {
		known := q.byKey[m.key]
		if added = known == nil; added {
			if q.byName[m.name] != nil {
				m.name = unique
			}
			q.arrived++
			m.arrived = cmp.Or(m.arrived, q.arrived)
			known = &m
			i, _ := slices.BinarySearchFunc(q.list, known, (*queued).order)
			q.list = slices.Insert(q.list, i, known)
			q.byKey[m.key], q.byName[m.name] = known, known
		}
		for _, key := range m.keys {
			if !slices.Contains(known.keys, key) {
				known.keys = append(known.keys, key)
			}
			q.byItem[key] = known
		}
		if !added {
			known.stamps = append(known.stamps, m.stamps...)
		}
	})
	return added
}

// next returns the message whose turn it is, marked as being delivered, of those that belong in a
// conversation or of the others. Without one, it
// returns when there may be one, if nothing else happens; zero: never.
func (q *queue) next(now time.Time, inChat bool) (m *queued, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.list {
		turn := m.hold
		if m.state != deliverable {
			turn = m.expires // to be cleared away
		}
		switch {
		case !m.free() || m.inChat != inChat || q.occupied[m.conversation] != nil:
		case m.state != deliverable && m.expires.IsZero():
		case !now.Before(turn):
			m.delivering, m.over, m.tried = true, false, q.openings
			q.occupied[m.conversation] = m
			return m, time.Time{}
		case at.IsZero() || turn.Before(at):
			at = turn
		}
	}
	return nil, at
}

// of returns the messages for a goal, "" for any. It is called with mu held.
func (q *queue) of(goal string) (list []*queued) {
	for _, m := range q.list {
		if goal == "" || m.session == goal {
			list = append(list, m)
		}
	}
	return list
}

// takeAll returns what is ready for a goal, "" for any, marked as being delivered, at most n messages.
func (q *queue) takeAll(n int, goal string) (out []*queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.of(goal) {
		if m.free() && len(out) < n {
			m.delivering = true
			out = append(out, m)
		}
	}
	return out
}

// overflow returns the oldest peer messages of each goal beyond most, marked as being delivered.
func (q *queue) overflow(most int) (out []*queued) {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := map[string]int{}
	for _, m := range q.list {
		count[m.goal]++
	}
	for _, m := range q.list {
		if m.goal != "" && m.free() && count[m.goal] > most {
			count[m.goal]--
			m.delivering = true
			out = append(out, m)
		}
	}
	return out
}

// claim reports whether it is the caller who may settle m: of several that deliver
// it or answer for the bot, the first is. Then [queue.remove] follows, or
// [queue.unclaim].
func (q *queue) claim(m *queued) bool {
	return look(q, func() bool { was := m.claimed; m.claimed = true; return !was })
}

// unclaim undoes claim: m could not be settled.
func (q *queue) unclaim(m *queued) { q.update(func() { m.claimed = false }) }

// stop ends an attempt to deliver m.
func (q *queue) stop(m *queued) {
	q.update(func() { m.delivering, m.giving = false, nil })
}

// putBack ends an attempt to deliver m, which left it in a state. It reports false where
// the task that m gave has ended: then it is cleared away at its next turn.
func (q *queue) putBack(m *queued, state queueState) (kept bool) {
	q.update(func() {
		m.delivering, m.giving, kept = false, nil, !m.over
		if kept && (state != noChannel || m.tried == q.openings) { // else a channel has opened since
			m.state = state
		}
	})
	return kept
}

// opened makes it the turn of all that waited for a delivery channel.
func (q *queue) opened() {
	q.update(func() {
		q.openings++
		for _, m := range q.list {
			if m.state == noChannel {
				m.state = deliverable
			}
		}
	})
}

// postpone gives back a message that could not be delivered, and leaves it alone
// for a pause that doubles with each failure, up to longest.
func (q *queue) postpone(m *queued, now time.Time, longest time.Duration) {
	q.update(func() {
		m.delivering, m.giving = false, nil
		m.hold = now.Add(wait.Doubled(retryFirst, longest, m.fails))
		m.fails++
	})
}

// written notes that the bot was given m.
func (q *queue) written(m *queued) { q.update(func() { m.given = cmp.Or(m.given, time.Now()) }) }

// release lets the next message of m's conversation follow.
func (q *queue) release(m *queued) {
	q.update(func() {
		if q.occupied[m.conversation] == m {
			delete(q.occupied, m.conversation)
		}
	})
}

// reopen makes it the turn of an agent's message of that id that waits, so that it is
// cleared away: the task that it gave has ended. There may be a channel for the agent's next task now.
func (q *queue) reopen(from mailbox.AgentID, id string) {
	q.update(func() {
		for _, m := range q.list {
			if m.from == from && m.id == id {
				m.state, m.over = deliverable, true
			}
		}
	})
	q.opened()
}

// remove forgets a message, and returns its keys that no other message has taken.
func (q *queue) remove(m *queued) (keys []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m.claimed = true
	if q.byKey[m.key] == m {
		delete(q.byKey, m.key)
		delete(q.byName, m.name)
		q.list = slices.DeleteFunc(q.list, func(x *queued) bool { return x == m })
	}
	for _, key := range m.keys {
		if q.byItem[key] == m {
			delete(q.byItem, key)
			keys = append(keys, key)
		}
	}
	return keys
}
