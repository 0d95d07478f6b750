package sidecar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu/peerchat"
	"feishu-relay/internal/delivery"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// mailDoors hand mail to the bot: what belongs in a conversation of Feishu's by
// the gateway where the bot is there, all else by INJECT_URL, or by the stream
// when somebody reads it; with MAILBOX_GATEWAY=on by the gateway, too. A bot with none of these reads its inbox itself.
type mailDoors struct {
	app     *app
	deliver *deliverer
	peers   *peerMail // nil where mail does not come by the gateway as private chats

	mu      sync.Mutex
	changed chan struct{} // closed when a door has opened; guarded by mu, as the rest is
	again   *time.Timer   // opens the doors at next, for a task that waits for another one
	next    time.Time     // zero: not at all
}

var _ agent.Channels = (*mailDoors)(nil)

func newMailDoors(a *app, d *deliverer) *mailDoors {
	doors := &mailDoors{app: a, deliver: d, changed: make(chan struct{})}
	doors.again = time.AfterFunc(math.MaxInt64, doors.open)
	return doors
}

// open reports that a door has opened.
func (d *mailDoors) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = time.Time{}
	close(d.changed)
	d.changed = make(chan struct{})
}

// openAfter has a door open after a time, or before.
func (d *mailDoors) openAfter(wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := time.Now().Add(wait); d.next.IsZero() || at.Before(d.next) {
		d.next = at
		d.again.Reset(wait)
	}
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
		if d.deliver.doors.gateway != nil {
			gateway = d.deliver.doors.gateway.Changed()
		}
		if d.deliver.doors.stream != nil {
			stream = d.deliver.doors.stream.Arrived()
		}
		d.open() // also once at the start: it may have opened before we looked
		select {
		case <-gateway:
		case <-stream:
		case <-ctx.Done():
		}
	}
}

// Deliver writes m once to the channel that is open for it, and returns when the
// bot has answered: other mail, which may fit another channel, goes on.
func (d *mailDoors) Deliver(ctx context.Context, m agent.Delivery, on agent.Progress) error {
	in := d.inbound(m)
	ch := d.channel(m, in)
	if ch == nil {
		return agent.ErrNoChannel
	}
	if _, ok := ch.(peerDoor); ok {
		if wait := d.peers.waits(m.Envelope); wait > 0 {
			d.openAfter(wait)
			return agent.ErrNoChannel
		}
	}
	giving, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(settledCause(ctx)) })()
	err := d.deliver.deliveries.Attempt(giving, delivery.Message{Inbound: in,
		Ref: delivery.Ref{ID: relay.MessageID(m.ID),
			Key: mailKey(m), Channel: in.Channel, Chat: in.ChatID, Sender: relay.AgentName(m.From), Sent: m.Timestamp,
			Mail: true}},
		ch, delivery.Hooks{Written: on.Written, Next: on.Next})
	switch {
	case errors.Is(err, delivery.ErrRefused):
		return fmt.Errorf("%w: %w", agent.ErrRefused, err)
	case errors.Is(err, delivery.ErrTimedOut):
		return fmt.Errorf("%w: %w", agent.ErrTimedOut, err)
	case (errors.Is(err, delivery.ErrNotWritten) || errors.Is(err, delivery.ErrEnded)) && !ch.Open():
		return agent.ErrNoChannel
	}
	return err
}

// settledCause is why ctx was cancelled, as [delivery.Deliveries.Attempt] reads it.
func settledCause(ctx context.Context) error {
	cause := context.Cause(ctx)
	if s, ok := errors.AsType[*agent.Settled](cause); ok {
		if s.Refused {
			return &delivery.Settled{State: delivery.Refused}
		}
		return &delivery.Settled{State: delivery.Delivered}
	}
	return cause
}

// mailKey is what a piece of mail is known by among the deliveries.
func mailKey(m agent.Delivery) string { return relay.MailChannel + "/" + string(m.From) + "/" + m.ID }

// channel is the one that is open for m; nil: none.
func (d *mailDoors) channel(m agent.Delivery, in relay.Inbound) delivery.Channel {
	switch doors := &d.deliver.doors; {
	case d.peers != nil && peerchat.IsID(in.ChatID) && doors.gateway.Open():
		return peerDoor{doors.gateway, d.peers, m}
	case m.Conversation != nil && in.Channel == relay.DefaultChannel && doors.gateway != nil && doors.gateway.Open():
		return doors.gateway
	case d.peers != nil && doors.gateway.Open() && (m.Conversation == nil || in.Channel != relay.DefaultChannel):
		return peerDoor{doors.gateway, d.peers, m}
	case doors.webhook != nil:
		return doors.webhook
	case doors.stream != nil && doors.stream.Connected():
		return streamDoor{doors.stream}
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
