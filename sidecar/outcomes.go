package sidecar

import (
	"path/filepath"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/outcome"
	"feishu-relay/relay"
)

// maxAwaited is how many delivered messages an acknowledgement may still come
// for; of an older one it is not noted.
const maxAwaited = 512

// openOutcomes opens what tells everybody's watchers what became of messages at
// this bot.
func (s *Sidecar) openOutcomes() error {
	var store outcome.Store
	var err error
	if s.cfg.Backend == "redis" {
		store, err = outcome.OpenRedis(string(s.cfg.RedisURL), OutcomesKey(s.cfg.RelayChannel), s.log)
	} else {
		store, err = outcome.OpenFiles(filepath.Join(s.cfg.RelayDir, "outcomes"), string(s.cfg.Agent), s.log)
	}
	if err != nil {
		return err
	}
	s.onClose(store.Close)
	s.outcomes = outcome.New(outcome.Options{Store: store, Agent: s.cfg.Agent, Secret: string(s.cfg.RelaySecret), Logger: s.log})
	s.delivered, _ = lru.New[relay.MessageID, outcome.Outcome](maxAwaited) // fails only for a size below 1
	return nil
}

// note tells what became of p so far, where the bot is in its group: others read
// it, whom a private chat is nothing to.
func (s *Sidecar) note(p *passage, change func(*outcome.Outcome)) {
	if !ofGroup(p.msg.Metadata) || !s.members.in(p.msg.Channel, p.msg.ChatID) {
		return
	}
	if p.outcome == nil {
		p.outcome = &outcome.Outcome{Agent: s.cfg.Agent, Channel: p.msg.Channel, ChatID: p.msg.ChatID,
			RelayMsgID: relay.MessageID(p.key), Sender: p.msg.SenderAgentName}
	}
	p.outcome.At = relay.MillisOf(time.Now())
	change(p.outcome)
	s.outcomes.Note(*p.outcome)
}

// told are the reasons of a stop that a watcher of the group wants to know of.
// The others say nothing of the message but that it came twice, was this bot's
// own, or is none.
var told = []relay.Reason{relay.Expired, relay.NotMentioned, relay.MaxDepth, relay.JudgeNo, relay.JudgeError, relay.Undeliverable}

func (s *Sidecar) noteStopped(p *passage, why relay.Reason) {
	if p.History || !slices.Contains(told, why) { // of what was there before this sidecar there is nothing to tell
		return
	}
	s.note(p, func(o *outcome.Outcome) {
		o.Stopped = why
		if p.cause != nil {
			o.Detail = p.cause.Error()
		}
	})
}

func (s *Sidecar) noteDecided(p *passage) {
	s.note(p, func(o *outcome.Outcome) { o.Decision = new(p.decision) })
}

func (s *Sidecar) noteDelivered(p *passage, door string) {
	s.note(p, func(o *outcome.Outcome) { o.Delivered, o.Door = o.At, door })
	if door != doorStream || p.outcome == nil {
		return
	}
	if early, ok, _ := s.delivered.PeekOrAdd(p.msg.RelayMsgID, *p.outcome); ok {
		s.note(p, func(o *outcome.Outcome) { o.Acknowledged = early.Acknowledged })
	}
}

// noteAcknowledged tells that the bot acknowledged a message on the stream. It
// may do so before the delivery is noted, which then finds the time here.
func (s *Sidecar) noteAcknowledged(id relay.MessageID) {
	now := relay.MillisOf(time.Now())
	o, ok, _ := s.delivered.PeekOrAdd(id, outcome.Outcome{Acknowledged: now})
	if !ok || o.Agent == "" {
		return
	}
	o.At, o.Acknowledged = now, now
	s.outcomes.Note(o)
}
