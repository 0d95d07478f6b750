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

// letter is a message that is ready for the bot. Its text stays in the store: an inbox may
// hold [mailbox.MaxInbox] of them, and what left it meanwhile is not handed over.
type letter struct {
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

	conversation string            // the next letter of it waits until this one is written, or answered
	keys         []string          // the store's for it; its sender may have sent it again
	fresh        *mailbox.Envelope // its text, of the letter that came last: see [ready.takeFresh]
	progress
}

// progress is how far a letter's delivery has come.
type progress struct {
	inHand bool              // somebody is handing it over
	tried  int               // the number of openings of channels when that began
	given  time.Time         // the bot was given it first; zero: never
	giving *mailbox.Envelope // what is being handed over; cancel ends that
	cancel context.CancelCauseFunc
	state  letterState
	over   bool      // the task that it gave has ended since it was taken in hand
	ending bool      // somebody settles it, or has
	fails  int       // how often the bot could not take it, in a row
	hold   time.Time // nothing is done for it until then
}

// letterState is whether a letter can be handed over.
type letterState int

const (
	deliverable letterState = iota
	noChannel               // no delivery channel was open for it
	unanswered              // the bot did not answer: it is not handed over again
)

func (l *letter) order(m *letter) int {
	return cmp.Or(cmp.Compare(l.priority, m.priority), l.sent.Compare(m.sent), cmp.Compare(l.arrived, m.arrived))
}

// free reports whether nobody is handing l over or settling it.
func (l *letter) free() bool { return !l.inHand && !l.ending }

// ready is what waits for the bot, in the order of its delivery.
type ready struct {
	mu       sync.Mutex
	list     []*letter // guarded by mu, as the rest is, and the letters
	byKey    map[string]*letter
	byName   map[string]*letter
	byItem   map[string]*letter // by the store's key: the last message under it
	arrived  int
	occupied map[string]*letter // by conversation, what its other letters wait for
	newest   *letter            // the only one with a fresh text; nil: none has
	drains   int                // drains that are taking what is ready: nothing is handed over meanwhile
	openings int                // how often a delivery channel has opened
	changed  chan struct{}      // closed at the next change
}

func newReady() *ready {
	return &ready{byKey: map[string]*letter{}, byName: map[string]*letter{}, byItem: map[string]*letter{},
		occupied: map[string]*letter{}, changed: make(chan struct{})}
}

// update makes a change, and wakes those who wait for one.
func (r *ready) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// look returns what f does while nothing changes.
func look[T any](r *ready, f func() T) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return f()
}

// Changed is closed at the next change.
func (r *ready) Changed() <-chan struct{} {
	return look(r, func() <-chan struct{} { return r.changed })
}

// any reports whether there is a letter that which picks.
func (r *ready) any(which func(*letter) bool) bool {
	return look(r, func() bool { return slices.ContainsFunc(r.list, which) })
}

// knows reports whether a message of that key waits.
func (r *ready) knows(key string) bool {
	return look(r, func() bool { return r.byKey[key] != nil })
}

// find returns the letter that the bot was given under an id, whoever has it in
// hand; nil: there is no such letter.
func (r *ready) find(id string) *letter {
	return look(r, func() *letter { return r.byName[id] })
}

// now returns a letter as it is now.
func (r *ready) now(l *letter) letter {
	return look(r, func() letter { now := *l; now.keys = slices.Clone(l.keys); return now })
}

// show returns at most n letters, and how many there are.
func (r *ready) show(n int) ([]*letter, int) {
	all := look(r, func() []*letter { return slices.Clone(r.list) })
	return all[:min(n, len(all))], len(all)
}

// count is how many messages wait for a goal, "" for any.
func (r *ready) count(goal string) int {
	return look(r, func() int { return len(r.copies(goal)) })
}

// add takes a letter in, and reports false where it is known: then its further keys
// are noted. unique is the name that it gets where another one has its name.
func (r *ready) add(l letter, unique string) (added bool) {
	r.update(func() {
		known := r.byKey[l.key]
		if added = known == nil; added {
			if r.byName[l.name] != nil {
				l.name = unique
			}
			r.arrived++
			l.arrived = cmp.Or(l.arrived, r.arrived)
			known = &l
			i, _ := slices.BinarySearchFunc(r.list, known, (*letter).order)
			r.list = slices.Insert(r.list, i, known)
			r.byKey[l.key], r.byName[l.name] = known, known
			r.forgetFresh()
			r.newest = known
		}
		for _, key := range l.keys {
			if !slices.Contains(known.keys, key) {
				known.keys = append(known.keys, key)
			}
			r.byItem[key] = known
		}
	})
	return added
}

// maxFresh is how long a letter's text need not be read again.
const maxFresh = time.Second

// takeFresh returns the text of the letter that came last, once, where it was its turn at once: what
// the store showed a moment ago is not read again. nil: read it, since it may have left the inbox.
func (r *ready) takeFresh(l *letter) *mailbox.Envelope {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := l.fresh
	l.fresh = nil
	if time.Since(l.came) > maxFresh {
		return nil
	}
	return e
}

// forgetFresh is called with mu held.
func (r *ready) forgetFresh() {
	if r.newest != nil && !r.newest.inHand {
		r.newest.fresh = nil
	}
	r.newest = nil
}

// next takes in hand the letter whose turn it is, of those that belong in a
// conversation or of the others. Without one, it returns when there may be one, if
// nothing else happens; zero: never.
func (r *ready) next(now time.Time, inChat bool) (l *letter, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drains > 0 {
		return nil, time.Time{}
	}
	if r.newest != nil && r.newest.inChat == inChat {
		defer r.forgetFresh() // that of another one than is taken now
	}
	for _, l := range r.list {
		turn := l.hold
		if l.state != deliverable {
			turn = l.expires // to be cleared away
		}
		switch {
		case !l.free() || l.inChat != inChat || r.occupied[l.conversation] != nil:
		case l.state != deliverable && l.expires.IsZero():
		case !now.Before(turn):
			l.inHand, l.over, l.tried = true, false, r.openings
			r.occupied[l.conversation] = l
			return l, time.Time{}
		case at.IsZero() || turn.Before(at):
			at = turn
		}
	}
	return nil, at
}

// copyWindow is how far apart the copies of one message for several goals are sent.
const copyWindow = 5 * time.Second

// copies returns the letters for a goal, "" for any, those together that are one
// message sent to several goals: the same content of one sender within copyWindow.
// It is called with mu held.
func (r *ready) copies(goal string) (groups [][]*letter) {
	last := map[string]int{} // sender and fingerprint → the group
	for _, l := range r.list {
		if goal != "" && l.session != goal {
			continue
		}
		same := string(l.from) + "/" + l.sum
		at, ok := last[same]
		if l.goal != "" && ok && l.sent.Sub(groups[at][0].sent) <= copyWindow &&
			!slices.ContainsFunc(groups[at], func(m *letter) bool { return m.goal == l.goal }) {
			groups[at] = append(groups[at], l)
			continue
		}
		if l.goal != "" {
			last[same] = len(groups)
		}
		groups = append(groups, []*letter{l})
	}
	return groups
}

// takeAll takes in hand what is ready for a goal, "" for any: at most n messages,
// each with its copies for other goals.
func (r *ready) takeAll(n int, goal string) (out [][]*letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, group := range r.copies(goal) {
		group = slices.DeleteFunc(group, func(l *letter) bool { return !l.free() })
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

// overflow takes in hand the oldest peer messages of each goal beyond most.
func (r *ready) overflow(most int) (out []*letter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, l := range r.list {
		count[l.goal]++
	}
	oldest := func(l, m *letter) int { return cmp.Compare(l.arrived, m.arrived) }
	for _, l := range slices.SortedFunc(slices.Values(r.list), oldest) {
		if l.goal != "" && l.free() && count[l.goal] > most {
			count[l.goal]--
			l.inHand = true
			out = append(out, l)
		}
	}
	return out
}

// end reports whether it is the caller who may settle l: of several that hand it
// over or answer for the bot, the first is. Then [ready.remove] follows, or
// [ready.back].
func (r *ready) end(l *letter) bool {
	return look(r, func() bool { was := l.ending; l.ending = true; return !was })
}

// back undoes end: l could not be settled.
func (r *ready) back(l *letter) { r.update(func() { l.ending = false }) }

// letGo ends an attempt to hand l over.
func (r *ready) letGo(l *letter) { r.update(func() { l.inHand, l.giving, l.fresh = false, nil, nil }) }

// giveBack ends an attempt to hand l over, which left it in a state. It reports false where
// the task that l gave has ended: then it is cleared away at its next turn.
func (r *ready) giveBack(l *letter, state letterState) (kept bool) {
	r.update(func() {
		l.inHand, l.giving, kept = false, nil, !l.over
		if kept && (state != noChannel || l.tried == r.openings) { // else a channel has opened since
			l.state = state
		}
	})
	return kept
}

// opened makes it the turn of all that waited for a delivery channel.
func (r *ready) opened() {
	r.update(func() {
		r.openings++
		for _, l := range r.list {
			if l.state == noChannel {
				l.state = deliverable
			}
		}
	})
}

// postpone gives back a letter that could not be handed over, and leaves it alone
// for a pause that doubles with each failure.
func (r *ready) postpone(l *letter, now time.Time) {
	r.update(func() {
		l.inHand, l.giving = false, nil
		pause := wait.Doubled(retryFirst, retryMax, l.fails)
		if l.fails++; l.fails >= patientTries {
			pause *= 2
		}
		l.hold = now.Add(min(pause, retryMax))
	})
}

// written notes that the bot was given l.
func (r *ready) written(l *letter) { r.update(func() { l.given = cmp.Or(l.given, time.Now()) }) }

// release lets the next letter of l's conversation follow.
func (r *ready) release(l *letter) {
	r.update(func() {
		if r.occupied[l.conversation] == l {
			delete(r.occupied, l.conversation)
		}
	})
}

// reopen makes it the turn of an agent's message of that id that waits, so that it is
// cleared away: the task that it gave has ended.
func (r *ready) reopen(from mailbox.AgentID, id string) {
	r.update(func() {
		for _, l := range r.list {
			if l.from == from && l.id == id {
				l.state, l.over = deliverable, true
			}
		}
	})
}

// remove forgets a letter, and returns its keys that no other message has taken.
func (r *ready) remove(l *letter) (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.ending = true
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
