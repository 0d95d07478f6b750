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

// letter is a message that is ready for the bot. Its text stays in the store:
// an inbox may hold [mailbox.MaxInbox] of them.
type letter struct {
	id       string // of the envelope; other programs' messages may share one
	key      string // what Seen and ready know the message by (messageKey)
	sum      string // its fingerprint
	name     string // the id that the bot gets: no other message has it
	from     mailbox.AgentID
	keys     []string // what it lies under; its sender may have laid it down again
	priority mailbox.Priority
	sent     time.Time
	expires  time.Time // zero: never
	arrived  int
	goal     string // of a message through send_to_peer that may be dropped
	session  string // the goal that it is for, the agent's name where it names none
	asks     bool   // a result is due for it
	talk     bool   // it belongs in a conversation: another door, and none of them waits for the other

	conversation string // the next letter of it waits until this one is written, or answered

	inHand bool      // somebody is handing it over
	turn   time.Time // the bot was given it first; zero: never
	cancel context.CancelCauseFunc
	closed bool      // the bot did not answer: it is not handed over again
	over   bool      // the task that it gave has ended since it was taken in hand
	ending bool      // somebody is done with it, and is just noting that
	parked int       // no door was open for it, as doors were then (ready.doors)
	fails  int       // how often the bot could not take it, in a row
	hold   time.Time // it is left alone until then
}

func (l *letter) order(m *letter) int {
	return cmp.Or(cmp.Compare(l.priority, m.priority), l.sent.Compare(m.sent), cmp.Compare(l.arrived, m.arrived))
}

// ready is what waits for the bot, in the order of its delivery.
type ready struct {
	mu       sync.Mutex
	list     []*letter // guarded by mu, as the rest is, and the letters
	byKey    map[string]*letter
	byName   map[string]*letter
	byItem   map[string]*letter // what lies under a key of the store: the last message that did
	arrived  int
	doors    int                // goes up when a door has opened
	occupied map[string]*letter // by conversation, what its other letters wait for
	drains   int                // drains that are taking what is ready: no door is given anything meanwhile
	changed  chan struct{}      // closed when a letter was added or let go
}

func newReady() *ready {
	return &ready{byKey: map[string]*letter{}, byName: map[string]*letter{}, byItem: map[string]*letter{},
		occupied: map[string]*letter{}, changed: make(chan struct{}), doors: 1}
}

// messageKey names a message: different content under one id is a different message.
func messageKey(e mailbox.Envelope) string {
	return string(e.From) + "/" + e.ID + "#" + e.Fingerprint()
}

// add lays a letter ready, and reports false where it was: then its further keys
// are noted. unique is the name that it gets where another one has its name.
func (r *ready) add(l letter, unique string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.byKey[l.key]; ok {
		for _, key := range l.keys {
			if !slices.Contains(known.keys, key) {
				known.keys = append(known.keys, key)
			}
			r.byItem[key] = known
		}
		return false
	}
	if r.byName[l.name] != nil {
		l.name = unique
	}
	r.arrived++
	l.arrived = cmp.Or(l.arrived, r.arrived)
	i, _ := slices.BinarySearchFunc(r.list, &l, (*letter).order)
	r.list = slices.Insert(r.list, i, &l)
	r.byKey[l.key], r.byName[l.name] = &l, &l
	for _, key := range l.keys {
		r.byItem[key] = &l
	}
	r.wake()
	return true
}

// knows reports whether a message of that key waits.
func (r *ready) knows(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey[key] != nil
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

// next takes in hand the letter whose turn it is, of those that belong in a
// conversation or of the others. Without one, it tells when
// there may be one, if nothing else happens; zero: never.
func (r *ready) next(now time.Time, talk bool) (l *letter, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drains > 0 {
		return nil, time.Time{}
	}
	for _, l := range r.list {
		if l.inHand || l.ending || l.talk != talk || r.occupied[l.conversation] != nil {
			continue
		}
		turn := l.hold
		if l.parked == r.doors || l.closed {
			if l.expires.IsZero() {
				continue
			}
			turn = l.expires // to be cleared away
		}
		if !now.Before(turn) {
			l.inHand, l.over = true, false
			r.occupied[l.conversation] = l
			return l, time.Time{}
		}
		if at.IsZero() || turn.Before(at) {
			at = turn
		}
	}
	return nil, at
}

// copyWindow is how far apart the copies of one message for several goals are sent.
const copyWindow = 5 * time.Second

// copies returns the letters for a goal, "" for any, those together that are one
// message sent to several goals: the same words of one sender within a moment.
// It is called with mu held.
func (r *ready) copies(goal string) (groups [][]*letter) {
	last := map[string]int{} // sender and fingerprint → the group
	for _, l := range r.list {
		if goal != "" && l.session != goal {
			continue
		}
		if l.goal == "" {
			groups = append(groups, []*letter{l})
			continue
		}
		same := string(l.from) + "/" + l.sum
		if at, ok := last[same]; ok && l.sent.Sub(groups[at][0].sent) <= copyWindow &&
			!slices.ContainsFunc(groups[at], func(m *letter) bool { return m.goal == l.goal }) {
			groups[at] = append(groups[at], l)
			continue
		}
		last[same] = len(groups)
		groups = append(groups, []*letter{l})
	}
	return groups
}

// beginDrain keeps what is ready from the doors until [ready.endDrain].
func (r *ready) beginDrain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains++
}

func (r *ready) endDrain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drains--
	r.wake()
}

// takeAll takes in hand what is ready for a goal, "" for any: at most n messages,
// each with its copies for other goals.
func (r *ready) takeAll(n int, goal string) (out [][]*letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, group := range r.copies(goal) {
		group = slices.DeleteFunc(group, func(l *letter) bool { return l.inHand || l.ending })
		if len(out) >= n || len(group) == 0 {
			continue
		}
		for _, l := range group {
			l.inHand = true
		}
		out = append(out, group)
	}
	return out
}

// busy reports whether a letter is being handed over that the bot does not have
// yet, and returns a channel that is closed at the next change.
func (r *ready) busy() (yes bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.list, func(l *letter) bool { return l.inHand && !l.ending && l.turn.IsZero() }), r.changed
}

// count is how many messages wait for a goal, "" for any.
func (r *ready) count(goal string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.copies(goal))
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
		if l.goal != "" && !l.inHand && !l.ending && count[l.goal] > most {
			count[l.goal]--
			l.inHand = true
			out = append(out, l)
		}
	}
	return out
}

// find returns the letter that the bot was given under an id, whoever has it in
// hand; nil: none.
func (r *ready) find(id string) *letter {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byName[id]
}

// asked reports whether an agent's question or task of that id waits for the bot, or
// for its answer.
func (r *ready) asked(from mailbox.AgentID, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.list, func(l *letter) bool { return l.asks && l.from == from && l.id == id })
}

// end reports whether it is the caller who may settle l: of several that hand it
// over or answer for the bot, the first is. Then [ready.remove] follows, or
// [ready.back].
func (r *ready) end(l *letter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.ending || r.byKey[l.key] != l {
		return false
	}
	l.ending = true
	return true
}

// back takes back what end said: l could not be settled.
func (r *ready) back(l *letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.ending = false
	r.wake()
}

// release gives a letter back: it was not handed over.
func (r *ready) release(l *letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.inHand = false
	r.wake()
}

// park gives a letter back that no door is open for; it waits for the next one
// that opens, unless the task that it gave has ended.
func (r *ready) park(l *letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.inHand = false
	if !l.over {
		l.parked = r.doors
	}
	r.wake()
}

// unpark makes it the turn of all that waited for a door.
func (r *ready) unpark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doors++
	r.wake()
}

// postpone gives a letter back that could not be handed over, and leaves it alone
// for a pause that doubles with each failure.
func (r *ready) postpone(l *letter, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.inHand = false
	pause := wait.Doubled(retryFirst, retryMax, l.fails)
	if l.fails++; l.fails >= patientTries {
		pause *= 2
	}
	l.hold = now.Add(min(pause, retryMax))
	r.wake()
}

// begin notes that l is handed over; cancel ends that.
func (r *ready) begin(l *letter, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.cancel = cancel
}

// written notes that the bot was given l.
func (r *ready) written(l *letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.turn.IsZero() {
		l.turn = time.Now()
		r.wake()
	}
}

// free lets the next letter of l's conversation follow.
func (r *ready) free(l *letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.occupied[l.conversation] == l {
		delete(r.occupied, l.conversation)
		r.wake()
	}
}

// failing is how long ago the bot was given l first.
func (r *ready) failing(l *letter) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.turn.IsZero() {
		return 0
	}
	return time.Since(l.turn)
}

// close gives a letter back that is not handed over again. It reports false where the
// task that it gave has ended, and it is to be cleared away.
func (r *ready) close(l *letter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.inHand, l.closed = false, !l.over
	r.wake()
	return l.closed
}

// reopen makes it the turn of an agent's message of that id that waits, so that it is
// cleared away: the task that it gave has ended.
func (r *ready) reopen(from mailbox.AgentID, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.list {
		if l.from == from && l.id == id {
			l.closed, l.parked, l.over = false, 0, true
		}
	}
	r.wake()
}

// settled reports whether l was settled while it was handed over.
func (r *ready) settled(l *letter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return l.ending || r.byKey[l.key] != l
}

// settling ends the handing over of l, which was settled otherwise.
func (r *ready) settling(l *letter, how *Settled) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.cancel != nil {
		l.cancel(how)
	}
}

// remove forgets a letter, and returns the keys that it lies under and no other
// message has taken.
func (r *ready) remove(l *letter) (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey[l.key] == l {
		delete(r.byKey, l.key)
		delete(r.byName, l.name)
		r.list = slices.DeleteFunc(r.list, func(m *letter) bool { return m == l })
	}
	for _, key := range l.keys {
		if r.byItem[key] == l {
			delete(r.byItem, key)
			keys = append(keys, key)
		}
	}
	return keys
}

// keysOf returns the keys that a letter lies under by now.
func (r *ready) keysOf(l *letter) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(l.keys)
}

// show returns at most n letters, and how many there are.
func (r *ready) show(n int) ([]*letter, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list[:min(n, len(r.list))]), len(r.list)
}
