package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"feishu-relay/book"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// Bounds.
const (
	maxUnacked  = 10_000           // messages that wait; the next is refused. Answers and steps of tasks have twice that
	maxBytes    = 64 << 20         // of these; likewise
	maxUnstored = 1_000            // of these, for one receiver, that the store has not taken; but steps of tasks
	maxWatched  = 1_000            // messages without an acknowledgement that are watched in the receiver's inbox
	watchAfter  = 2 * time.Second  // when a message that is watched is looked at first
	lookEvery   = 5 * time.Second  // between two looks at a receiver for which mail waits
	maxRetries  = 10               // most retries that a message may ask for in its metadata
	maxPause    = time.Minute      // longest pause before a message is sent again
	storeLimit  = 10 * time.Second // for one call of the store
)

// outgoingOptions are those of an outgoing.
type outgoingOptions struct {
	Store  mailbox.Store
	Online func(context.Context, mailbox.AgentID) bool
	// Acknowledges reports whether an agent's mailbox acknowledges a message when its
	// bot has it: one in its inbox, other than a task or its step, is in progress.
	Acknowledges func(context.Context, mailbox.AgentID) bool
	Died         func(DeadLetter) // called by Run or Nacked once a dead letter is in the book
	Logger       *slog.Logger

	// Signing is of the envelopes in the book. What is not signed with its secret, since it is
	// older, becomes a dead letter instead of being sent.
	Signing mailbox.Signing

	AckTimeout time.Duration
	RetryBase  time.Duration // pause before the first retry, doubled for each further one
	MaxRetries int           // for messages whose metadata says nothing; 0: none is sent again
}

// outgoing is the table of what an agent sent: an entry stays until the message is acknowledged
// or taken, and becomes a dead letter when sending it again does not help (docs/protocol.md 6.8).
// Its methods are safe for concurrent use.
//
// What Post accepted reaches the receiver's inbox, also when the store is
// away or the process is killed at any point, or it becomes a dead letter. It
// may come twice, with the same id.
//
// An acknowledgement is awaited for AckTimeout since the message was sent and its receiver was
// seen online. Then the message is sent again after a pause ([backoff]), a few times. A message in
// the inbox of an agent whose mailbox acknowledges is in progress: it is not sent again, and waits until
// its life ends, since a bot may think for minutes. The receiver may also refuse a
// message and be asked again. A message's life in seconds (metadata.ttl) ends all that. A message
// without an acknowledgement is watched until the receiver has taken it. What the store has
// lost is sent again, as a retry.
type outgoing struct {
	opts   outgoingOptions
	state  *state
	random func() float64 // for backoff
	wake   chan struct{}  // has a value if there is something new, or next is earlier

	mu        sync.Mutex
	entries   map[string]*entry             // by name; guarded by mu, and so is each entry
	receivers map[mailbox.AgentID]*receiver // of all entries; guarded by mu, as the rest is
	bytes     int                           // of all entries
	watched   int                           // of all entries
	dead      []deadEntry                   // the oldest first
	named     int64                         // the time in the newest name, in nanoseconds
	fresh     []*entry                      // what came since Run looked
	next      time.Time                     // when something is due besides; zero: never
	newlyDead []DeadLetter                  // what unlock reports
}

// entry is a message that waits.
type entry struct {
	name     string // its key in the book: names sort by time
	receiver *receiver
	sentMail

	mail *mailbox.Sealed // until the store has it; nil: only the book has it

	due  time.Time // when an answer is late, if the receiver is online; of what is watched, the next look
	gone bool      // acknowledged, dead or refused meanwhile
	lost bool      // the store may have lost it: it is looked for at once
	hold time.Time // nothing is done for it until then; zero: no matter
}

// sentMail is what the book knows of a message besides its envelope.
type sentMail struct {
	ID       string          `json:"id"` // of the envelope; several messages may share one
	To       mailbox.AgentID `json:"to"`
	Ack      bool            `json:"ack,omitempty"`   // an acknowledgement is awaited
	Watch    bool            `json:"watch,omitempty"` // it is watched instead; with neither, only the store has to take it
	Expires  time.Time       `json:"expires,omitzero"`
	Life     time.Duration   `json:"life,omitempty"`
	Retries  int             `json:"retries,omitempty"`  // at most
	Recorded bool            `json:"recorded,omitempty"` // it is acknowledged before its receiver's bot has it
	Size     int             `json:"size"`

	Key        string    `json:"key,omitempty"`        // what the store has it under; "": it is not there yet
	RetryCount int       `json:"retryCount,omitempty"` // how often it was sent again
	Next       time.Time `json:"next,omitzero"`        // when it is sent again; zero: the acknowledgement is awaited
	Refused    bool      `json:"refused,omitempty"`    // the receiver took it, and refused it
}

// receiver is an agent that mail waits for.
type receiver struct {
	id       mailbox.AgentID
	entries  map[*entry]struct{}
	unstored int       // of these
	last     string    // the key of what the store was given last
	looked   time.Time // zero: never
	online   bool      // then
	since    time.Time // it is online

	fails int // how often, in a row, the store failed for it; it is left alone until
	hold  time.Time
}

// openOutgoing returns an empty table; [outgoing.restore] fills it.
func openOutgoing(s *state, opts outgoingOptions) *outgoing {
	return &outgoing{opts: opts, state: s, random: mathrand.Float64, wake: make(chan struct{}, 1),
		entries: map[string]*entry{}, receivers: map[mailbox.AgentID]*receiver{}, next: time.Now()}
}

// restore takes in a record of the book; it is called before anything else.
func (b *outgoing) restore(kind, key string, value json.RawMessage) error {
	if at, err := strconv.ParseInt(key, 10, 64); err == nil {
		b.named = max(b.named, at) // the clock may have been set back
	}
	switch kind {
	case kindSent:
		n := &entry{name: key, due: time.Now().Add(b.opts.AckTimeout)}
		if err := json.Unmarshal(value, &n.sentMail); err != nil {
			return err
		}
		if last := time.Now().Add(maxPause); n.Next.After(last) {
			n.Next = last // the clock was set back
		}
		b.insert(n)
	case kindDead:
		var d deadRecord
		if err := json.Unmarshal(value, &d); err != nil {
			return err
		}
		b.dead = append(b.dead, deadEntry{key, d.DeadLetter})
	}
	return nil
}

// Post takes m to be sent: with nil it is in the book, together with the records, and behind what
// was sent to the same agent before. Else neither is; a [*mailbox.Error] with AGENT_BUSY says that too much
// waits, and [mailbox.ErrFull] that too much waits for this receiver.
func (b *outgoing) Post(m mailbox.Sealed, with ...book.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	step, room := m.Type.TaskStep(), 1+count(m.Type.TaskStep() || m.Type.Control())
	r := b.receivers[m.To]
	switch {
	case len(b.entries) >= room*maxUnacked, b.bytes+len(m.Raw) > room*maxBytes:
		return mailbox.Refused(mailbox.AgentBusy, "",
			"%d messages wait for an acknowledgement, and no more fit: try again later", len(b.entries))
	case r != nil && r.unstored >= maxUnstored && !step:
		return fmt.Errorf("%w, and %d messages wait for room in it", mailbox.ErrFull, r.unstored)
	}
	b.named = max(b.named+1, time.Now().UnixNano())
	n := &entry{name: fmt.Sprintf("%019d", b.named), sentMail: sentMail{ID: m.ID, To: m.To,
		Ack: m.Metadata.RequiresAck, Watch: !m.Metadata.RequiresAck && !m.Type.Control(), Expires: m.Expires(),
		Retries: b.opts.MaxRetries, Recorded: m.Type.AboutTask(), Size: len(m.Raw)}}
	if !n.Expires.IsZero() {
		n.Life = n.Expires.Sub(m.Timestamp)
	}
	if m.Metadata.MaxRetries != nil {
		n.Retries = *m.Metadata.MaxRetries
	}
	err := b.state.commit(append([]book.Record{{Kind: kindMail, Key: n.name, Value: json.RawMessage(m.Raw)},
		{Kind: kindSent, Key: n.name, Value: n.sentMail}}, with...)...)
	if err != nil {
		return err
	}
	n.mail = &m
	b.insert(n)
	b.fresh = append(b.fresh, n)
	wait.Wake(b.wake)
	return nil
}

// unlock frees mu, and calls the option Died for the messages that became dead letters.
func (b *outgoing) unlock() {
	died := b.newlyDead
	b.newlyDead = nil
	b.mu.Unlock()
	for _, d := range died {
		b.opts.Died(d)
	}
}

// Acked notes that an agent acknowledged a message, and reports whether it was
// sent to that agent and waited for it; else nothing happens. A dead letter
// that is acknowledged late is removed.
func (b *outgoing) Acked(id string, from mailbox.AgentID) (known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.sentTo(id, from) {
		b.drop(n)
		known = true
	}
	return b.removeDead(id, from) || known
}

// Nacked notes that an agent refused a message, and reports whether it was sent
// to that agent and waited for an answer; else nothing happens. It is sent again
// after a pause where code is retriable, and retries are left; else it becomes a
// dead letter at once.
func (b *outgoing) Nacked(id string, from mailbox.AgentID, code mailbox.Code, message string) (known bool) {
	b.mu.Lock()
	defer b.unlock()
	for _, n := range b.sentTo(id, from) {
		switch {
		case !n.Ack && !n.Watch:
			continue
		case n.Watch || !code.Retriable() || n.RetryCount >= n.Retries:
			b.makeDead(n, code, fmt.Sprintf("%s refused it: %s", from, message))
		default:
			n.Refused = true
			b.pause(n)
		}
		known = true
	}
	return known
}

// Pending returns how many messages wait: for an acknowledgement, or for the store.
func (b *outgoing) Pending() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries) - b.watched
}

// backoff is the pause before the retry after n retries: base·2^n, but at most longest, and up
// to a quarter more, at random (from 0 to 1), so that many senders do not come back
// together. It is never over 60 s.
func backoff(n int, base, longest time.Duration, random float64) time.Duration {
	pause := wait.Doubled(max(base, 0), longest, n)
	return min(pause+time.Duration(float64(pause)/4*random), maxPause)
}

// insert takes n among the entries. b.mu is held, here and below.
func (b *outgoing) insert(n *entry) {
	r := b.receivers[n.To]
	if r == nil {
		r = &receiver{id: n.To, entries: map[*entry]struct{}{}}
		b.receivers[n.To] = r
	}
	r.entries[n] = struct{}{}
	n.receiver = r
	b.entries[n.name] = n
	b.bytes += n.Size
	b.watched += count(n.Watch && n.Key != "")
	if r.unstored += count(n.Key == ""); n.Key != "" {
		r.last = n.Key
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// remove takes n out of the entries and of the book, into which more goes. With an error it stays.
func (b *outgoing) remove(n *entry, more ...book.Record) error {
	if n.gone {
		return nil
	}
	more = append(more, book.Record{Kind: kindMail, Key: n.name}, book.Record{Kind: kindSent, Key: n.name})
	err := b.state.commit(more...)
	if err != nil {
		return err
	}
	n.gone = true
	delete(b.entries, n.name)
	if delete(n.receiver.entries, n); len(n.receiver.entries) == 0 {
		delete(b.receivers, n.To)
	}
	b.bytes -= n.Size
	b.watched -= count(n.Watch && n.Key != "")
	n.receiver.unstored -= count(n.Key == "")
	return nil
}

// drop removes n, which is acknowledged, taken or refused. If the book cannot, that is noticed again.
func (b *outgoing) drop(n *entry) {
	if err := b.remove(n); err != nil {
		b.opts.Logger.Warn("a message that was delivered is looked at again", "to", n.To, "message_id", n.ID, "err", err)
		n.hold = time.Now().Add(lookEvery)
		b.plan(n.hold)
	}
}

// save writes n down as it is now.
func (b *outgoing) save(n *entry) {
	if err := b.state.commit(book.Record{Kind: kindSent, Key: n.name, Value: n.sentMail}); err != nil {
		b.opts.Logger.Warn("write down a message that waits", "to", n.To, "message_id", n.ID, "err", err)
	}
}

// plan has Run look at all that waits at a time; zero: never.
func (b *outgoing) plan(at time.Time) {
	if !at.IsZero() && (b.next.IsZero() || at.Before(b.next)) {
		b.next = at
		wait.Wake(b.wake)
	}
}

// load returns n's envelope. One that is missing or broken is dropped; with errUnsigned, it only
// cannot be sent.
func (b *outgoing) load(n *entry) (m mailbox.Sealed, err error) {
	if n.mail != nil {
		return *n.mail, nil
	}
	var raw json.RawMessage
	if err = b.state.load(kindMail, n.name, &raw); err == nil {
		m.Raw = raw
		m.Envelope, err = b.decode(raw)
	}
	_, broken := errors.AsType[*mailbox.Error](err)
	if broken && !errors.Is(err, errUnsigned) || errors.Is(err, book.ErrNotFound) {
		b.opts.Logger.Error("a message that waits cannot be read and is not sent", "to", n.To, "message_id", n.ID, "err", err)
		b.drop(n)
	}
	return m, err
}

// errUnsigned says that an envelope in the book is not signed with the current secret.
var errUnsigned = &mailbox.Error{Code: mailbox.BadSignature, Field: "sig",
	Message: "what waited here is not signed with the current RELAY_SECRET, and is not sent"}

// decode reads an envelope in the book, also one with errUnsigned.
func (b *outgoing) decode(raw []byte) (mailbox.Envelope, error) {
	e, err := b.opts.Signing.Decode(raw)
	if no, ok := errors.AsType[*mailbox.Error](err); ok && no.Code == mailbox.BadSignature {
		if e, err = mailbox.Decode(raw); err == nil {
			err = errUnsigned
		}
	}
	return e, err
}

// sentTo returns the entries with an id to an agent.
func (b *outgoing) sentTo(id string, to mailbox.AgentID) (list []*entry) {
	if r := b.receivers[to]; r != nil {
		for n := range r.entries {
			if n.ID == id {
				list = append(list, n)
			}
		}
	}
	return list
}

// stored notes that the store has n under key.
func (b *outgoing) stored(n *entry, key string) {
	r, first := n.receiver, n.Key == ""
	r.last, r.fails, r.hold = key, 0, time.Time{}
	if !n.Ack && (!n.Watch || first && b.watched >= maxWatched) {
		b.drop(n)
		return
	}
	after := b.opts.AckTimeout
	if first {
		r.unstored--
		if n.Watch {
			b.watched++
			after = watchAfter
		}
	}
	n.Key, n.mail, n.lost, n.due = key, nil, false, time.Now().Add(after)
	b.save(n)
}

// failed notes that the store could not do something for a receiver.
func (b *outgoing) failed(r *receiver, err error) {
	if r.fails == 0 && !errors.Is(err, context.Canceled) {
		b.opts.Logger.Warn("the mailbox store fails; messages are kept and tried again", "err", err)
	}
	longest := awayMax
	if errors.Is(err, mailbox.ErrFull) {
		longest = maxPause
	}
	r.hold = time.Now().Add(backoff(r.fails, b.opts.RetryBase, longest, b.random()))
	r.fails++
}

// pause lets n be sent again after a while.
func (b *outgoing) pause(n *entry) {
	if n.Next.IsZero() {
		n.Next = time.Now().Add(backoff(n.RetryCount, b.opts.RetryBase, maxPause, b.random()))
	}
	b.save(n)
	b.plan(b.at(n))
}

// at returns when something is to be done for n; zero: not before something else happens.
func (b *outgoing) at(n *entry) (at time.Time) {
	r := n.receiver
	switch {
	case n.gone:
		return time.Time{}
	case !n.hold.IsZero():
		return n.hold
	case n.Key == "" || n.lost:
		at = later(time.Unix(0, 0), r.hold) // at once
	case n.Watch:
		at = later(n.due, r.hold)
	case !r.online:
	case !n.Next.IsZero():
		at = later(n.Next, r.hold)
	default:
		at = later(n.due, later(r.since.Add(b.opts.AckTimeout), r.hold))
	}
	return sooner(at, n.Expires)
}

func later(x, y time.Time) time.Time { return slices.MaxFunc([]time.Time{x, y}, time.Time.Compare) }

// sooner is the earlier of two times, of which the zero one is never.
func sooner(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}

// lookAt returns when it is asked whether r is online and whether the store still has its newest
// mail: at once the first time; zero: no mail of r waits there.
func (r *receiver) lookAt() time.Time {
	if r.unstored == len(r.entries) {
		return time.Time{}
	}
	return r.looked.Add(lookEvery)
}

// Run sends what is due, until ctx is done. It is called once at a time.
func (b *outgoing) Run(ctx context.Context) {
	for {
		b.mu.Lock()
		due, next := b.fresh, b.next
		b.fresh = nil
		b.mu.Unlock()
		if !next.IsZero() && !time.Now().Before(next) {
			due = b.due(ctx)
		} else if len(due) == 0 && wait.Change(ctx, next, b.wake) != nil {
			return
		}
		for _, n := range due {
			b.mu.Lock()
			b.decide(ctx, n)
			b.plan(b.at(n))
			b.plan(n.receiver.lookAt())
			b.unlock()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// outside calls f, with a bounded context, while mu, which the caller holds, is free.
func outside[T any](ctx context.Context, b *outgoing, f func(context.Context) (T, error)) (T, error) {
	b.unlock()
	defer b.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	return f(ctx)
}

// due looks at the receivers whose turn it is, and returns the entries for which something is to
// be done, the oldest first.
func (b *outgoing) due(ctx context.Context) (due []*entry) {
	b.mu.Lock()
	defer b.unlock()
	b.next = time.Time{}
	for _, r := range b.receivers {
		if at := r.lookAt(); !at.IsZero() && !time.Now().Before(at) {
			b.look(ctx, r)
		}
		b.plan(r.lookAt())
		now := time.Now()
		for n := range r.entries {
			if at := b.at(n); !at.IsZero() && !now.Before(at) {
				due = append(due, n)
			} else {
				b.plan(at)
			}
		}
	}
	slices.SortFunc(due, func(x, y *entry) int { return strings.Compare(x.name, y.name) })
	return due
}

func (b *outgoing) isDue(n *entry) bool {
	at := b.at(n)
	return !at.IsZero() && !time.Now().Before(at)
}

// look asks whether a receiver is online, and whether the store has what it was given last for it. If
// not, all that waits there may be lost, and is asked for at once.
func (b *outgoing) look(ctx context.Context, r *receiver) {
	last, place := r.last, mailbox.Waiting
	online, err := outside(ctx, b, func(ctx context.Context) (online bool, err error) {
		place, err = b.opts.Store.Where(ctx, r.id, last)
		return b.opts.Online(ctx, r.id), err
	})
	for n := range r.entries {
		n.lost = n.lost || n.Key != "" && err == nil && place == mailbox.Gone
	}
	b.noteLook(r, online)
}

func (b *outgoing) noteLook(r *receiver, online bool) {
	now := time.Now()
	if online && !r.online {
		r.since = now
	}
	r.online, r.looked = online, now
}

// decide does what is due for n. An earlier entry may have found that the store
// fails, and an acknowledgement may have come meanwhile: then nothing.
func (b *outgoing) decide(ctx context.Context, n *entry) {
	if !b.isDue(n) {
		return
	}
	now := time.Now()
	var err error
	place, inProgress := mailbox.Waiting, false
	if key := n.Key; key != "" && !n.Refused {
		place, err = outside(ctx, b, func(ctx context.Context) (mailbox.Place, error) {
			place, err := b.opts.Store.Where(ctx, n.To, key)
			inProgress = err == nil && place == mailbox.Waiting && !n.Recorded && b.opts.Acknowledges(ctx, n.To)
			return place, err
		})
	}
	expired, looked := !n.Expires.IsZero() && !now.Before(n.Expires), !n.hold.IsZero()
	switch {
	case !b.isDue(n):
	case err == nil && place == mailbox.Processed && expired && !looked:
		n.hold = now.Add(lookEvery) // a receiver that removed it for its age sends a nack soon
	case err == nil && place == mailbox.Processed: // it counts as acknowledged (docs/protocol.md 6.4 and 6.6)
		b.drop(n)
	case err == nil && place == mailbox.Aside:
		b.makeDead(n, mailbox.InvalidMessage,
			fmt.Sprintf("%s set it aside: it could not read it, or has another RELAY_SECRET", n.To))
	case expired && n.Key == "":
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("the store could not take it within its life of %s", n.Life))
	case expired:
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("not taken within its life of %s", n.Life))
	case err != nil:
		b.failed(n.receiver, err)
	case place == mailbox.Gone && n.RetryCount >= n.Retries:
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("the store has lost it, after %d attempts", n.attempts()))
	case place == mailbox.Gone:
		b.opts.Logger.Warn("the mailbox store has lost a message; sending it again", "to", n.To, "message_id", n.ID)
		b.put(ctx, n)
	case n.Key == "" || !n.Next.IsZero():
		b.put(ctx, n)
	case n.lost || n.Watch || inProgress:
		n.lost, n.due = false, now.Add(b.opts.AckTimeout)
	case n.RetryCount >= n.Retries:
		b.makeDead(n, mailbox.AgentOffline, fmt.Sprintf("no acknowledgement after %d attempts", n.attempts()))
	default:
		b.pause(n)
	}
}

// put puts n into the store: for the first time, or again. An answer to
// the earlier copy may come meanwhile, and then holds.
func (b *outgoing) put(ctx context.Context, n *entry) {
	m, err := b.load(n)
	if n.gone {
		return
	}
	was, key := n.sentMail, ""
	if err == nil && was.Key != "" {
		n.RetryCount++
		n.Next, n.Refused = time.Time{}, false
		m.Metadata.RetryCount = n.RetryCount
		m.Raw, err = b.opts.Signing.Encode(m.Envelope)
	}
	if err == nil {
		key, err = outside(ctx, b, func(ctx context.Context) (string, error) {
			if was.Key == "" {
				return b.opts.Store.Put(ctx, m)
			}
			return b.opts.Store.Again(ctx, was.Key, m)
		})
	}
	refusal, no := errors.AsType[*mailbox.Error](err)
	switch {
	case n.gone:
	case err == nil:
		b.stored(n, key)
	case errors.Is(err, errUnsigned):
		b.makeDead(n, errUnsigned.Code, errUnsigned.Message)
	case no:
		b.makeDead(n, refusal.Code, "the store refused it: "+refusal.Message)
	default:
		if n.RetryCount = was.RetryCount; n.Next.IsZero() {
			n.Next, n.Refused = was.Next, was.Refused
		}
		b.failed(n.receiver, err)
	}
}

// attempts is how often n was sent.
func (n *entry) attempts() int { return count(n.Key != "") * (n.RetryCount + 1) }
