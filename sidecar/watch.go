package sidecar

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/dedup"
	"feishu-relay/httpapi"
	"feishu-relay/mailbox/agent"
	"feishu-relay/outcome"
	"feishu-relay/relay"
)

// maxAwaited is how many delivered messages an acknowledgement may still come
// for; of an older one it is not noted.
const maxAwaited = 512

// watch is what people see of the bot's messages: events, and what became of each message
// at this bot, which everybody's watchers read.
type watch struct {
	*base
	chats     *chats
	records   *records
	app       *app
	events    *httpapi.Events
	outcomes  *outcome.Log
	showing   *dedup.Window                                // messages that watchers were shown
	delivered *lru.Cache[relay.MessageID, outcome.Outcome] // on the stream, where the bot may acknowledge it
	counting  sync.WaitGroup                               // own messages whose depth is counted, or that others may refuse
}

func openWatch(b *base, c *chats, r *records, a *app, ls *lanes) *watch {
	w := &watch{base: b, chats: c, records: r, app: a, events: &httpapi.Events{}, showing: dedup.Memory(dedup.DefaultSize)}
	w.outcomes = outcome.New(outcome.Options{Box: ls.outcomes.box, Queue: ls.outcomes.queue, Agent: b.cfg.Agent,
		Secret: string(b.cfg.RelaySecret), Logger: b.log})
	w.delivered, _ = lru.New[relay.MessageID, outcome.Outcome](maxAwaited) // fails only for a size below 1
	return w
}

// note tells what became of p so far, where the bot is in its group: others read
// it, whom a private chat is nothing to.
func (w *watch) note(p *arrival, change func(*outcome.Outcome)) {
	if !ofGroup(p.msg.Metadata) || !w.chats.in(p.msg.Channel, p.msg.ChatID) {
		return
	}
	if p.outcome == nil {
		p.outcome = &outcome.Outcome{Agent: w.cfg.Agent, Channel: p.msg.Channel, ChatID: p.msg.ChatID,
			RelayMsgID: relay.MessageID(p.key), Sender: p.msg.SenderAgentName, ThreadID: p.msg.ThreadID}
	}
	p.outcome.At = relay.MillisOf(time.Now())
	change(p.outcome)
	w.outcomes.Note(*p.outcome)
}

// settled makes sure that what was noted of p is told even if this process dies. It is
// called before p counts as handled.
func (w *watch) settled(p *arrival) {
	if p.outcome != nil {
		w.outcomes.Settle(p.outcome.Channel, p.outcome.ChatID, p.outcome.RelayMsgID)
	}
}

// told are the reasons of a stop that a watcher of the group wants to know of.
// The others say nothing of the message but that it came twice, was this bot's
// own, or is none.
var told = []relay.Reason{relay.Expired, relay.Recalled, relay.Muted, relay.Paused, relay.StoppedByPerson, relay.NotForMe,
	relay.NotMentioned, relay.Budget, relay.MaxDepth, relay.JudgeNo, relay.JudgeError, relay.Undeliverable}

func (w *watch) noteStopped(p *arrival, why relay.Reason) {
	// What is not signed may be anybody's, unless its sender is known to have another secret.
	_, secret := errors.AsType[*SecretError](p.cause)
	if p.History || !slices.Contains(told, why) && !secret { // of what was there before this sidecar there is nothing to tell
		return
	}
	w.note(p, func(o *outcome.Outcome) {
		o.Stopped = why
		if p.cause != nil {
			o.Detail = p.cause.Error()
		}
	})
}

func (w *watch) noteDecided(p *arrival) {
	w.note(p, func(o *outcome.Outcome) { o.Decision = new(p.decision) })
}

func (w *watch) noteDelivered(p *arrival, door string) {
	w.note(p, func(o *outcome.Outcome) { o.Delivered, o.Door = o.At, door })
	if door != doorStream || p.outcome == nil {
		return
	}
	if early, ok, _ := w.delivered.PeekOrAdd(p.msg.RelayMsgID, *p.outcome); ok {
		w.note(p, func(o *outcome.Outcome) { o.Acknowledged = early.Acknowledged })
	}
}

// noteAcknowledged tells that the bot acknowledged a message on the stream. It
// may do so before the delivery is noted, which then finds the time here.
func (w *watch) noteAcknowledged(id relay.MessageID) {
	now := relay.MillisOf(time.Now())
	o, ok, _ := w.delivered.PeekOrAdd(id, outcome.Outcome{Acknowledged: now})
	if !ok || o.Agent == "" {
		return
	}
	o.At, o.Acknowledged = now, now
	w.outcomes.Note(o)
}

// mailed publishes an event about a direct message.
func (w *watch) mailed(e agent.Event) {
	w.metrics.mail.WithLabelValues(string(e.What)).Inc()
	shown := &httpapi.MailEvent{What: string(e.What), ID: e.Envelope.ID, Type: string(e.Envelope.Type),
		From: string(e.Envelope.From), To: string(e.Envelope.To), Reason: e.Reason}
	if t := e.Envelope.Task; t != nil {
		shown.TaskID, shown.State = t.ID, string(t.State)
	}
	w.events.Publish(httpapi.Event{Type: httpapi.EventMail, Mail: shown})
}

// groupShown is what GET /v1/transcripts returns of a group: its name by the
// groups file, else by Feishu, and the limits that hold in it.
func (w *watch) groupShown(channel string, chat relay.ChatID) httpapi.Group {
	group := w.chats.group(chat)
	limits := w.records.limits(channel, chat)
	name := group.Name
	if channel == relay.DefaultChannel {
		name = cmp.Or(name, w.app.book.Chat(chat).Name)
	}
	return httpapi.Group{Name: name,
		Limits: httpapi.GroupLimits{MaxDepth: limits.MaxDepth, Threshold: limits.Threshold, Check: limits.Check}}
}

// shown lets watchers see a message, once.
func (w *watch) shown(m *relay.Message, sent time.Time, own bool) {
	key := string(m.ID())
	if w.showing.Claim(key) != dedup.New {
		return
	}
	_ = w.showing.Settle(key, true) // in memory only
	gone := w.chats.wasRecalled(m)
	if gone {
		m = noText(m)
	}
	entry := entryOf(m, sent)
	e := httpapi.Event{Type: httpapi.EventMessage, Channel: m.Channel, ChatID: m.ChatID,
		RelayMsgID: cmp.Or(editOf(m), m.RelayMsgID),
		Role:       entry.Role, Sender: entry.Sender, SenderName: m.SenderName, Content: m.Content, ThreadID: m.ThreadID,
		ParentID: m.ParentID, RootID: m.RootID, TS: relay.MillisOf(sent), Own: own,
		Edited: editOf(m) != "", Recalled: gone}
	if entry.Role != relay.RoleAssistant || !w.events.Watched() {
		w.events.Publish(e)
		return
	}
	counted := func() {
		limits := w.records.limits(m.Channel, m.ChatID)
		// 0: not known
		e.Depth, _ = w.chats.depth(where{channel: m.Channel, chat: m.ChatID}, policyEntry(entry), limits)
		w.events.Publish(e)
	}
	if own { // the bot waits for the answer to its send, and not for the transcript
		w.counting.Go(counted)
		return
	}
	counted()
}

// withheld tells that a person's message is not for this bot.
func (w *watch) withheld(m *relay.Message, why relay.Reason) {
	p := &arrival{key: string(m.ID()), msg: *m}
	w.note(p, func(o *outcome.Outcome) { o.Stopped = why })
	w.settled(p)
	w.stopped(p, "steer", why)
}

// gave notes that the bot has a person's message: by the gateway, or ("") it reported the message itself.
func (w *watch) gave(m *relay.Message, door string) {
	w.note(&arrival{key: string(m.ID()), msg: *m}, func(o *outcome.Outcome) { o.Delivered, o.Door = o.At, door })
}

// stopped reports why p ended.
func (w *watch) stopped(p *arrival, stage string, why relay.Reason) {
	w.metrics.stopped.WithLabelValues(string(why)).Inc()
	level := slog.LevelInfo
	switch {
	case why == relay.OwnMessage, why == relay.Duplicate, stage == stagePolicy: // the decision has been told
		level = slog.LevelDebug
	case why == relay.Malformed, why == relay.BadSignature:
		level = slog.LevelWarn
	}
	attrs := []any{keyReason, why, keyStage, stage, keyChat, p.msg.ChatID, keyMsg, p.key, keySender,
		p.msg.SenderAgentName}
	if p.cause != nil {
		attrs = append(attrs, keyErr, p.cause)
	}
	w.log.Log(context.Background(), level, "stopped", attrs...)
	if why == relay.OwnMessage {
		return
	}
	w.events.Publish(httpapi.Event{Type: httpapi.EventStop, Channel: p.msg.Channel, ChatID: p.msg.ChatID,
		RelayMsgID: p.msg.RelayMsgID, Sender: string(p.msg.SenderAgentName), Reason: why, Depth: p.decision.Depth})
}
