package sidecar

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Pauses between tries of a stage that could not do its work.
const (
	retryFirst = 100 * time.Millisecond // doubled up to
	retryMax   = 10 * time.Second
)

// walk runs the stages until they come to a verdict: a stage that cannot do its
// work now (a full disk, a bot that is away) is tried again with growing pauses,
// for at most RELAY_MAX_AGE since the message arrived, and without end until it is
// in the transcript. It fails only when ctx is done.
func (s *Sidecar) walk(ctx context.Context, stages relay.Pipeline[*passage], p *passage) (stage string, why relay.Reason, err error) {
	for pauses := wait.NewBackoff(retryFirst, retryMax); ; {
		stage, why, err = s.apply(ctx, stages, p)
		if err == nil || ctx.Err() != nil {
			return stage, why, err
		}
		s.retrying(stage, p, err)
		if _, lost := errors.AsType[*unwrittenError](err); !lost && time.Since(p.arrived) > s.cfg.MaxAge {
			s.log.Error("given up after RELAY_MAX_AGE", keyStage, stage, keyMsg, p.key, keyErr, err)
			return stage, relay.Expired, nil
		}
		if err := pauses.Sleep(ctx); err != nil {
			return stage, relay.Pass, err
		}
		stages = from(stages, stage) // what was done needs no second time
	}
}

// from is the stages beginning with the named one.
func from(stages relay.Pipeline[*passage], name string) relay.Pipeline[*passage] {
	i := slices.IndexFunc(stages, func(st relay.Stage[*passage]) bool { return st.Name == name })
	return stages[max(i, 0):]
}

func (s *Sidecar) retrying(stage string, p *passage, err error) {
	if errors.Is(err, errUndecided) || errors.Is(err, transcript.ErrBusy) && !p.inChat { // no fault
		s.log.Debug("waiting in the order of the chat", keyStage, stage, keyChat, p.msg.ChatID, keyMsg, p.key, keyErr, err)
		return
	}
	s.problems.set(stage, err)
	s.metrics.retried.WithLabelValues(stage).Inc()
	s.log.Warn("waiting to try again", keyStage, stage, keyChat, p.msg.ChatID, keyMsg, p.key, keyErr, err)
}

// apply runs the stages once.
func (s *Sidecar) apply(ctx context.Context, stages relay.Pipeline[*passage], p *passage) (stage string, why relay.Reason, err error) {
	p.staged = time.Now()
	return stages.Run(ctx, p)
}

// guard runs handle, which handles p or a part of it. If handle panics, the line is
// quarantined and settled: read again after a restart, it would end every sidecar again.
func (s *Sidecar) guard(p *passage, handle func()) {
	defer func() {
		if recover() == nil {
			return
		}
		stack := string(debug.Stack())
		defer func() { // the panic may be in what ends p
			if recover() != nil {
				p.Settle()
			}
		}()
		s.quarantine(p.Line)
		s.log.Error("a message made its handling panic and is quarantined", keyMsg, p.key, "stack", stack)
		s.end(p, "panic", relay.Malformed)
	}()
	handle()
}
