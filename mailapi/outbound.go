package mailapi

import (
	"encoding/json"
	"net/http"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// mailFields maps keys of a message's metadata to the envelope's fields.
var mailFields = map[string]string{"mailbox_type": "type", "mailbox_ttl": "ttl", "mailbox_trace": "trace",
	"mailbox_task": "task", "mailbox_callback": "callback", "mailbox_priority": "priority", "reply_to": "reply_to"}

// Outbound sends a message that a bot reports on the mailbox channel.
func (a *API) Outbound(r *http.Request, out relay.Outbound) (any, error) {
	if a.Mailbox == nil {
		return nil, errOff
	}
	draft, err := mailOf(out)
	if err != nil {
		return nil, a.refusal(r, err)
	}
	sent, err := a.Mailbox.Send(r.Context(), draft)
	if err != nil {
		return nil, a.refusal(r, err)
	}
	return struct {
		relay.Sent
		TaskID    string    `json:"task_id,omitempty"`
		ExpiresAt time.Time `json:"expires_at,omitzero"`
		Note      string    `json:"note,omitempty"`
	}{relay.Sent{RelayMsgID: relay.MessageID(sent.ID), Relayed: true}, sent.TaskID, sent.ExpiresAt, sent.Note}, nil
}

// mailOf converts out to an envelope. The content is its first part; further
// parts are in mailbox_parts.
func mailOf(out relay.Outbound) (d agent.Draft, err error) {
	parts := []any{}
	if out.Content != "" {
		parts = append(parts, mailbox.Part{Type: mailbox.PartText, Text: out.Content})
	}
	if raw, given := out.Metadata["mailbox_parts"]; given {
		var more []json.RawMessage
		if err := json.Unmarshal(raw, &more); err != nil {
			return d, mailbox.Invalid("metadata.mailbox_parts", "want a list of parts")
		}
		for _, p := range more {
			parts = append(parts, p)
		}
	}
	fields := map[string]json.RawMessage{}
	for name, value := range map[string]any{"to": out.ChatID, "content": map[string]any{"parts": parts}} {
		if fields[name], err = relay.Marshal(value); err != nil {
			return d, err
		}
	}
	for name, field := range mailFields {
		if raw, given := out.Metadata[name]; given {
			fields[field] = raw
		}
	}
	if raw, given := out.Metadata["correlation_id"]; given {
		if fields["metadata"], err = relay.Marshal(map[string]json.RawMessage{"correlationId": raw}); err != nil {
			return d, mailbox.Invalid("metadata.correlation_id", "is not JSON")
		}
	}
	if out.MessageID != "" {
		if fields["id"], err = relay.Marshal(out.MessageID); err != nil {
			return d, err
		}
	}
	if d.ForwardOf, err = takeID(out.Metadata, "mailbox_forward_of"); err != nil {
		return d, err
	}
	d.Envelope, err = envelope(fields)
	return d, err
}
