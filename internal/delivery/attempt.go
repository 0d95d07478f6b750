package delivery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// attempt writes e to ch once and returns how that ended.
func (d *Deliveries) attempt(ctx context.Context, e *entry, ch Channel) error {
	write, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	wrote, result := make(chan (<-chan struct{}), 1), make(chan error, 1)
	m := e.m // an earlier write may still be ending
	go func() {
		defer func() {
			if v := recover(); v != nil {
				d.log.Error("a message made its delivery panic and is not delivered", "msg_id", m.Key, "stack", string(debug.Stack()))
				result <- fmt.Errorf("%w: its delivery panicked", ErrRefused)
			}
		}()
		result <- ch.Write(write, &m, func(ended <-chan struct{}) {
			select {
			case wrote <- ended:
			default: // written a second time on the same connection
			}
		})
	}()
	return d.await(ctx, e, wrote, result, cancel)
}

// await waits until what was written has ended. Without a result the bot has
// accepted the message and settles it.
func (d *Deliveries) await(ctx context.Context, e *entry, wrote <-chan (<-chan struct{}), result <-chan error,
	cancel context.CancelCauseFunc) error {
	if cancel == nil {
		cancel = func(error) {}
	}
	patience := time.NewTimer(writeWithin)
	if result == nil {
		patience.Reset(time.Until(e.since.Add(d.opts.Timeout)))
	}
	defer patience.Stop()
	stop := ctx.Done()
	var grace <-chan time.Time
	for {
		select {
		case ended := <-wrote:
			d.written(e, ended)
			patience.Reset(min(keepAfter, d.opts.Timeout))
		case err := <-result:
			select {
			case ended := <-wrote:
				d.written(e, ended)
			default:
			}
			if !errors.Is(err, ErrAccepted) {
				cancel(nil)
				return err
			}
			d.accept(e)
			result = nil
			patience.Reset(time.Until(e.since.Add(d.opts.Timeout)))
		case s := <-e.told:
			if result != nil && e.channel.Serial() && s.state != Retry {
				go linger(result, cancel, d.opts.Timeout) // the bot may still be answering
			} else {
				cancel(nil)
			}
			return errorOf(s)
		case <-patience.C:
			if e.since.IsZero() {
				cancel(ErrNotWritten)
				return fmt.Errorf("%w: not written within %s", ErrNotWritten, writeWithin)
			}
			if left := time.Until(e.since.Add(d.opts.Timeout)); left > 0 {
				d.keep(e, InProgress)
				patience.Reset(left)
				continue
			}
			cancel(ErrTimedOut)
			return ErrTimedOut
		case <-stop:
			if _, settled := errors.AsType[*Settled](context.Cause(ctx)); settled || result == nil {
				cancel(nil)
				return ctx.Err()
			}
			if !e.since.IsZero() {
				d.keep(e, InProgress)
			}
			stop, grace = nil, time.After(d.opts.Grace)
		case <-grace:
			cancel(nil)
			return ctx.Err()
		}
	}
}

// linger lets a post end by itself whose message is settled already.
func linger(result <-chan error, cancel context.CancelCauseFunc, limit time.Duration) {
	defer cancel(nil)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-result:
	case <-timer.C:
	}
}

func errorOf(s settlement) error {
	switch s.state {
	case Delivered:
		return nil
	case Refused:
		if s.reason == "" {
			return ErrRefused
		}
		return fmt.Errorf("%w: %s", ErrRefused, s.reason)
	}
	return errRetry
}

// written notes that e was written whole.
func (d *Deliveries) written(e *entry, ended <-chan struct{}) {
	d.mu.Lock()
	e.phase, e.since, e.gone = written, time.Now(), ended
	d.present.note(e.since, true)
	e.wake()
	serial := e.channel.Serial()
	d.mu.Unlock()
	if e.hooks.Written != nil {
		e.hooks.Written()
	}
	if !serial {
		e.proceed()
	}
}

// proceed lets the next message of the chat follow.
func (e *entry) proceed() {
	if e.hooks.Next != nil {
		e.next.Do(e.hooks.Next)
	}
}

// accept notes that the bot settles e later.
func (d *Deliveries) accept(e *entry) {
	d.mu.Lock()
	if e.since.IsZero() {
		e.since = time.Now()
	}
	e.phase = accepted
	d.count++
	d.bytes += len(e.m.Content)
	room := d.count <= maxAccepted && d.bytes <= maxBytes
	e.wake()
	d.mu.Unlock()
	d.keep(e, accepted202)
	if room {
		e.proceed()
	}
}

// end notes how e ended and tells its owner.
func (d *Deliveries) end(e *entry, state State, err error) Result {
	r := Result{State: state, Channel: e.named, Err: err}
	e.proceed()
	if e.hooks.Ended != nil {
		e.hooks.Ended(r)
	}
	d.mu.Lock()
	d.ended.Add(e.m.ID, &past{e.m.Ref, r})
	d.mu.Unlock()
	if e.m.Mail && state == TimedOut {
		d.keep(e, TimedOut) // it stays in the inbox, and is not written again after a restart
	} else {
		d.unkeep(e)
	}
	d.forget(e)
	return r
}

// forget removes e from what is under way.
func (d *Deliveries) forget(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries[e.m.Key] != e {
		return
	}
	d.leaveAccepted(e)
	delete(d.entries, e.m.Key)
	close(e.over)
	if e.line == nil {
		return
	}
	e.line.entries = without(e.line.entries, e)
	e.wake()
	if len(e.line.entries) == 0 {
		delete(d.lines, e.m.Ref.Channel+"/"+string(e.m.Chat))
	}
}
