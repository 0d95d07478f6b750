package delivery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

const (
	keepAgain  = 10 * time.Second // until a message that could not be put on disk is tried again
	maxWritten = 1000             // messages in progress; beyond it a chat waits for the answer to its own
)

// attempt writes e to ch once and returns how that ended.
func (d *Deliveries) attempt(ctx context.Context, e *entry, ch Channel) error {
	write, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	wrote, result := make(chan (<-chan struct{}), 1), make(chan error, 1)
	d.mu.Lock()
	m := e.m // an earlier write may still be ending
	d.mu.Unlock()
	go func() {
		defer func() {
			if v := recover(); v != nil {
				d.log.Error("a message made its delivery panic and is not delivered",
					"msg_id", m.Key, "stack", string(debug.Stack()))
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
	stop, withdrawn := ctx.Done(), e.stop
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
			patience.Reset(e.nextLook(time.Until(e.since.Add(d.opts.Timeout))))
		case s := <-e.told:
			if result != nil && e.channel.Serial() && s.state != Retry {
				go linger(result, cancel, d.opts.Timeout) // the bot may still be answering
			} else {
				cancel(nil)
			}
			return errorOf(s)
		case <-withdrawn:
			if withdrawn = nil; e.kept {
				d.keep(e, e.onDisk()) // without its text
			}
		case <-patience.C:
			if e.since.IsZero() {
				cancel(ErrNotWritten)
				return fmt.Errorf("%w: not written within %s", ErrNotWritten, writeWithin)
			}
			if left := time.Until(e.since.Add(d.opts.Timeout)); left > 0 {
				d.keepInProgress(e)
				patience.Reset(e.nextLook(left))
				continue
			}
			cancel(ErrTimedOut)
			select { // an answer of this very moment counts
			case err := <-result:
				if err == nil || errors.Is(err, ErrRefused) {
					return err
				}
			case s := <-e.told:
				return errorOf(s)
			default:
			}
			return ErrTimedOut
		case <-stop:
			if _, settled := errors.AsType[*Settled](context.Cause(ctx)); settled || result == nil {
				cancel(nil)
				return ctx.Err()
			}
			if !e.since.IsZero() {
				d.keepInProgress(e)
			}
			stop, grace = nil, time.After(d.opts.Grace)
		case <-grace:
			cancel(nil)
			return ctx.Err()
		}
	}
}

// onDisk is the state of a message in progress on disk.
func (e *entry) onDisk() State {
	if e.phase == accepted {
		return accepted202
	}
	return InProgress
}

// nextLook is when a message in progress is looked at again, of which left is left
// until its time-out.
func (e *entry) nextLook(left time.Duration) time.Duration {
	if e.kept || e.m.Mail && e.phase != accepted {
		return left
	}
	return min(left, keepAgain)
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
	e.phase, e.since, e.gone, e.had = written, time.Now(), ended, true
	d.present.note(e.since, true)
	e.wake()
	waits := e.channel.Serial() || len(d.entries) > maxWritten
	d.mu.Unlock()
	if e.hooks.Written != nil {
		e.hooks.Written()
	}
	if !waits {
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
	d.enterAccepted(e)
	room := d.count <= maxAccepted && d.bytes <= maxBytes
	e.wake()
	d.mu.Unlock()
	d.keep(e, accepted202)
	if room {
		e.proceed()
	}
}

// end notes how e ended and calls its hooks.
func (d *Deliveries) end(e *entry, state State, err error) Result {
	r := Result{State: state, Channel: e.named, Err: err}
	if e.hooks.Ended != nil {
		e.hooks.Ended(r)
	}
	e.proceed()
	p := &past{e.m.Ref, r}
	if !e.tried || !p.mayCome() || !d.keep(e, state) {
		d.unkeep(e) // what is not kept as ended must not be written again
	}
	if e.tried { // else the bot was not given it
		d.mu.Lock()
		d.ended.Add(e.m.ID, p)
		d.mu.Unlock()
	}
	d.forget(e)
	select {
	case s := <-e.told: // it came in the moment of the time-out
		_ = d.settleEnded(p, s.state)
	default:
	}
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
		delete(d.lines, e.m.Ref.chat())
	}
}
