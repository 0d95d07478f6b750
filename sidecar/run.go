package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"feishu-relay/relay"
)

// Run works until ctx is done and then stops in order. It returns an error only
// for a listener that failed.
func (s *Sidecar) Run(ctx context.Context) error {
	s.log.Info("listening", "addr", s.listener.Addr().String(), keyAgent, s.cfg.Agent, "backend", s.cfg.Backend, "version", s.version)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPublishing()

	var serving, reading, publishers sync.WaitGroup
	serving.Go(func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("%w: local API: %w", errListener, err))
		}
	})
	reading.Go(func() { s.groups.Run(ctx) })
	reading.Go(func() { s.deliveries.Run(ctx) })
	s.runFeishu(ctx, &serving, &reading, fail)
	if s.mail != nil {
		reading.Go(func() { s.runMailbox(ctx) })
	}
	publishers.Go(func() { s.keep(publishing, "outcomes", s.outcomes.Run) })
	for _, l := range []*lane{&s.bots, &s.users} {
		publishers.Go(func() { l.box.Run(publishing, watched{l.queue, &l.publishing, s.trace}, finishPublish) })
		reading.Go(func() {
			s.keep(ctx, "reading "+l.name, func(ctx context.Context) error {
				return l.queue.Subscribe(ctx, func(ctx context.Context, d relay.Delivery) { s.receive(ctx, l.way, d) })
			})
		})
	}

	<-ctx.Done()
	s.log.Info("stopping")
	s.stopServing()
	waitAtMost(finishDelivery, func() {
		reading.Wait()
		if s.native != nil {
			s.native.wait.wait()
		}
		s.chats.wait()
		s.delivering.Wait()
	})
	if s.front != nil { // only now: the bot's calls pass, and its acknowledgements count, to the last
		ctx, cancel := context.WithTimeout(context.Background(), finishGateway)
		s.front.stop(ctx)
		cancel()
	}
	waitAtMost(finishPublish, s.recording.Wait) // what hangs is mended by stopOwn
	stopPublishing()
	publishers.Wait()
	serving.Wait()
	err := s.close()
	if err != nil {
		s.log.Error("close", keyErr, err)
	}
	s.log.Info("stopped")
	if cause := context.Cause(ctx); errors.Is(cause, errListener) {
		return cause
	}
	return nil
}

var errListener = errors.New("listener failed")

// keep runs a part until ctx is done, and starts it again when it ends early.
func (s *Sidecar) keep(ctx context.Context, part string, run func(context.Context) error) {
	pause := restartPause
	for ctx.Err() == nil {
		err := run(ctx)
		if ctx.Err() != nil {
			return
		}
		s.problems.set(part, err)
		s.log.Error("a part ended early and is started again", "part", part, keyErr, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, restartPauseMax)
	}
}

func waitAtMost(limit time.Duration, wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
