package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"feishu-relay/book"
	"feishu-relay/deliver"
	"feishu-relay/group"
)

const (
	maxBatch   = 256         // events in a commit
	retryAfter = time.Second // a commit that the disk has refused
	maxNotes   = 20_000
	maxNoted   = 64 << 20 // bytes of the notes
	maxKept    = 32 << 20 // bytes of those that are kept for a while
	// forget is how long texts that are done with, or were recalled, stay in the files of the book.
	forget = 10 * time.Minute
)

// Options of a loop. Dir, Config, Do and Failed are required.
type Options struct {
	Dir     string // of the book
	Sync    bool   // RELAY_FSYNC
	Config  func(Chat) *group.Config
	Deliver deliver.Config
	// Do begins what an effect asks for. It must not wait for anything: the loop is one goroutine.
	Do     func(Effect)
	Failed func(error) // a commit was refused; it is tried again
	// Noted is given each note of the book by Open; may be nil.
	Noted  func(key string, value json.RawMessage)
	Logger *slog.Logger
}

// Loop owns the state of a sidecar. Its methods are safe for concurrent use.
type Loop struct {
	opts   Options
	book   *book.Book
	core   *Core
	events chan Event
	views  chan func(*Core)
	over   chan struct{} // closed when Run has ended
	left   []book.Record // what the disk refused until Run was to end

	refusing atomic.Pointer[chan struct{}] // closed while the disk refuses a commit
	full     atomic.Bool                   // as Core.Bot().Full
}

// ErrStopped means that the sidecar stops.
var ErrStopped = errors.New("the sidecar stops")

// ErrRefused means that the disk refuses a commit. The event may be in the book later.
var ErrRefused = errors.New("the disk refuses what happens")

// Open reads the book. Close or Run has to follow.
func Open(o Options) (*Loop, error) {
	all := book.Bound{Count: math.MaxInt, Bytes: math.MaxInt64} // what bounds these is the states
	b, err := book.Open(o.Dir, book.Options{Sync: o.Sync, Forget: forget, Logger: o.Logger,
		Kinds: map[string]book.Bound{kindEvent: all, kindState: all, kindText: all,
			kindNote: {Count: maxNotes, Bytes: maxNoted},
			kindKept: {Count: maxNotes, Bytes: maxKept, Age: o.Deliver.MaxAge}}})
	if err != nil {
		return nil, err
	}
	l := &Loop{opts: o, book: b, core: NewCore(o.Config), events: make(chan Event, maxBatch),
		views: make(chan func(*Core)), over: make(chan struct{})}
	l.refusing.Store(new(make(chan struct{})))
	load := func(kind, key string, value json.RawMessage) error {
		if (kind == kindNote || kind == kindKept) && o.Noted != nil {
			o.Noted(key, value)
		}
		return l.core.Load(kind, key, value)
	}
	if err := b.Each(load); err != nil {
		return nil, errors.Join(fmt.Errorf("read the book in %s: %w", o.Dir, err), b.Close())
	}
	return l, nil
}

// Close closes the book of a loop that does not run.
func (l *Loop) Close() error { return l.book.Close() }

// Post has the loop take in an event. It waits for room, and returns the error of ctx or [ErrStopped].
func (l *Loop) Post(ctx context.Context, e Event) error {
	return offer(ctx, l.over, l.events, e)
}

// offer hands x over, unless ctx or what takes it ends before.
func offer[T any](ctx context.Context, over <-chan struct{}, to chan<- T, x T) error {
	if !ended(ctx.Done()) && !ended(over) {
		select {
		case to <- x:
			return nil
		case <-ctx.Done():
		case <-over:
		}
	}
	return cmp.Or(context.Cause(ctx), ErrStopped)
}

// ended reports whether a channel is closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Save is Post and waits until the event is in the book. After an error it may be there, or come there.
func (l *Loop) Save(ctx context.Context, e Event) error {
	saved, refused := make(chan struct{}), *l.refusing.Load()
	e.Saved = func() { close(saved) }
	if ended(refused) {
		return ErrRefused
	}
	for events := l.events; ; events = nil {
		err := ErrStopped
		select {
		case <-refused:
			err = ErrRefused
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-l.over:
		case events <- e:
			continue
		case <-saved:
		}
		if ended(saved) {
			return nil
		}
		return err
	}
}

// View calls see with the state, which is only to be read, and returns the error of ctx or [ErrStopped]. While the disk
// refuses a commit, that state is ahead of the book.
func (l *Loop) View(ctx context.Context, see func(*Core)) error {
	done := make(chan struct{})
	err := offer(ctx, l.over, l.views, func(c *Core) { defer close(done); see(c) })
	if err == nil {
		<-done
	}
	return err
}

// Full reports whether too much waits for the bot.
func (l *Loop) Full() bool { return l.full.Load() }

// Note is a note of the book; nil: there is none.
func (l *Loop) Note(key string) json.RawMessage {
	value, _ := l.book.Load(kindNote, key) // what cannot be read is as good as lost
	return value
}

// Text is what the bot gets for an item.
func (l *Loop) Text(key string) (json.RawMessage, error) { return l.book.Load(kindText, key) }

// Run takes events until ctx is done, and those that were posted before, writes snapshots and closes the book.
func (l *Loop) Run(ctx context.Context) error {
	defer close(l.over)
	records, effects := l.core.Start(time.Now(), l.opts.Deliver)
	l.follow(ctx, records, effects, nil)
	for l.left == nil && (ctx.Err() == nil || len(l.events) > 0) {
		l.take(ctx, l.next(ctx, l.events, l.core.Next()))
	}
	err := l.book.Commit(append(l.left, l.core.Stop()...)...)
	return errors.Join(err, l.book.Close())
}

// next waits for an event, until a time, zero for none, or until ctx is done, and not longer than forget; then it is
// Tick. It serves views meanwhile.
func (l *Loop) next(ctx context.Context, events <-chan Event, until time.Time) Event {
	if until.IsZero() {
		until = time.Now().Add(forget)
	}
	due := time.After(min(time.Until(until), forget))
	for {
		select {
		case e := <-events:
			return e
		case see := <-l.views:
			see(l.core)
		case <-due:
			return Tick
		case <-ctx.Done():
			return Tick
		}
	}
}

// take applies an event, and those that are ready behind it.
func (l *Loop) take(ctx context.Context, e Event) {
	var records []book.Record
	var effects []Effect
	var saved []func()
	for n := 1; ; n++ {
		r, f := l.core.Step(time.Now(), e)
		records, effects = append(records, r...), append(effects, f...)
		if e.Saved != nil {
			saved = append(saved, e.Saved)
		}
		if n == maxBatch || len(l.events) == 0 {
			break
		}
		e = <-l.events
	}
	l.follow(ctx, records, effects, saved)
}

// follow writes records, again and again until the disk takes them, tells who waits for that, and begins what follows.
// If ctx ends before, the records are left, and nothing follows. Also without records the book looks whether it has
// anything to forget.
func (l *Loop) follow(ctx context.Context, records []book.Record, effects []Effect, saved []func()) {
	l.full.Store(l.core.Bot().Full())
	for first := true; ; first = false {
		err := l.book.Commit(records...)
		if err == nil {
			if !first {
				l.refusing.Store(new(make(chan struct{})))
			}
			break
		}
		l.opts.Failed(err) // before somebody is told, who may ask what is wrong
		if first {
			close(*l.refusing.Load())
		}
		if l.next(ctx, nil, time.Now().Add(retryAfter)); ctx.Err() != nil {
			l.left = records
			return
		}
	}
	for _, f := range saved {
		f()
	}
	runtime.Gosched() // who waits goes on first: the bot has its answer before others have its message
	for _, e := range effects {
		l.opts.Do(e)
	}
}
