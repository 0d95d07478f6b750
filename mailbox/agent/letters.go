package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/book"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// Bounds.
const (
	maxUnacked  = 10_000   // letters that wait; the next is refused. Answers and steps of tasks have twice that
	maxBytes    = 64 << 20 // of these; likewise
	maxUnstored = 1_000    // of these, for one receiver, that the store has not taken; but steps of tasks
	maxWatched  = 1_000    // letters without an acknowledgement that are watched in the receiver's inbox
	maxRetries  = 10       // most retries that a message may ask for in its metadata

	// Bounds of the dead letters that are kept; beyond them the oldest is removed, with a warning.
	maxDead      = 1000
	maxDeadBytes = 64 << 20
	// maxShown is the most bytes of a dead letter's text in a list.
	maxShown = 200
)

// phase is how far a letter has come.
type phase string

const (
	posted   phase = "posted"   // it is to be put into the store
	stored   phase = "stored"   // it waits there for its acknowledgement, or until it is taken
	doubtful phase = "doubtful" // the store may have lost it, and is asked at once
	pausing  phase = "pausing"  // it was not acknowledged, and is sent again after a pause
	refused  phase = "refused"  // it was taken and refused for now, and is sent again after a pause
	dead     phase = "dead"     // it is a dead letter
)

// letter is a message that this agent sent, until it is acknowledged or taken. What was posted reaches the
// receiver's inbox, also when the store is away or the process is killed at any point, or it becomes a dead letter. It
// may come twice, with the same id.
type letter struct {
	letterState
	name     string // its key in the book: names sort by time
	receiver *receiver
	mail     *mailbox.Sealed // until the store has it; nil: only the book has it
	hold     time.Time       // nothing is done for it until then; zero: no matter
	gone     bool            // it is in the table no more
}

// letterState is what the book knows of a letter besides its envelope as it was encoded.
type letterState struct {
	Head       mailbox.Envelope `json:"head"` // with the beginning of the text, and neither data nor files
	Size       int              `json:"size"`
	Phase      phase            `json:"phase"`
	Due        time.Time        `json:"due"`                  // when something is to be done for it in its phase
	Key        string           `json:"key,omitempty"`        // what the store has it under; "": it was not there yet
	RetryCount int              `json:"retryCount,omitempty"` // how often it was sent again

	// Of a dead one.
	Code   mailbox.Code `json:"code,omitempty"`
	Reason string       `json:"reason,omitempty"`
	DeadAt time.Time    `json:"dead_at,omitzero"`
}

// DeadLetter is a message that could not be delivered.
type DeadLetter struct {
	ID       string       `json:"id"` // the envelope's
	Code     mailbox.Code `json:"code"`
	Reason   string       `json:"reason"`
	Attempts int          `json:"attempts"` // how often it was sent
	DeadAt   time.Time    `json:"dead_at"`
	// Envelope has the beginning of the text, and neither data nor files.
	Envelope mailbox.Envelope `json:"envelope"`
}

// receiver is an agent to which there are letters.
type receiver struct {
	id      mailbox.AgentID
	letters map[*letter]struct{}
	last    string    // the key of what the store was given last
	looked  time.Time // zero: never
	online  bool      // then

	fails int // how often, in a row, the store failed for it; it is left alone until
	hold  time.Time
}

// restoreLetter takes in a record of the book.
func (a *Agent) restoreLetter(name string, value json.RawMessage) error {
	n := &letter{name: name}
	err := json.Unmarshal(value, &n.letterState)
	if err != nil {
		return err
	}
	if at, err := strconv.ParseInt(name, 10, 64); err == nil {
		a.named = max(a.named, at) // the clock may have been set back
	}
	if n.Due = sooner(n.Due, time.Now().Add(maxPause)); n.Phase == stored { // likewise
		n.Due = time.Now().Add(a.opts.AckTimeout)
	}
	a.insert(n)
	return nil
}

// all yields the letters.
func (a *Agent) all() iter.Seq[*letter] {
	return func(yield func(*letter) bool) {
		for _, r := range a.receivers {
			for n := range r.letters {
				if !yield(n) {
					return
				}
			}
		}
	}
}

func (a *Agent) insert(n *letter) {
	r := a.receivers[n.Head.To]
	if r == nil {
		r = &receiver{id: n.Head.To, letters: map[*letter]struct{}{}}
		a.receivers[r.id] = r
	}
	r.letters[n] = struct{}{}
	n.receiver = r
	if n.Key != "" {
		r.last = n.Key
	}
}

func (n *letter) record() book.Record {
	return book.Record{Kind: kindLetter, Key: n.name, Value: n.letterState}
}

// ack reports whether an acknowledgement of n is awaited.
func (n *letter) ack() bool { return n.Head.Metadata.RequiresAck }

// watched reports whether it is awaited instead that n is taken. For what is neither, only the store has to take it.
func (n *letter) watched() bool { return !n.ack() && !n.Head.Type.Control() }

// mayRetry reports whether n may be sent again.
func (a *Agent) mayRetry(n *letter) bool {
	if most := n.Head.Metadata.MaxRetries; most != nil {
		return n.RetryCount < *most
	}
	return n.RetryCount < a.opts.MaxRetries
}

// post takes m to be sent: with nil it is in the book, together with the records, and behind what
// was sent to the same agent before. Else neither is; a [*mailbox.Error] with AGENT_BUSY says that too much
// waits, and [mailbox.ErrFull] that too much waits for this receiver.
func (a *Agent) post(m mailbox.Sealed, with ...book.Record) error {
	if err := a.room(m); err != nil {
		return err
	}
	now := time.Now()
	a.named = max(a.named+1, now.UnixNano())
	n := &letter{name: fmt.Sprintf("%019d", a.named), mail: &m,
		letterState: letterState{Head: m.Envelope, Size: len(m.Raw), Phase: posted, Due: now}}
	n.Head.Content.Parts = []mailbox.Part{mailbox.TextPart(runes.Cut(m.Text(), maxShown))}
	mail := book.Record{Kind: kindMail, Key: n.name, Value: json.RawMessage(m.Raw)}
	if err := a.commit(append([]book.Record{mail, n.record()}, with...)...); err != nil {
		return err
	}
	a.insert(n)
	wait.Wake(a.wake)
	a.observe(EventSent, m.Envelope, "")
	return nil
}

// room reports why m cannot be sent now.
func (a *Agent) room(m mailbox.Sealed) error {
	step, room, letters, size, unstored := m.Type.TaskStep(), 1, 0, len(m.Raw), 0
	if step || m.Type.Control() {
		room = 2
	}
	for n := range a.all() {
		if n.Phase != dead {
			letters++
			size += n.Size
		}
		if n.Phase == posted && n.Head.To == m.To {
			unstored++
		}
	}
	switch {
	case letters >= room*maxUnacked, size > room*maxBytes:
		return mailbox.Refused(mailbox.AgentBusy, "",
			"%d messages wait for an acknowledgement, and no more fit: try again later", letters)
	case unstored >= maxUnstored && !step:
		return fmt.Errorf("%w, and %d messages wait for room in it", mailbox.ErrFull, unstored)
	}
	return nil
}

// unacknowledged is how many letters wait: for an acknowledgement, or for the store.
func (a *Agent) unacknowledged() (n int) {
	for l := range a.all() {
		if l.Phase != dead && (l.Key == "" || !l.watched()) {
			n++
		}
	}
	return n
}

// sentTo returns the letters with an id to an agent.
func (a *Agent) sentTo(id string, to mailbox.AgentID) (list []*letter) {
	if r := a.receivers[to]; r != nil {
		for n := range r.letters {
			if n.Head.ID == id {
				list = append(list, n)
			}
		}
	}
	return list
}

// acked notes that an agent acknowledged a message, and reports whether it was
// sent to that agent and waited for it, or was a dead letter; else nothing happens.
func (a *Agent) acked(id string, from mailbox.AgentID) (known bool) {
	for _, n := range a.sentTo(id, from) {
		a.remove(n)
		known = true
	}
	return known
}

// nacked notes that an agent refused a message, and reports whether it was sent
// to that agent and waited for an answer; else nothing happens. It is sent again
// after a pause where code is retriable, and retries are left; else it becomes a
// dead letter at once.
func (a *Agent) nacked(id string, from mailbox.AgentID, code mailbox.Code, message string) (known bool) {
	for _, n := range a.sentTo(id, from) {
		switch {
		case n.Phase == dead, !n.ack() && !n.watched():
			continue
		case n.watched() || !code.Retriable() || !a.mayRetry(n):
			a.die(n, code, fmt.Sprintf("%s refused it: %s", from, message))
		default:
			a.pause(n, refused)
		}
		known = true
	}
	return known
}

// deletion takes n out of the book.
func (n *letter) deletion() []book.Record {
	return []book.Record{{Kind: kindMail, Key: n.name}, {Kind: kindLetter, Key: n.name}}
}

// remove takes n out, which is acknowledged, taken or too old. If the book cannot, that is noticed again.
func (a *Agent) remove(n *letter) {
	if err := a.commit(n.deletion()...); err != nil {
		a.holdBack(n, err)
		return
	}
	a.forget(n)
}

func (a *Agent) forget(n *letter) {
	n.gone = true
	if delete(n.receiver.letters, n); len(n.receiver.letters) == 0 {
		delete(a.receivers, n.Head.To)
	}
}

// holdBack leaves n alone for a while: the book cannot take what became of it.
func (a *Agent) holdBack(n *letter, err error) {
	a.log.Warn("what became of a message cannot be written down; it is looked at again", "to", n.Head.To,
		"message_id", n.Head.ID, "err", err)
	n.hold = time.Now().Add(lookEvery)
	wait.Wake(a.wake)
}

// save writes n down as it is now.
func (a *Agent) save(n *letter) {
	if err := a.commit(n.record()); err != nil {
		a.log.Warn("write down a message that waits", "to", n.Head.To, "message_id", n.Head.ID, "err", err)
	}
}

// pause lets n be sent again after a while.
func (a *Agent) pause(n *letter, p phase) {
	if n.Phase != pausing && n.Phase != refused {
		n.Due = time.Now().Add(backoff(n.RetryCount, a.opts.RetryBase, maxPause, a.random()))
	}
	n.Phase = p
	a.save(n)
	wait.Wake(a.wake)
}

// attempts is how often n was sent.
func (n *letter) attempts() int {
	if n.Key == "" {
		return 0
	}
	return n.RetryCount + 1
}

// load returns n's envelope, signed with the current secret. One that is missing or broken is dropped.
func (a *Agent) load(n *letter) (m mailbox.Sealed, err error) {
	if n.mail != nil {
		return *n.mail, nil
	}
	raw, err := a.book.Load(kindMail, n.name)
	if err == nil {
		m.Envelope, err = mailbox.Decode(raw)
	}
	if err == nil {
		m.Metadata.RetryCount = n.RetryCount
		m.Raw, err = a.opts.Signing.Encode(m.Envelope)
	}
	if _, broken := errors.AsType[*mailbox.Error](err); broken || errors.Is(err, book.ErrNotFound) {
		a.log.Error("a message that waits cannot be read and is not sent", "to", n.Head.To, "message_id", n.Head.ID,
			"err", err)
		a.remove(n)
	}
	return m, err
}

// die makes n a dead letter. In the same commit its task fails, or the bot gets a notice. If the book cannot
// take that, it is tried again.
func (a *Agent) die(n *letter, code mailbox.Code, reason string) {
	was := n.letterState
	n.Phase, n.Code, n.Reason, n.DeadAt = dead, code, reason, time.Now().Round(0).UTC()
	if err := a.noteDead(n); err != nil {
		n.letterState = was
		a.holdBack(n, err)
		return
	}
	n.mail = nil
	a.observe(EventDead, n.Head, string(code))
	size := 0
	for i, n := range a.deadLetters() {
		if size += n.Size; i >= maxDead || size > maxDeadBytes {
			a.log.Warn("too many dead letters; the oldest is removed", "message_id", n.Head.ID, "kept", maxDead)
			a.remove(n)
		}
	}
}

// noteDead commits what follows from the death of n: the bot gets notice of a task that could not be delivered, and
// of a message that expired.
func (a *Agent) noteDead(n *letter) error {
	e, expires := n.Head, n.Head.Expires()
	expired := !expires.IsZero() && !n.DeadAt.Before(expires)
	if t, ok := a.tasks.get(Given, e.To, taskID(e)); ok && e.Type.GivesTask() && t.State == mailbox.Pending {
		return a.giveUp(t, fmt.Sprintf("%s: %s", n.Code, n.Reason), n.record())
	}
	if !e.Type.GivesTask() && !e.Type.Control() && (expired || n.watched()) {
		return a.notify(expiryNotice(n), n.record())
	}
	return a.commit(n.record())
}

// deadLetters returns the dead letters, the newest first.
func (a *Agent) deadLetters() (list []*letter) {
	for n := range a.all() {
		if n.Phase == dead {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(x, y *letter) int {
		return cmp.Or(y.DeadAt.Compare(x.DeadAt), strings.Compare(y.name, x.name))
	})
	return list
}

// DeadLetters returns what could not be delivered, the newest first.
func (a *Agent) DeadLetters() (all []DeadLetter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.deadLetters() {
		all = append(all, DeadLetter{n.Head.ID, n.Code, n.Reason, n.attempts(), n.DeadAt, n.Head})
	}
	return all
}

// Replay sends a dead letter under the same id, as if for the first time, instead of keeping it. A task of it stays
// failed until its result comes. An id that no dead letter has is a [*mailbox.Error] about the field "id".
func (a *Agent) Replay(_ context.Context, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.deadLetters()
	i := slices.IndexFunc(list, func(n *letter) bool { return n.Head.ID == id })
	if i < 0 {
		return mailbox.Invalid("id", "there is no dead letter %.200q", id)
	}
	m, err := a.load(list[i])
	if err != nil {
		return fmt.Errorf("read dead letter: %w", err)
	}
	m.Timestamp, m.Metadata.RetryCount = time.Now().UTC().Truncate(time.Millisecond), 0
	if m, err = a.opts.Signing.Seal(m.Envelope); err != nil {
		return err
	}
	if err := a.post(m, list[i].deletion()...); err != nil {
		return err
	}
	a.forget(list[i])
	return nil
}
