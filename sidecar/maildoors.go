package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

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

// Deliver hands m to the bot by the door that is open.
func (d *mailDoors) Deliver(ctx context.Context, m agent.Delivery) error {
	in := d.inbound(m)
	var err error
	switch door := &d.s.doors; {
	case m.Conversation != nil && in.Channel == relay.DefaultChannel && door.gateway != nil && door.gateway.connected():
		err = door.gateway.deliverMail(ctx, m, in)
	case door.webhook != nil:
		err = door.webhook.Deliver(ctx, in)
	case door.stream != nil && door.stream.Connected():
		err = door.stream.Deliver(ctx, in)
	default:
		return agent.ErrNoDoor
	}
	if errors.Is(err, errRefused) {
		return fmt.Errorf("%w: %w", agent.ErrRefused, err)
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
		if t, ok := d.s.talks.get(c.Channel, in.ChatID); ok {
			meta["chat_type"] = t.ChatType
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
