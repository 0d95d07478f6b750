package sidecar

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// Run works until ctx is done and then stops in order. It returns an error only for a listener that failed.
func (s *Sidecar) Run(ctx context.Context) error {
	for _, w := range s.cfg.Warnings() {
		s.log.Warn("a setting may have unexpected effects", "setting", w.Setting, "detail", w.Detail, "fix", w.Fix)
	}
	if !s.chats.enforced() && s.cfg.MembershipCheck != "off" {
		s.log.Warn("every chat on the relay reaches this bot: no groups are known. " +
			"Name them with their members under \"groups\" in GROUPS_FILE, or set MEMBERSHIP_CHECK=off to say that this is meant")
	}
	s.log.Info("listening", "addr", s.api.listener.Addr().String(), keyAgent, s.cfg.Agent, "backend", s.cfg.Backend,
		"version", s.version, "viewer", s.localURL()+"/")
	if s.front != nil {
		s.log.Info("the gateway listens", "addr", s.Gateway().String(), "upstream", s.cfg.BaseURL.Host)
	}
	s.log.Info("next step", "do", s.nextStep())
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	coring, stopCore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCore()
	var serving, reading, working sync.WaitGroup
	working.Go(func() {
		if err := s.core.Run(coring, deliveryGrace, finishPublish); err != nil {
			s.log.Error("close", keyErr, err)
		}
	})
	if s.app.changed { // its chats are not known to be this app's
		s.leaveAll()
	}
	serving.Go(func() { s.api.serve("local API", fail) })
	reading.Go(func() { s.chats.groups.Run(ctx) })
	reading.Go(func() { s.look(ctx) })
	reading.Go(func() { s.presence.run(ctx) })
	s.runFeishu(ctx, &serving, &reading, fail)
	if s.mail != nil {
		reading.Go(func() { s.mail.run(ctx) })
	}
	<-ctx.Done()
	s.log.Info("stopping")
	s.events.Close()
	if s.channels.stream != nil {
		s.channels.stream.Stop()
	}
	s.api.stop()
	wait.Group(&reading, finishDelivery)
	stopCore()
	ending := time.AfterFunc(finishDelivery, s.front.stop)
	working.Wait()
	ending.Stop()
	s.front.stop()
	serving.Wait()
	if err := s.close(); err != nil {
		s.log.Error("close", keyErr, err)
	}
	s.log.Info("stopped")
	if cause := context.Cause(ctx); errors.Is(cause, errListener) {
		return cause
	}
	return nil
}

// deliveryGrace is how long an answer is waited for when the sidecar stops; without it the bot would be given the
// message again.
const deliveryGrace = finishDelivery * 4 / 5

var errListener = errors.New("listener failed")

// runFeishu starts what listens to Feishu, and to the bot's SDK.
func (s *Sidecar) runFeishu(ctx context.Context, serving, reading *sync.WaitGroup, fail func(error)) {
	if s.front != nil {
		serving.Go(func() { s.front.serve(fail) })
		reading.Go(func() { s.front.gateway.Run(ctx) })
	}
	if s.speak != nil {
		reading.Go(func() { _ = s.speak.connector.Run(ctx) }) // which ends with ctx only
	}
	if s.front != nil || s.speak != nil {
		reading.Go(func() { s.app.countConnections(ctx, s.connections) })
	}
	if s.app.api.Ready() { // with the app's own credentials
		reading.Go(func() { s.app.introduce(ctx) })
	}
}

// lookEvery is how often it is looked who is online, and what has changed of the settings.
const lookEvery = time.Second

// look has the core know who is online, what the groups file says, and whether Feishu can be written to.
func (s *Sidecar) look(ctx context.Context) {
	var file any
	wait.Closed(s.presence.first, presenceWait)
	for told := (map[relay.AgentName]bool)(nil); ; {
		if now := s.chats.groups.Current(); now != file {
			file = now
			for chat := range now.Groups {
				of := loop.Chat{Channel: relay.DefaultChannel, ID: relay.ChatID(chat)}
				if member, _ := s.member(of); member {
					s.core.Meet(ctx, of)
				}
			}
		}
		s.core.Configured(ctx)
		online, away := s.presence.online(), s.front != nil && !s.channels.gateway.gateway.Connected()
		online = withAway(online, away)
		if !maps.Equal(online, told) {
			told = online
			var agents []relay.AgentName
			for agent, is := range online {
				if is && agent != "" {
					agents = append(agents, agent)
				}
			}
			slices.Sort(agents)
			s.core.Online(ctx, agents, away)
		}
		if wait.Sleep(ctx, lookEvery) != nil {
			return
		}
	}
}

// withAway is online, and under no name whether the bot is away.
func withAway(online map[relay.AgentName]bool, away bool) map[relay.AgentName]bool {
	out := map[relay.AgentName]bool{"": away}
	maps.Copy(out, online)
	return out
}

// leaveAll forgets that the bot is in the chats that are known: it is another app now.
func (s *Sidecar) leaveAll() {
	var chats []loop.Chat
	s.core.View(func(c *loop.Core) { chats = c.Chats() })
	for _, of := range chats {
		if of.Channel == relay.DefaultChannel {
			s.core.Left(of, 0)
		}
	}
}

// canWrite reports whether this sidecar can write to Feishu, and whether it can at once: behind the gateway, once its
// bot has called it.
func (s *Sidecar) canWrite(channel string) (can, now bool) {
	ready := s.app.api.Ready()
	return channel == relay.DefaultChannel && (s.cfg.Gateway.Addr != "" || ready), ready
}
