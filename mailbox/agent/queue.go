package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"feishu-relay/mailbox"
)

// queued is a message that is ready for the bot. Its text stays in the store: an inbox may
// hold [mailbox.MaxInbox] of them, and what left it meanwhile is not delivered.
type queued struct {
	id       string // of the envelope; other programs' messages may share one
	key      string // what the book and the queue know the message by (messageKey)
	name     string // the id that the bot gets: no other message has it
	from     mailbox.AgentID
	priority mailbox.Priority
	sent     time.Time
	expires  time.Time // zero: never
	arrived  int
	size     int    // of the envelope
	session  string // the goal that it is for, the agent's name where it names no goal
	buffered bool   // it came by send_to_peer for a goal, and may be dropped
	inChat   bool   // it belongs in a conversation: those and the others do not wait for each other

	conversation string   // the next message of it waits until this one is written, or answered
	keys         []string // the store's for it; its sender may have sent it again
	stamps       []string // of these

	state  queueState
	busy   bool              // somebody is reading or delivering it
	giving *mailbox.Envelope // what is being delivered; cancel ends that
	cancel context.CancelCauseFunc
	opened int       // the number of openings of channels when the delivery began
	given  time.Time // the bot was given it first; zero: never
	over   bool      // the task that it gave has ended since its delivery began
	fails  int       // how often the bot could not take it, in a row
	hold   time.Time // nothing is done for it until then
}

// queueState is whether a message can be delivered.
type queueState int

const (
	deliverable queueState = iota
	noChannel              // no delivery channel was open for it
	unanswered             // the bot did not answer: it is not delivered again
)

// queue is what waits for the bot.
type queue struct {
	list     []*queued // in the order of delivery
	byKey    map[string]*queued
	byName   map[string]*queued
	arrived  int
	occupied map[string]*queued // by conversation, what its other messages wait for
	lanes    [2]lane            // of what belongs in a conversation, and of the rest
	openings int                // how often a delivery channel has opened, or may have
	changed  chan struct{}      // closed at the next change
}

// lane is messages that are written to the bot one after the other.
type lane struct {
	writing *queued   // the next waits until the bot has this one
	bytes   int       // of what the bot has not answered
	fails   int       // how often, in a row, something could not be written
	hold    time.Time // nothing is delivered until then
}

func newQueue() queue {
	return queue{byKey: map[string]*queued{}, byName: map[string]*queued{}, occupied: map[string]*queued{},
		changed: make(chan struct{})}
}

func (m *queued) order(other *queued) int {
	return cmp.Or(cmp.Compare(m.priority, other.priority), m.sent.Compare(other.sent),
		cmp.Compare(m.arrived, other.arrived))
}

// weight is how much of maxInProgress m takes.
func (m *queued) weight() int { return max(m.size, leastInProgress) }

func (q *queue) lane(m *queued) *lane {
	if m.inChat {
		return &q.lanes[0]
	}
	return &q.lanes[1]
}

// notify wakes those who wait for a change.
func (q *queue) notify() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// has reports whether m still waits: nobody has settled it.
func (q *queue) has(m *queued) bool { return q.byKey[m.key] == m }

// add puts a message into the queue, and reports whether it is new, and whether this piece of mail is. unique is the
// name that it gets where another one has its name.
func (q *queue) add(m queued, unique string) (added, came bool) {
	if known := q.byKey[m.key]; known != nil {
		if slices.Contains(known.keys, m.keys[0]) {
			return false, false
		}
		known.keys, known.stamps = append(known.keys, m.keys...), append(known.stamps, m.stamps...)
		return false, true
	}
	if q.byName[m.name] != nil {
		m.name = unique
	}
	q.arrived++
	m.arrived = q.arrived
	i, _ := slices.BinarySearchFunc(q.list, &m, (*queued).order)
	q.list = slices.Insert(q.list, i, &m)
	q.byKey[m.key], q.byName[m.name] = &m, &m
	q.notify()
	return true, true
}

// remove takes a message out, and returns its keys that no later message has taken.
func (q *queue) remove(m *queued) (keys []string) {
	if !q.has(m) {
		return nil
	}
	defer q.notify()
	delete(q.byKey, m.key)
	delete(q.byName, m.name)
	q.list = slices.DeleteFunc(q.list, func(x *queued) bool { return x == m })
	return slices.DeleteFunc(slices.Clone(m.keys), func(key string) bool {
		return slices.ContainsFunc(q.list, func(x *queued) bool {
			return x.arrived > m.arrived && slices.Contains(x.keys, key)
		})
	})
}

// next returns the message whose turn it is, marked as being delivered. Without one, it
// returns when there may be one, if nothing else happens; zero: never.
func (q *queue) next(now time.Time) (_ *queued, at time.Time) {
	full := map[*lane]bool{}
	for _, m := range q.list {
		l, turn := q.lane(m), m.hold
		if m.state != deliverable {
			turn = m.expires // to be cleared away
		}
		switch turn = later(turn, l.hold); {
		case m.busy || l.writing != nil || full[l] || q.occupied[m.conversation] != nil:
		case m.state != deliverable && m.expires.IsZero():
		case now.Before(turn):
			at = sooner(at, turn)
		case l.bytes > 0 && l.bytes+m.weight() > maxInProgress:
			full[l] = true // what is behind it waits, too
		default:
			m.busy, m.over, m.opened = true, false, q.openings
			l.writing, q.occupied[m.conversation] = m, m
			l.bytes += m.weight()
			return m, time.Time{}
		}
	}
	return nil, at
}

// of returns the messages for a goal, "" for any.
func (q *queue) of(goal string) []*queued {
	return slices.DeleteFunc(slices.Clone(q.list), func(m *queued) bool { return goal != "" && m.session != goal })
}

// overflow returns the oldest buffered messages of each goal beyond most.
func (q *queue) overflow(most int) (out []*queued) {
	count := map[string]int{}
	for _, m := range q.list {
		if m.buffered {
			count[m.session]++
		}
	}
	for _, m := range q.list {
		if m.buffered && !m.busy && count[m.session] > most {
			count[m.session]--
			out = append(out, m)
		}
	}
	return out
}

// written notes that the bot has m: the next of its lane may follow.
func (q *queue) written(m *queued) {
	m.given = cmp.Or(m.given, time.Now())
	if l := q.lane(m); l.writing == m {
		l.writing, l.fails = nil, 0
	}
	q.notify()
}

// release lets the next message of m's conversation follow.
func (q *queue) release(m *queued) {
	if q.occupied[m.conversation] == m {
		delete(q.occupied, m.conversation)
	}
	q.notify()
}

// channelOpened makes it the turn of all that waited for a delivery channel.
func (q *queue) channelOpened() {
	q.openings++
	for _, m := range q.list {
		if m.state == noChannel {
			m.state = deliverable
		}
	}
	q.notify()
}

// reopen makes it the turn of an agent's message of that id that waits, so that it is
// cleared away: the task that it gave has ended. There may be a channel for the agent's next task now.
func (q *queue) reopen(from mailbox.AgentID, id string) {
	for _, m := range q.list {
		if m.from == from && m.id == id {
			m.state, m.over = deliverable, true
		}
	}
	q.channelOpened()
}
