package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"feishu-relay/httpapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// mailChannel is the channel of what belongs in no chat.
const mailChannel = "mailbox"

// mailDoors hand mail to the bot: what belongs in a conversation of Feishu's by
// the gateway where the bot is there, all else by INJECT_URL, or by the stream
// when somebody reads it. A bot with none of these reads its inbox itself.
type mailDoors struct {
	s *Sidecar

	mu      sync.Mutex
	changed chan struct{} // closed when a door has opened; guarded by mu
}

var _ agent.Doors = (*mailDoors)(nil)

func newMailDoors(s *Sidecar) *mailDoors { return &mailDoors{s: s, changed: make(chan struct{})} }

// Changed is closed when a door has opened since.
func (d *mailDoors) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// watch passes on until ctx is done that a door has opened.
func (d *mailDoors) watch(ctx context.Context) {
	for ctx.Err() == nil {
		var gateway, stream <-chan struct{}
		if d.s.doors.gateway != nil {
			gateway = d.s.doors.gateway.changed()
		}
		if d.s.doors.stream != nil {
			stream = d.s.doors.stream.Arrived()
		}
		d.mu.Lock()
		close(d.changed) // also once at the start: it may have opened before we looked
		d.changed = make(chan struct{})
		d.mu.Unlock()
		select {
		case <-gateway:
		case <-stream:
		case <-ctx.Done():
		}
	}
}

// mailPatience is how long a bot at the gateway may take for one message; then
// others have their turn, and it is given it again. Some think before they
// acknowledge.
const mailPatience = webhookTimeout

var errAway = errors.New("the bot has left the gateway")

// Deliver tries once to hand m to the bot by the door that is open: other mail,
// which may fit another door, waits for this.
func (d *mailDoors) Deliver(ctx context.Context, m agent.Delivery) error {
	in := d.inbound(m)
	var err error
	switch door := &d.s.doors; {
	case m.Conversation != nil && in.Channel == relay.DefaultChannel && door.gateway != nil && door.gateway.connected():
		err = d.show(ctx, m, in)
	case door.webhook != nil:
		err = door.webhook.Try(ctx, in)
	case door.stream != nil:
		err = door.stream.Offer(ctx, in)
	default:
		return agent.ErrNoDoor
	}
	switch {
	case errors.Is(err, errRefused):
		return fmt.Errorf("%w: %w", agent.ErrRefused, err)
	case errors.Is(err, httpapi.ErrNoReader):
		return agent.ErrNoDoor
	}
	return err
}

// show gives m to a bot at the gateway as long as it is there.
func (d *mailDoors) show(ctx context.Context, m agent.Delivery, in relay.Inbound) error {
	door := d.s.doors.gateway
	ctx, cancel := context.WithTimeoutCause(ctx, mailPatience, fmt.Errorf("the bot did not acknowledge within %s", mailPatience))
	defer cancel()
	ctx, left := context.WithCancelCause(ctx)
	defer left(nil)
	go func() {
		for ctx.Err() == nil {
			changed := door.changed()
			if !door.connected() {
				left(errAway)
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	err := door.deliverMail(ctx, m, in)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// inbound is m as the bot gets it (DESIGN 5.2, MAILBOX.md A).
func (d *mailDoors) inbound(m agent.Delivery) relay.Inbound {
	e := m.Envelope
	in := relay.Inbound{Channel: mailChannel, SenderID: string(e.From), ChatID: relay.ChatID(e.From), Content: mailText(e),
		Timestamp: relay.Timestamp(e.Timestamp), SessionKeyOverride: mailChannel + ":" + string(e.From)}
	meta := map[string]any{"from_bot": true, "is_mentioned": true, "sender_agent_name": e.From, "message_id": e.ID,
		"relay_msg_id": relay.MessageID(e.ID), "mailbox_type": e.Type, "mailbox_parts": e.Content.Parts, "mailbox_ttl": e.Hops,
		"mailbox_trace": e.Trace, "mailbox_priority": e.Priority}
	if e.Task != nil {
		meta["mailbox_task"] = e.Task
	}
	if e.Callback != nil {
		meta["mailbox_callback"] = e.Callback
	}
	for k, v := range map[string]string{"reply_to": e.ReplyTo, "correlation_id": e.Metadata.CorrelationID, "goal_id": e.Metadata.Goal} {
		if v != "" {
			meta[k] = v
		}
	}
	if c := m.Conversation; c != nil {
		in.Channel, in.ChatID, in.SessionKeyOverride = c.Channel, relay.ChatID(c.Chat()), c.SessionID
		if kind := d.s.talkIn(c.Channel, in.ChatID).ChatType; kind != "" {
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
