package mailapi

import (
	"context"
	"encoding/json"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// mailFields maps keys of a message's metadata to the envelope's fields.
var mailFields = map[string]string{"mailbox_type": "type", "mailbox_ttl": "ttl", "mailbox_trace": "trace",
	"mailbox_task": "task", "mailbox_callback": "callback", "mailbox_priority": "priority", "reply_to": "reply_to",
	"correlation_id": "correlation_id", "mailbox_forward_of": "forward_of"}

// Outbound sends a message that a bot reports on the mailbox channel. Its error is a [*relay.Error].
func (a *API) Outbound(ctx context.Context, out relay.Outbound) (relay.Sent, error) {
	if a.Mailbox == nil {
		return relay.Sent{}, errOff
	}
	fields, err := mailOf(out)
	if err == nil {
		sent, failed := a.send(ctx, fields)
		if err = failed; err == nil {
			return relay.Sent{RelayMsgID: relay.MessageID(sent.ID), Relayed: true, TaskID: sent.TaskID,
				ExpiresAt: sent.ExpiresAt, Note: sent.Note}, nil
		}
	}
	return relay.Sent{}, a.web.Refusal(ctx, "POST /v1/outbound", err)
}

// mailOf returns the fields of out's envelope. The content is its first part; further parts are in mailbox_parts.
func mailOf(out relay.Outbound) (map[string]json.RawMessage, error) {
	parts := []any{}
	if out.Content != "" {
		parts = append(parts, mailbox.TextPart(out.Content))
	}
	var more []json.RawMessage
	if raw, given := out.Metadata["mailbox_parts"]; given && json.Unmarshal(raw, &more) != nil {
		return nil, mailbox.Invalid("metadata.mailbox_parts", "want a list of parts")
	}
	for _, p := range more {
		parts = append(parts, p)
	}
	fields := map[string]json.RawMessage{}
	for name, field := range mailFields {
		if raw, given := out.Metadata[name]; given {
			fields[field] = raw
		}
	}
	own := map[string]any{"to": out.ChatID, "content": map[string]any{"parts": parts}}
	if out.MessageID != "" {
		own["id"] = out.MessageID
	}
	for name, value := range own {
		var err error
		if fields[name], err = relay.Marshal(value); err != nil {
			return nil, err
		}
	}
	return fields, nil
}
