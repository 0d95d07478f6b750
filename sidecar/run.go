package sidecar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// Run works until ctx is done and then stops in order. It returns an error only
// for a listener that failed.
func (s *Sidecar) Run(ctx context.Context) error {
	s.log.Info("listening", "addr", s.api.listener.Addr().String(), keyAgent, s.cfg.Agent, "backend", s.cfg.Backend,
		"version", s.version, "viewer", s.localURL()+"/")
	if s.front != nil {
		s.log.Info("the gateway listens", "addr", s.Gateway().String(), "upstream", s.cfg.BaseURL.Host)
	}
	s.log.Info("next step", "do", s.nextStep())
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	publishing, stopPublishing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPublishing()
	s.steer.running = ctx

	var serving, reading, publishers sync.WaitGroup
	serving.Go(func() {
		if err := s.api.server.Serve(s.api.listener); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("%w: local API: %w", errListener, err))
		}
	})
	reading.Go(func() { s.chats.groups.Run(ctx) })
	reading.Go(func() { s.chats.redact(ctx) })
	reading.Go(func() {
		s.steer.awaitMarks(ctx) // of what an earlier process left, some may have been recalled
		s.deliver.deliveries.Run(ctx)
	})
	reading.Go(func() { s.send.run(ctx) })
	reading.Go(func() { s.deliver.lookAtBot(ctx, s.announce) })
	s.runFeishu(ctx, &serving, &reading, fail)
	if s.mail != nil {
		reading.Go(func() { s.mail.run(ctx) })
	}
	publishers.Go(func() { s.keep(publishing, "outcomes", s.watch.outcomes.Run) })
	marks := &s.lanes.marks
	publishers.Go(func() {
		marks.box.Run(publishing, watched{marks.queue, &marks.publishing, func(string) {}}, finishPublish)
	})
	reading.Go(func() { s.keep(ctx, "reading "+marks.name, s.steer.run) })
	reading.Go(func() { s.keep(ctx, "presence", s.steer.presence.run) })
	paths := map[*lane]path{&s.lanes.bots: s.receive.bots, &s.lanes.users: s.receive.users}
	for l := range s.lanes.all() {
		publishers.Go(func() { l.box.Run(publishing, watched{l.queue, &l.publishing, s.trace}, finishPublish) })
		reading.Go(func() {
			s.keep(ctx, "reading "+l.name, func(ctx context.Context) error {
				return l.queue.Subscribe(ctx, func(ctx context.Context, d relay.Delivery) {
					s.receive.take(ctx, paths[l], d)
				})
			})
		})
	}

	<-ctx.Done()
	s.log.Info("stopping")
	s.watch.events.Close()
	if s.deliver.doors.stream != nil {
		s.deliver.doors.stream.Stop()
	}
	s.api.stop()
	waitAtMost(finishDelivery, func() {
		reading.Wait()
		if s.native != nil {
			s.native.wait.wait()
		}
		s.receive.workers.wait()
		s.deliver.delivering.Wait()
	})
	if s.front != nil { // only now: the bot's calls pass, and its acknowledgements count, to the last
		ctx, cancel := context.WithTimeout(context.Background(), finishGateway)
		s.front.stop(ctx)
		cancel()
	}
	waitAtMost(finishPublish, func() { // what hangs is recorded when it comes back from the queue
		s.send.recording.Wait()
		s.watch.counting.Wait()
	})
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

func waitAtMost(limit time.Duration, until func()) {
	var waits sync.WaitGroup
	waits.Go(until)
	wait.Group(&waits, limit)
}

// runFeishu starts what listens to Feishu, and to the bot's SDK.
func (s *Sidecar) runFeishu(ctx context.Context, serving, reading *sync.WaitGroup, fail func(error)) {
	if s.native != nil {
		reading.Go(func() {
			s.keep(ctx, "reading "+nativeQueue, func(ctx context.Context) error {
				return s.native.queue.Subscribe(ctx, s.native.receiveNative)
			})
		})
	}
	if s.front != nil {
		serving.Go(func() { s.front.serve(fail) })
		reading.Go(func() { s.front.gateway.Run(ctx) })
	}
	if s.speak != nil {
		reading.Go(func() { s.keep(ctx, "connector", s.speak.connector.Run) })
	}
	if s.native != nil {
		reading.Go(func() { s.app.countConnections(ctx, s.connections) })
	}
	if s.app.api.Ready() { // with the app's own credentials
		reading.Go(func() { s.app.introduce(ctx) })
	}
}
