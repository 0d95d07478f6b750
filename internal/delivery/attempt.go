package delivery

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

const keepAgain = 10 * time.Second // pause before storing a message is retried

// attempt writes e to ch once and returns the result.
func (d *Deliveries) attempt(ctx context.Context, e *entry, ch Channel) error {
	write, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	wrote, result := make(chan (<-chan struct{}), 1), make(chan error, 1)
	d.mu.Lock()
	m := e.m // an earlier write may not have ended yet
	d.mu.Unlock()
	go func() {
		defer func() {
			if v := recover(); v != nil {
				d.log.Error("a delivery panicked; the message is not delivered",
					"msg_id", m.Key, "stack", string(debug.Stack()))
				result <- fmt.Errorf("%w: its delivery panicked", ErrRefused)
			}
		}()
		result <- ch.Write(write, &m, func(ended <-chan struct{}) {
			select {
			case wrote <- ended:
			default: // written again on the same connection
			}
		})
	}()
	return d.await(ctx, e, wrote, result, cancel)
}

// await waits for the end of a written message. Without a result the bot has
// accepted the message and settles it later.
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
		case s := <-e.settled:
			if result != nil && e.channel.Serial() && s.state != Retry {
				go drain(result, cancel, d.opts.Timeout) // the bot may still be answering
			} else {
				cancel(nil)
			}
			return errorOf(s)
		case <-withdrawn:
			if withdrawn = nil; e.kept {
				d.keep(e, e.onDisk()) // now without its text
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
			select { // an answer at the same time counts
			case err := <-result:
				if err == nil || errors.Is(err, ErrRefused) {
					return err
				}
			case s := <-e.settled:
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

// onDisk is the state in which a message in progress is stored.
func (e *entry) onDisk() State {
	if e.phase == accepted {
		return accepted202
	}
	return InProgress
}

// nextLook is the time until a message in progress is checked again; left is the
// time until its timeout.
func (e *entry) nextLook(left time.Duration) time.Duration {
	if e.kept || e.m.Mail && e.phase != accepted {
		return left
	}
	return min(left, keepAgain)
}

// drain waits up to limit for the end of a write whose message is settled
// already, and then cancels it.
func drain(result <-chan error, cancel context.CancelCauseFunc, limit time.Duration) {
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

// written records that e was written whole.
func (d *Deliveries) written(e *entry, ended <-chan struct{}) {
	d.mu.Lock()
	e.phase, e.since, e.gone, e.had = written, time.Now(), ended, true
	d.present.note(e.since, true)
	e.wake()
	d.mu.Unlock()
	if e.hooks.Written != nil {
		e.hooks.Written()
	}
	if !e.channel.Serial() {
		e.proceed()
	}
}

// proceed lets the next message of the chat be written.
func (e *entry) proceed() {
	if e.hooks.Next != nil {
		e.next.Do(e.hooks.Next)
	}
}

// accept records that the bot settles e later.
func (d *Deliveries) accept(e *entry) {
	d.mu.Lock()
	if e.since.IsZero() {
		e.since = time.Now()
	}
	e.phase = accepted
	e.wake()
	d.mu.Unlock()
	d.keep(e, accepted202)
	e.proceed()
}

// end records the result of e and calls its hooks.
func (d *Deliveries) end(e *entry, state State, err error) Result {
	r := Result{State: state, Channel: e.named, Err: err}
	if e.hooks.Ended != nil {
		e.hooks.Ended(r)
	}
	e.proceed()
	p := &past{e.m.Ref, r}
	if !e.tried || !p.answerCounts() || !d.keep(e, state) {
		d.removeKept(e) // an ended message must not be written again
	}
	if e.tried { // else the bot has not seen it
		d.mu.Lock()
		d.ended.Add(e.m.ID, p)
		d.mu.Unlock()
	}
	d.forget(e)
	select {
	case s := <-e.settled: // it arrived at the time of the timeout
		_ = d.settleEnded(p, s.state)
	default:
	}
	return r
}

// forget removes e from the messages that have not ended.
func (d *Deliveries) forget(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entries[e.m.Key] != e {
		return
	}
	d.letGo(e)
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
