package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/feishu"
	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/loop"
	"feishu-relay/mailbox/agent"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Keys of log attributes.
const (
	keyChat   = "chat"
	keyMsg    = "msg_id" // not "msg": that is the log line's own text
	keySender = "sender" // the other bot, as it is called on the relay
	keyAgent  = "agent"  // this one
	keyReason = "reason"
	keyDoor   = "door"
	keyErr    = "err"
)

var _ core.Watch = (*Sidecar)(nil)

// Problem notes the error of a part.
func (s *Sidecar) Problem(part string, err error) { s.problems.set(part, err) }

// Retried counts what is tried again.
func (s *Sidecar) Retried(part string) { s.metrics.retried.WithLabelValues(part).Inc() }

// Read counts a line of a lane.
func (s *Sidecar) Read(lane string) { s.metrics.read(lane, time.Now()) }

// Malformed counts a line that is not a message.
func (s *Sidecar) Malformed(_ []byte, err error) {
	s.metrics.quarantined.Inc()
	s.log.Warn("a line of the relay cannot be read", keyErr, err)
}

// Arrived looks at a message of another sidecar.
func (s *Sidecar) Arrived(lane string, d *relay.Delivery, m *relay.Message) {
	if m.SenderAgentName == s.cfg.Agent {
		return
	}
	now := time.Now()
	if ahead := m.TS.Time().Sub(now); ahead > relay.MaxAhead {
		s.metrics.skewed.Inc()
		s.problems.set("clock", fmt.Errorf("the clock of %s is %s ahead", m.SenderAgentName, ahead.Round(time.Second)))
	}
	s.chats.peers.saw(lane, m)
	s.metrics.arrived(lane, d.History, m, now)
	if m.Role == relay.RoleUser {
		s.missed(m)
		return
	}
	s.app.met(m)
	if id := s.copies.came(m.ID(), m.SenderAgentName); id != "" {
		s.app.matched(id, m.SenderAgentName)
	}
}

// Missed notes that a bot's sidecar did not bring its message.
func (s *Sidecar) Missed(m *relay.Message) { s.copies.silent.Add(s.sidecarOf(m), time.Now()) }

// Said tells that the bot has said something in a group.
func (s *Sidecar) Said(m *relay.Message) {
	s.metrics.sent.WithLabelValues("true").Inc()
	s.log.Info("sent", keyChat, m.ChatID, keyMsg, m.ID())
}

// Recorded shows watchers a message.
func (s *Sidecar) Recorded(m *relay.Message, e transcript.Entry, depth int, added bool) {
	s.metrics.recorded(e.Role, added)
	s.events.Publish(httpapi.Event{Type: httpapi.EventMessage, Channel: m.Channel, ChatID: m.ChatID,
		RelayMsgID: cmp.Or(group.EditOf(m), m.ID()), Role: e.Role, Sender: e.Sender, SenderName: m.SenderName,
		Content: e.Content, Depth: depth, Recalled: e.Recalled, ThreadID: m.ThreadID, ParentID: m.ParentID,
		RootID: m.RootID, TS: relay.Millis(e.TS), Edited: e.EditOf != "",
		Own: m.SenderAgentName == s.cfg.Agent && m.Role != relay.RoleUser})
	if m.Channel == relay.DefaultChannel && m.Role == relay.RoleUser {
		s.nameChat(m.ChatID)
	}
}

// Decided tells what the policy has decided.
func (s *Sidecar) Decided(m *relay.Message, d policy.Decision, mentioned bool) {
	s.metrics.decided(d)
	s.events.Publish(httpapi.Event{Type: httpapi.EventDecision, Channel: m.Channel, ChatID: m.ChatID, RelayMsgID: m.ID(),
		Sender: string(m.SenderAgentName), Depth: d.Depth, Decision: d})
	s.log.Info("decision", keyAgent, s.cfg.Agent, keyChat, m.ChatID, keyMsg, m.ID(), keySender, m.SenderAgentName, "allow",
		d.Allow, "tier", d.Tier, keyReason, d.Reason, "detail", d.Detail, "depth", d.Depth, "mentioned", mentioned, "judge_ms", d.JudgeMS)
}

// Stopped tells why a message ended.
func (s *Sidecar) Stopped(is core.Stop) {
	m, why := is.Msg, is.Reason
	s.metrics.stopped.WithLabelValues(string(why)).Inc()
	e := httpapi.Event{Type: httpapi.EventStop, Channel: m.Channel, ChatID: m.ChatID, RelayMsgID: cmp.Or(m.RelayMsgID, m.ID()),
		Sender: string(m.SenderAgentName), Reason: why}
	level := slog.LevelInfo
	if is.Decision != nil {
		s.Decided(m, *is.Decision, is.Mentioned)
		e.Depth = is.Decision.Depth
	}
	switch {
	case is.Decision != nil, why == relay.OwnMessage, why == relay.Duplicate: // the decision has been told
		level = slog.LevelDebug
	case why == relay.Malformed, why == relay.BadSignature:
		level = slog.LevelWarn
	}
	attrs := []any{keyReason, why, keyChat, m.ChatID, keyMsg, m.ID(), keySender, m.SenderAgentName}
	if is.Detail != "" {
		attrs = append(attrs, keyErr, is.Detail)
	}
	s.log.Log(context.Background(), level, "stopped", attrs...)
	if why != relay.OwnMessage {
		s.events.Publish(e)
	}
}

// Took learns from what sidecars say of themselves how people name their bots, also those that have not spoken yet.
func (s *Sidecar) Took(of loop.Chat, r *group.Record) {
	if r.Kind == group.KindSet && of.Channel == relay.DefaultChannel {
		go s.learnPeers(of) // the loop shares this, and is to be asked
	}
}

func (s *Sidecar) learnPeers(of loop.Chat) {
	var peers []group.Peer
	s.core.Group(of, func(g *group.State) { peers = g.Peers() })
	for _, p := range peers {
		if p.Agent != s.cfg.Agent && p.Name != "" {
			s.app.book.LearnBot(feishu.Bot{Agent: p.Agent, Name: p.Name})
		}
	}
}

// Told shows watchers a command, a notice or a verdict.
func (s *Sidecar) Told(of loop.Chat, r *group.Record) {
	if r.Kind == group.KindVerdict {
		o := outcomeOf(of, r.Of, r.Sender, r.Thread, *r.Verdict)
		s.events.Publish(httpapi.Event{Type: httpapi.EventOutcome, Outcome: &o})
		return
	}
	e := noticeEntry(r)
	s.events.Publish(httpapi.Event{Type: httpapi.EventNotice, Channel: of.Channel, ChatID: of.ID, RelayMsgID: r.Message,
		Role: transcript.RoleNotice, Sender: e.Sender, Content: e.Content, ThreadID: r.Thread, TS: r.TS, Mark: e.Mark})
}

// noticeEntry is a command or a notice as people see it in a transcript.
func noticeEntry(r *group.Record) transcript.Entry {
	mark := &transcript.Mark{Kind: string(r.Kind), Act: string(r.Act), Of: string(r.Of), By: r.By}
	for _, bot := range r.Bots {
		mark.Bots = append(mark.Bots, string(bot))
	}
	if len(r.Set) > 0 {
		values := map[string]json.RawMessage{}
		for key, v := range r.Set {
			values[key] = v.V
		}
		mark.Set, _ = json.Marshal(values) // values are JSON
	}
	return transcript.Entry{Role: transcript.RoleNotice, Content: r.Text, Sender: string(r.Agent),
		MessageID: string(r.Message), ThreadID: r.Thread, TS: int64(r.TS), Mark: mark}
}

// notices are the newest commands and notices of a chat, by time.
func (s *Sidecar) notices(channel, chat string) (list []transcript.Entry) {
	s.core.Group(core.ChatOf(channel, relay.ChatID(chat)), func(g *group.State) {
		for _, r := range g.Shown() {
			e := noticeEntry(&r)
			e.Recalled = g.Gone(r.Of) && r.Text == ""
			list = append(list, e)
		}
	})
	slices.SortStableFunc(list, func(a, b transcript.Entry) int { return cmp.Compare(a.TS, b.TS) })
	return list
}

// Recalled has everybody forget the text of a message.
func (s *Sidecar) Recalled(of loop.Chat, id relay.MessageID) {
	if s.channels.gateway != nil {
		s.channels.gateway.gateway.Forget(id)
	}
	s.events.Recall(of.Channel, of.ID, id)
}

// Ended tells what became of a delivery.
func (s *Sidecar) Ended(f *deliver.Effect) {
	of := loop.ChatOf(f.Chat)
	if f.Result == deliver.Delivered {
		s.away.Store(false)
		if f.Late {
			s.log.Info("the bot answered after the time-out", keyChat, of.ID, keyMsg, f.ID, keySender, f.From, keyDoor, f.Channel)
		}
		if isMail(f.Key) {
			go s.mail.ackLate(f.ID)
			return
		}
		s.metrics.delivered(f.Channel, f.Sent.Time())
		s.events.Publish(httpapi.Event{Type: httpapi.EventDelivery, Channel: of.Channel, ChatID: of.ID, RelayMsgID: f.ID,
			Sender: string(f.From), Door: f.Channel})
		s.log.Info("delivered", keyChat, of.ID, keyMsg, f.ID, keySender, f.From, keyDoor, f.Channel)
		return
	}
	why := relay.Undeliverable
	switch f.Result {
	case deliver.Expired:
		why = relay.Expired
	case deliver.Withdrawn:
		why = f.Reason
	default:
		s.problems.set(partInject, errors.New(f.Detail))
	}
	if !isMail(f.Key) {
		s.Stopped(core.Stop{Msg: &relay.Message{Channel: of.Channel, ChatID: of.ID, RelayMsgID: f.ID, SenderAgentName: f.From},
			Reason: why, Detail: f.Detail})
	}
}

// partInject is the part that delivers.
const partInject = "inject"

// Problems tells why a message is written again.
func (s *Sidecar) Problems(f *deliver.Effect) {
	s.problems.set(partInject, errors.New(f.Detail))
	s.metrics.retried.WithLabelValues(partInject).Inc()
	if !s.away.Swap(true) { // once an outage
		s.log.Warn("the bot does not accept messages; they wait", keyMsg, f.ID, keyErr, f.Detail)
	}
}

// mailed publishes an event about a direct message.
func (s *Sidecar) mailed(e agent.Event) {
	s.metrics.mail.WithLabelValues(string(e.What)).Inc()
	shown := &httpapi.MailEvent{What: string(e.What), ID: e.Envelope.ID, Type: string(e.Envelope.Type),
		From: string(e.Envelope.From), To: string(e.Envelope.To), Reason: e.Reason}
	if t := e.Envelope.Task; t != nil {
		shown.TaskID, shown.State = t.ID, string(t.State)
	}
	s.events.Publish(httpapi.Event{Type: httpapi.EventMail, Mail: shown})
}
