package sidecar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// mailDoors hand mail to the bot: what belongs in a conversation of Feishu's by the gateway where the bot is there, all
// else by INJECT_URL, or by the stream when somebody reads it; with MAILBOX_GATEWAY=on by the gateway, too. A bot with
// none of these reads its inbox itself.
type mailDoors struct {
	*mail
	again *time.Timer // opens the doors for tasks that wait

	mu      sync.Mutex
	changed chan struct{} // closed when a door has opened; guarded by mu
}

var _ agent.Channels = (*mailDoors)(nil)

func newMailDoors(m *mail) *mailDoors {
	doors := &mailDoors{mail: m, changed: make(chan struct{})}
	doors.again = time.AfterFunc(math.MaxInt64, doors.open)
	return doors
}

// open reports that a door has opened.
func (d *mailDoors) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.changed)
	d.changed = make(chan struct{})
}

// Changed is closed when a door has opened since.
func (d *mailDoors) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// watch passes on until ctx is done that a door has opened.
func (d *mailDoors) watch(ctx context.Context) {
	defer d.again.Stop()
	for ctx.Err() == nil {
		var gateway, stream <-chan struct{}
		if d.channels.gateway != nil {
			gateway = d.channels.gateway.Changed()
		}
		if d.channels.stream != nil {
			stream = d.channels.stream.Changed()
		}
		d.open() // also once at the start: it may have opened before we looked
		select {
		case <-gateway:
		case <-stream:
		case <-ctx.Done():
		}
	}
}

// Deliver writes m once to the channel that is open for it, and returns when the bot has answered: other mail, which
// may fit another channel, goes on.
func (d *mailDoors) Deliver(ctx context.Context, m agent.Delivery, on agent.Progress) error {
	in := d.inbound(m)
	w := d.channel(m, in)
	if w == nil {
		return agent.ErrNoChannel
	}
	if w.wait > 0 {
		d.again.Reset(min(w.wait, time.Minute)) // the first task may end before
		return agent.ErrNoChannel
	}
	key := mailKey(m)
	var text *relay.Inbound
	if w.channel.Name() == doorStream {
		text = &in
	}
	result, detail := d.core.GiveMail(ctx, core.Mail{Key: key, ID: relay.MessageID(m.ID), From: relay.AgentName(m.From),
		Sent: relay.MillisOf(m.Timestamp), Bytes: len(in.Content), Only: w.channel.Name(), Text: text,
		Write: func(ctx context.Context, conn uint64, again bool, written func()) error {
			return w.write(ctx, &core.Input{Inbound: in, ID: relay.MessageID(m.ID), Key: key, Conn: conn}, again, written)
		},
		Written: func() {
			on.Written()
			if !w.serial {
				on.Next()
			}
		},
		Settled: func() deliver.Result {
			said, ok := errors.AsType[*agent.Settled](context.Cause(ctx))
			switch {
			case !ok:
				return ""
			case said.Refused:
				return deliver.Refused
			}
			return deliver.Delivered
		}})
	on.Next()
	switch result {
	case deliver.Delivered:
		return nil
	case deliver.Refused:
		return fmt.Errorf("%w: %s", agent.ErrRefused, detail)
	case deliver.TimedOut:
		return fmt.Errorf("%w: %s", agent.ErrTimedOut, detail)
	}
	if w.channel.Conn() == 0 {
		return agent.ErrNoChannel
	}
	return errors.New(detail)
}

// mailPrefix begins the keys of mail among the deliveries.
const mailPrefix = relay.MailChannel + "/"

func isMail(key string) bool { return strings.HasPrefix(key, mailPrefix) }

// mailKey is what a piece of mail is known by among the deliveries.
func mailKey(m agent.Delivery) string { return mailPrefix + string(m.From) + "/" + m.ID }

// mailWay is how a piece of mail goes to the bot.
type mailWay struct {
	channel core.Channel
	serial  bool          // the next one of the conversation waits for the answer
	wait    time.Duration // it has to wait for so long first
	write   func(ctx context.Context, in *core.Input, again bool, written func()) error
}

// channel is the way that is open for m; nil: none.
func (d *mailDoors) channel(m agent.Delivery, in relay.Inbound) *mailWay {
	doors := &d.Sidecar.channels
	gateway := doors.gateway
	if gateway != nil && gateway.Conn() == 0 {
		gateway = nil
	}
	inFeishu := m.Conversation != nil && in.Channel == relay.DefaultChannel
	switch {
	case gateway != nil && d.peers != nil && (peerchat.IsID(in.ChatID) || !inFeishu):
		return &mailWay{gateway, true, d.peers.waits(m.Envelope),
			func(ctx context.Context, in *core.Input, again bool, written func()) error {
				return d.peers.write(ctx, gateway, m, in, again, written)
			}}
	case gateway != nil && inFeishu:
		return &mailWay{gateway, false, 0, func(ctx context.Context, in *core.Input, again bool, written func()) error {
			return gateway.give(ctx, gateway.mailEvent(in.Inbound, relay.AgentName(m.From), in.ID), in, again, written)
		}}
	case doors.webhook != nil:
		return &mailWay{doors.webhook, true, 0, doors.webhook.Write}
	case doors.stream != nil && doors.stream.Connected():
		return &mailWay{streamDoor{doors.stream}, false, 0, streamDoor{doors.stream}.Write}
	}
	return nil
}

// inbound is m as the bot gets it (docs/protocol.md 6.10).
func (d *mailDoors) inbound(m agent.Delivery) relay.Inbound {
	e := m.Envelope
	in := relay.Inbound{Channel: relay.MailChannel, Plain: plainMail(e), SenderID: string(e.From),
		ChatID: relay.ChatID(e.From), Content: mailText(e),
		Timestamp: relay.Timestamp(e.Timestamp), SessionKeyOverride: relay.MailChannel + ":" + string(e.From)}
	meta := map[string]any{"from_bot": true, "is_mentioned": true, "sender_agent_name": e.From, "message_id": e.ID,
		"relay_msg_id": relay.MessageID(e.ID), "mailbox_type": e.Type, "mailbox_parts": e.Content.Parts, "mailbox_ttl": e.Hops,
		"mailbox_trace": e.Trace, "mailbox_priority": e.Priority}
	if e.Task != nil {
		meta["mailbox_task"] = e.Task
	}
	if e.Callback != nil {
		meta["mailbox_callback"] = e.Callback
	}
	for k, v := range map[string]string{"reply_to": e.ReplyTo, "correlation_id": e.Metadata.CorrelationID,
		"goal_id": e.Metadata.Goal} {
		if v != "" {
			meta[k] = v
		}
	}
	if c := m.Conversation; c != nil {
		in.Channel, in.ChatID, in.SessionKeyOverride = c.Channel, relay.ChatID(c.Chat()), c.SessionID
		if kind := d.app.talkIn(c.Channel, in.ChatID).ChatType; kind != "" {
			meta["chat_type"] = kind
		}
	}
	in.Metadata = meta
	return in
}

// mailText is the text parts of e. A message without any says what it is about: many
// frameworks drop an empty one.
func mailText(e mailbox.Envelope) string {
	if text := e.Text(); strings.TrimSpace(text) != "" {
		return text
	}
	if e.Task != nil && e.Task.State != "" && !e.Type.GivesTask() {
		return fmt.Sprintf("%s: task %s is %s.", e.From, e.Task.ID, e.Task.State)
	}
	return mailParts(e)
}

// plainMail is what e says to a bot that is shown only text.
func plainMail(e mailbox.Envelope) string {
	text := mailText(e)
	if parts := mailParts(e); parts != "" && parts != text {
		text += "\n" + parts
	}
	return text
}

// mailParts is what e holds beside text, for those who see only text.
func mailParts(e mailbox.Envelope) string {
	var lines []string
	for _, p := range e.Content.Parts {
		switch p.Type {
		case mailbox.PartData:
			lines = append(lines, string(p.Data))
		case mailbox.PartFile:
			lines = append(lines, "file: "+p.Path)
		}
	}
	return strings.Join(lines, "\n")
}
