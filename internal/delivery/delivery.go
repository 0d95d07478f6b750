// Package delivery delivers messages to the bot by the channel that is open:
// the gateway, INJECT_URL or the stream. One rule applies to all channels, and
// to chat messages and mail alike.
//
// # The rule
//
// A message that was written whole and not answered is in progress. It is not
// written again, on any channel, while its connection lives. It ends with
//
//   - an answer: the bot has it ([Delivered]);
//   - a refusal: the bot will never take it ([Refused]);
//   - an error or the end of the connection: it is written again after a pause,
//     until [Options].MaxAge has passed since its turn ([Expired]);
//   - [Options].Timeout without an answer: it is not written again ([TimedOut]);
//   - a withdrawal while it waits, or once it would be written again ([Withdrawn]).
//
// A channel may report that the bot has accepted a message and settles it later
// ([ErrAccepted]). The bot settles it, or any other message in progress, through
// [Deliveries.Settle]; so does an answer after the timeout, which turns TimedOut
// into Delivered.
//
// # Order
//
// The messages of a chat are written in the order in which [Deliveries.Deliver]
// was called, also if several of them are written again on a new connection. On
// a serial channel the next message of a chat waits until the one before it has
// ended or was accepted. A message on which the bot failed does not delay later
// ones of other channels.
//
// # On disk
//
// A message that stays in progress for over a second, or that was accepted, is
// stored in a file of its own until it ends. After a restart an accepted one is
// still in progress, and any other is written again. The id of a message that
// timed out is kept for a day, for a late answer.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	writeWithin = 30 * time.Second       // for writing a message whole; after that the write counts as failed
	keepAfter   = time.Second            // time in progress until the message is stored on disk
	pauseFirst  = 250 * time.Millisecond // after a write that did not reach the bot, doubled up to pauseMax
	pauseMax    = 15 * time.Second
	maxEnded    = 5000           // ended messages remembered for repeated or late settlements
	lateFor     = 24 * time.Hour // how long messages that timed out are remembered over a restart
	maxHeld     = 1000           // messages that are being written, or in progress; beyond it no other is written
	maxBytes    = 16 << 20       // of their texts; likewise
)

// Errors of a channel's Write.
var (
	// ErrRefused means that the bot will never take the message.
	ErrRefused = errors.New("the bot refused the message")
	// ErrAccepted means that the bot has the message and settles it later.
	ErrAccepted = errors.New("the bot accepted the message and settles it later")
	// ErrNotWritten means that no part of the message has reached the bot.
	ErrNotWritten = errors.New("the bot was not reached")
	// ErrEnded means that the connection ended before the bot answered.
	ErrEnded = errors.New("the connection ended before the bot answered")
)

// ErrTimedOut is returned by Attempt if the bot did not answer in time. The
// context of the channel's Write is cancelled with it as the cause.
var ErrTimedOut = errors.New("the bot did not answer within DELIVERY_TIMEOUT")

var (
	errExpired = errors.New("no answer within RELAY_MAX_AGE")
	errRetry   = errors.New("the bot asked for the message again")
)

// Message is a message for the bot.
type Message struct {
	Ref
	relay.Inbound
	Given  []string // ids of the transcript messages quoted in its text
	Waited bool     // it waited for an earlier message of the chat, so its age does not expire it
	Again  bool     // it was written before
}

// Ref identifies a message, without its text.
type Ref struct {
	ID      relay.MessageID // relay_msg_id: the id that the bot uses
	Key     string          // its unique key here
	Channel string
	Chat    relay.ChatID
	Sender  relay.AgentName
	Sent    time.Time // when its text was final
	Mail    bool      // direct mail between agents: not stored here, since the inbox has it
}

// chat is the key of the message's chat.
func (r Ref) chat() string { return r.Channel + "/" + string(r.Chat) }

// State is the result of a delivery.
type State string

// The states. The first three are also the settlements that a bot may send.
const (
	Delivered  State = "delivered"
	Refused    State = "refused"
	Retry      State = "retry"
	TimedOut   State = "timed_out"
	Expired    State = "expired"
	InProgress State = "in_progress"
	Withdrawn  State = "withdrawn" // its Err is a [WithdrawnError]
)

// Result is how a delivery ended.
type Result struct {
	State   State
	Channel string // the channel that wrote it last; "" if none did
	Err     error  // why it was not delivered
}

// Hooks are called by [Deliveries.Deliver], one at a time. Each may be nil.
type Hooks struct {
	Written func()       // written whole and not answered yet; called for each write
	Next    func()       // the next message of the chat may follow
	Kept    func()       // the message is stored here: other copies may be removed
	Ended   func(Result) // the delivery has ended; the copy on disk is removed afterwards
}

// Channel is one path to the bot. Its methods are safe for concurrent use.
type Channel interface {
	Name() string
	// Open reports whether a write may reach the bot now.
	Open() bool
	// Changed is closed at the next change of Open; nil if it never changes.
	Changed() <-chan struct{}
	// Present reports whether the bot is known to be there.
	Present() bool
	// Serial reports whether the next message of a chat waits for the answer.
	Serial() bool
	Pauses() Pauses
	// Write writes m once and returns after the bot's answer: nil, an error that
	// wraps one of the errors above, or any other if the answer was an error. It
	// calls written once m is written whole; ended is closed with the
	// connection, or nil if Write itself reports that. When ctx is done it
	// returns soon.
	Write(ctx context.Context, m *Message, written func(ended <-chan struct{})) error
}

// Pauses bound the pause after an error answer: it doubles from First up to Most.
type Pauses struct{ First, Most time.Duration }

// Options configure [New]. All are required that do not say what their zero value means.
type Options struct {
	Root    *os.Root      // the folder of the messages kept on disk, one file each
	MaxAge  time.Duration // RELAY_MAX_AGE
	Timeout time.Duration // DELIVERY_TIMEOUT; 0: 15 min
	Grace   time.Duration // how long to wait for an answer after ctx is done
	Logger  *slog.Logger  // nil: discard
	// Resumed returns the hooks of a message that an earlier process left.
	Resumed func(*Message) Hooks
	// Review is called for each message before it is first written; nil: none is withdrawn then.
	Review Review
	// Late is called when the bot answers a message that had timed out or
	// expired.
	Late func(Ref, Result)
	// Failed is called with each error after which a message is written again.
	Failed func(Ref, error)
}

// Deliveries delivers messages to one bot. Its methods are safe for concurrent
// use.
type Deliveries struct {
	opts     Options
	log      *slog.Logger
	channels []Channel
	done     sync.WaitGroup // resumed deliveries

	mu      sync.Mutex
	lines   map[string]*line                   // by chat, of those with messages; guarded by mu
	entries map[string]*entry                  // by key, not ended; guarded by mu
	ended   *lru.Cache[relay.MessageID, *past] // guarded by mu
	present presence                           // guarded by mu
	changed chan struct{}                      // closed when a channel has changed; guarded by mu
	count   int                                // messages that are being written or in progress; guarded by mu
	bytes   int                                // of their texts; guarded by mu
	full    bool                               // a message waits for room among them; guarded by mu
	last    time.Time                          // the newest entry's begun; guarded by mu
	left    []*entry                           // messages read from disk, until Run; guarded by mu
	opened  time.Time
	held    map[string]time.Time // by chat: when the oldest message that was read from disk was sent
	mail    map[string]document  // accepted mail read from disk, until Attempt; guarded by mu
}

// line is the messages of one chat that have not ended, in order.
type line struct {
	entries []*entry
	changed chan struct{}
}

// entry is a message that has not ended. Its fields are guarded by Deliveries.mu,
// except those that never change.
type entry struct {
	m     Message
	hooks Hooks
	next  sync.Once
	begun time.Time // unique: the order of the chat
	turn  time.Time // when its turn came, with no earlier message of the chat before it
	line  *line     // nil: mail

	phase   phase
	size    int             // counted in Deliveries.bytes; 0: not counted
	channel Channel         // the channel that writes it
	named   string          // the channel's name, kept over a restart
	since   time.Time       // when it was written whole; zero: never
	tried   bool            // a write has begun
	had     bool            // it was written whole once, so the bot was present after it was sent
	gone    <-chan struct{} // closed with the connection on which it was written
	kept    bool            // on disk
	settled chan settlement // of capacity 1
	// withdrawn is the reason for the withdrawal; "": not withdrawn.
	withdrawn string
	stop      chan struct{} // closed when it is withdrawn
	over      chan struct{} // closed when it has ended
}

type settlement struct {
	state  State
	reason string
}

// past is an ended message.
type past struct {
	Ref
	Result
}

// answerCounts reports whether a late answer would still count.
func (p *past) answerCounts() bool { return !p.Mail && (p.State == TimedOut || p.State == Expired) }

// phase is the progress of an entry.
type phase int

const (
	waiting  phase = iota // for a channel, or for its turn in the chat
	writing               // not known to be written whole yet
	written               // whole, not answered
	accepted              // the bot settles it later
	pausing               // the bot answered with an error
)

// New returns deliveries by these channels; the first open one is used. It reads
// the messages that an earlier process left, and starts no delivery.
func New(o Options, channels ...Channel) (*Deliveries, error) {
	d := &Deliveries{opts: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), channels: channels,
		lines: map[string]*line{}, entries: map[string]*entry{}, mail: map[string]document{},
		held: map[string]time.Time{}, opened: time.Now(), changed: make(chan struct{})}
	d.ended, _ = lru.NewWithEvict(maxEnded, func(_ relay.MessageID, p *past) { // fails only for a size below 1
		if p.answerCounts() {
			d.remove(p.Key)
		}
	})
	d.opts.Timeout = cmp.Or(d.opts.Timeout, 15*time.Minute)
	return d, d.load()
}

// Run watches the channels and resumes the deliveries that an earlier process
// left, until ctx is done and these have stopped.
func (d *Deliveries) Run(ctx context.Context) {
	for _, ch := range d.channels {
		if ch.Changed() != nil {
			d.done.Go(func() { d.follow(ctx, ch) })
		}
	}
	d.mu.Lock()
	left := d.left
	d.left = nil
	d.mu.Unlock()
	for _, e := range left {
		e.hooks = d.opts.Resumed(&e.m)
		d.review(e, d.opts.Review)
		d.done.Go(func() {
			defer func() { _ = recover() }() // run has logged it and ended e
			_, _ = d.run(ctx, e)
		})
	}
	<-ctx.Done()
	d.done.Wait()
}

func (d *Deliveries) follow(ctx context.Context, ch Channel) {
	for ctx.Err() == nil {
		changed := ch.Changed()
		d.mu.Lock()
		d.look()
		close(d.changed)
		d.changed = make(chan struct{})
		d.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// look records whether the bot is present. The caller holds mu.
func (d *Deliveries) look() {
	there := false
	for _, ch := range d.channels {
		there = there || ch.Present()
	}
	d.present.note(time.Now(), there)
}

// Deliver delivers m to the bot and returns the result; the error is only that
// of ctx. For messages of one chat, each call must begin after Next of the
// message before.
func (d *Deliveries) Deliver(ctx context.Context, m Message, hooks Hooks) (Result, error) {
	e := d.begin(m, hooks)
	d.review(e, d.opts.Review) // after enter, so that a later withdrawal finds it
	return d.run(ctx, e)
}

func (d *Deliveries) begin(m Message, hooks Hooks) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.last = later(now, d.last.Add(1))
	e := &entry{m: m, hooks: hooks, begun: d.last, turn: now, settled: make(chan settlement, 1),
		over: make(chan struct{}), stop: make(chan struct{})}
	d.enter(e)
	return e
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// enter adds e. The caller holds mu.
func (d *Deliveries) enter(e *entry) {
	d.entries[e.m.Key] = e
	if e.m.Mail {
		return
	}
	chat := e.m.Ref.chat()
	if d.lines[chat] == nil {
		d.lines[chat] = &line{changed: make(chan struct{})}
	}
	e.line = d.lines[chat]
	e.line.entries = append(e.line.entries, e)
}

// Waited reports whether a message of this chat, sent at this time, waited in
// an earlier process for one that the bot had not answered.
func (d *Deliveries) Waited(channel string, chat relay.ChatID, sent time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, held := d.held[Ref{Channel: channel, Chat: chat}.chat()]
	return held && !sent.Before(since) && sent.Before(d.opened)
}

// Has reports whether a message with this key has not ended.
func (d *Deliveries) Has(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.entries[key]
	return ok
}

// Expired reports whether no channel was open for MaxAge after a message was sent.
func (d *Deliveries) Expired(sent time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
	until := sent.Add(d.opts.MaxAge)
	return time.Now().After(until) && !d.present.between(sent, until)
}

func (d *Deliveries) run(ctx context.Context, e *entry) (Result, error) {
	defer func() {
		if v := recover(); v != nil { // in a hook: the chat continues without this message
			d.log.Error("a panic at the end of a delivery", "msg_id", e.m.Key, "stack", string(debug.Stack()))
			d.removeKept(e)
			d.forget(e)
			panic(v)
		}
	}()
	missed, failed := 0, 0 // writes in a row that did not reach the bot; error answers
	err := d.attemptInTurn(ctx, e)
	for {
		switch {
		case err == nil:
			return d.end(e, Delivered, nil), nil
		case errors.Is(err, ErrRefused):
			return d.end(e, Refused, err), nil
		case errors.Is(err, ErrTimedOut):
			return d.end(e, TimedOut, err), nil
		case errors.Is(err, errExpired):
			return d.end(e, Expired, err), nil
		case ctx.Err() != nil:
			return Result{}, ctx.Err()
		}
		if why := d.withdrawal(e); why != nil {
			return d.end(e, Withdrawn, why), nil
		}
		if !errors.Is(err, errRetry) {
			d.opts.Failed(e.m.Ref, err)
		}
		pauses, to, n := Pauses{pauseFirst, pauseMax}, waiting, &missed
		if !errors.Is(err, ErrNotWritten) && !errors.Is(err, ErrEnded) && e.channel != nil {
			pauses, to, n, missed = e.channel.Pauses(), pausing, &failed, 0
		}
		pause := wait.Doubled(pauses.First, pauses.Most, *n)
		*n++
		d.move(e, to)
		if e.kept {
			d.keep(e, InProgress) // a restart writes it again
		}
		var settled bool
		if settled, err = d.rest(ctx, e, pause/2+rand.N(pause)); !settled && err == nil {
			d.move(e, waiting)
			err = d.attemptInTurn(ctx, e)
		}
	}
}

// rest waits for pause, but not beyond the message's deadline. If the bot settles
// the message meanwhile, it returns true and the settlement.
func (d *Deliveries) rest(ctx context.Context, e *entry, pause time.Duration) (settled bool, err error) {
	d.mu.Lock()
	timer := time.NewTimer(min(pause, time.Until(d.deadline(e))))
	d.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case s := <-e.settled:
		return true, errorOf(s)
	case <-e.stop:
		return true, &WithdrawnError{}
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// attemptInTurn waits for the turn of e and writes it once. For an accepted
// message it only waits for the settlement.
func (d *Deliveries) attemptInTurn(ctx context.Context, e *entry) error {
	if e.phase == accepted { // accepted before a restart
		return d.await(ctx, e, nil, nil, nil)
	}
	ch, err := d.turn(ctx, e)
	if ch == nil {
		return err
	}
	return d.attempt(ctx, e, ch)
}

// turn waits until a channel is open and the earlier messages of the chat are
// written, and returns that channel. A nil channel means that the delivery has
// ended, with the error; a nil error means that the bot has the message.
func (d *Deliveries) turn(ctx context.Context, e *entry) (Channel, error) {
	blocked := false
	for {
		d.mu.Lock()
		d.look()
		changed, moved := d.changed, e.line.changed
		ch := d.open()
		if blocked {
			e.turn = time.Now()
		}
		blocked = ch != nil && (e.blocked(ch) || !d.hasRoom(e))
		if e.withdrawn != "" {
			d.mu.Unlock()
			return nil, &WithdrawnError{}
		}
		left := d.opts.MaxAge
		if !blocked {
			left = time.Until(d.deadline(e))
		}
		if ch != nil && left > 0 && len(e.settled) == 0 && !blocked {
			d.start(e, ch)
			d.mu.Unlock()
			return ch, nil
		}
		d.mu.Unlock()
		if left <= 0 {
			return nil, errExpired
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-moved:
		case <-timer.C:
		case <-e.stop:
		case s := <-e.settled: // written before, and settled only now
			timer.Stop()
			return nil, errorOf(s)
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
		timer.Stop()
	}
}

// hasRoom reports whether e can be written besides those that the bot has not answered. The caller
// holds mu.
func (d *Deliveries) hasRoom(e *entry) bool {
	full := d.count > 0 && (d.count >= maxHeld || d.bytes+len(e.m.Content) > maxBytes)
	d.full = d.full || full
	return !full
}

// start begins a write of e to ch. The caller holds mu.
func (d *Deliveries) start(e *entry, ch Channel) {
	d.hold(e)
	e.m.Again = e.tried
	e.phase, e.channel, e.named, e.tried = writing, ch, ch.Name(), true
	e.since, e.gone = time.Time{}, nil
}

// open is the channel to use now, or nil. The caller holds mu.
func (d *Deliveries) open() Channel {
	for _, ch := range d.channels {
		if ch.Open() {
			return ch
		}
	}
	return nil
}

// blocked reports whether an earlier message of the chat has to be written to
// ch, or answered there, first. The caller holds mu.
func (e *entry) blocked(ch Channel) bool {
	earlier := true
	for _, x := range e.line.entries {
		switch {
		case x == e:
			earlier = false
		case ch.Serial() && (x.phase == writing || x.phase == written) && x.channel == ch:
			return true // also a later one, if the bot asked for e again
		case !earlier:
		case x.phase == waiting, x.phase == writing, x.phase == pausing && ch.Serial():
			return true
		case x.phase == written && isClosed(x.gone):
			return true
		}
	}
	return false
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// deadline is when e expires unless it is in progress: MaxAge after it was sent if
// no channel was open meanwhile, else MaxAge after its turn came. The caller holds
// mu.
func (d *Deliveries) deadline(e *entry) time.Time {
	until := e.m.Sent.Add(d.opts.MaxAge)
	if e.had || e.m.Waited || d.present.between(e.m.Sent, until) {
		return later(until, e.turn.Add(d.opts.MaxAge))
	}
	return until
}

func (d *Deliveries) move(e *entry, to phase) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.letGo(e)
	e.phase = to
	e.wake()
}

// hold counts e; the inbox bounds mail. The caller holds mu.
func (d *Deliveries) hold(e *entry) {
	if !e.m.Mail && e.size == 0 {
		e.size = 1 + len(e.m.Content)
		d.count++
		d.bytes += e.size
	}
}

// letGo no longer counts e, and wakes those that wait for room. The caller holds mu.
func (d *Deliveries) letGo(e *entry) {
	if e.size == 0 {
		return
	}
	d.count--
	d.bytes -= e.size
	e.size = 0
	if d.full {
		d.full = false
		close(d.changed)
		d.changed = make(chan struct{})
	}
}

// wake wakes the other messages of the chat. The caller holds mu.
func (e *entry) wake() {
	if e.line != nil {
		close(e.line.changed)
		e.line.changed = make(chan struct{})
	}
}

// Attempt writes a mail to ch once and returns nil, ErrTimedOut or an error of
// Write. It does not write mail again that was accepted before a restart. If ctx
// is cancelled with a [Settled], that is the result.
func (d *Deliveries) Attempt(ctx context.Context, m Message, ch Channel, hooks Hooks) error {
	e := &entry{m: m, hooks: hooks, begun: time.Now(), settled: make(chan settlement, 1), over: make(chan struct{}),
		stop: make(chan struct{})}
	d.mu.Lock()
	doc, resumed := d.mail[m.Key]
	delete(d.mail, m.Key)
	if resumed {
		e.named, e.since, e.tried, e.kept = doc.Door, doc.Since, true, true
		e.phase = accepted
	} else {
		d.start(e, ch)
	}
	d.enter(e)
	d.mu.Unlock()
	var err error
	if resumed {
		if hooks.Written != nil {
			hooks.Written()
		}
		e.proceed()
		err = d.await(ctx, e, nil, nil, nil)
	} else {
		err = d.attempt(ctx, e, ch)
	}
	s, settled := errors.AsType[*Settled](context.Cause(ctx))
	switch {
	case err == nil:
		d.end(e, Delivered, nil)
	case errors.Is(err, ErrRefused):
		d.end(e, Refused, err)
	case errors.Is(err, ErrTimedOut):
		d.end(e, TimedOut, err)
	case settled:
		d.end(e, s.State, nil)
	case ctx.Err() == nil: // the mailbox retries
		d.removeKept(e)
		d.forget(e)
	}
	return err
}

// Settled is the cause with which a caller cancels the context of an Attempt
// whose mail was settled elsewhere.
type Settled struct{ State State }

func (s *Settled) Error() string { return "the mail was settled as " + string(s.State) }

func without(list []*entry, e *entry) []*entry {
	for i := range list {
		if list[i] == e {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}
