package mailapi

import (
	"context"
	"encoding/json"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// maxReason is the most bytes of a nack's message; more is refused.
const maxReason = 4 << 10

// Inbox is the answer of GET /v1/mailbox/inbox: the messages that wait for the bot. It
// delivers none.
type Inbox struct {
	Messages []agent.Mail `json:"messages"`
	Total    int          `json:"total"`
}

type inbox struct {
	Limit int `query:"limit" range:"1..200" default:"50"`
}

func (a *API) inbox(ctx context.Context, in inbox) (Inbox, error) {
	waiting, total, err := a.Mailbox.Inbox(ctx, in.Limit)
	return Inbox{web.List(waiting), total}, err
}

type drain struct {
	Limit  int    `query:"limit" range:"0..200" default:"50"`
	Goal   mailID `query:"goal"`
	Cursor string `query:"cursor"`
}

// drain returns messages, which wait until they are confirmed, such as by the cursor; with a limit of 0 it only
// confirms.
func (a *API) drain(ctx context.Context, in drain) (agent.Drained, error) {
	if in.Limit == 0 && in.Cursor == "" {
		return agent.Drained{}, mailbox.Invalid("limit", "want a number from 1 to 200, or a cursor")
	}
	d, err := a.Mailbox.Drain(ctx, in.Limit, string(in.Goal), in.Cursor)
	d.Messages = web.List(d.Messages)
	return d, err
}

// envelope is an envelope of any type, of which most fields are optional.
type envelope struct {
	Body map[string]json.RawMessage
}

func (a *API) sendMail(ctx context.Context, in envelope) (agent.Sent, error) {
	return a.send(ctx, in.Body)
}

// send sends an envelope and forward_of. The mailbox checks the sender.
func (a *API) send(ctx context.Context, fields map[string]json.RawMessage) (agent.Sent, error) {
	var d agent.Draft
	for _, name := range []string{"forward_of", "forwardOf"} {
		if string(fields[name]) == `""` {
			delete(fields, name)
		}
		_ = json.Unmarshal(fields[name], &d.ForwardOf) // what it is decode checks
	}
	var err error
	if d.Envelope, err = decode(fields); err != nil {
		return agent.Sent{}, err
	}
	return a.Mailbox.Send(ctx, d)
}

// decode reads an envelope to send, of fields that are JSON.
func decode(fields any) (mailbox.Envelope, error) {
	raw, err := relay.Marshal(fields)
	if err != nil {
		return mailbox.Envelope{}, err
	}
	return mailbox.DecodeDraft(raw)
}

type oneMessage struct {
	ID mailID `path:"id"`
}

// MessageID is the answer of routes that settle a message or send a dead letter again.
type MessageID struct {
	ID mailID `json:"id"`
}

func (a *API) ack(ctx context.Context, in oneMessage) (MessageID, error) {
	return MessageID(in), a.Mailbox.Ack(ctx, string(in.ID))
}

func (a *API) replay(ctx context.Context, in oneMessage) (MessageID, error) {
	return MessageID(in), a.Mailbox.Replay(ctx, string(in.ID))
}

type nack struct {
	ID   mailID `path:"id"`
	Body struct {
		Code string `json:"code" enum:"AGENT_BUSY|AGENT_OFFLINE|INVALID_MESSAGE|TASK_NOT_FOUND|UNAUTHORIZED|RATE_LIMITED"`

		Message string `json:"message"`
	}
}

// Nack is the answer of POST /v1/mailbox/messages/{id}/nack.
type Nack struct {
	ID   mailID `json:"id"`
	Code string `json:"code"`
}

func (a *API) nack(ctx context.Context, in nack) (Nack, error) {
	if n := len(in.Body.Message); n > maxReason {
		return Nack{}, mailbox.Invalid("message", "has %d bytes, at most %d", n, maxReason)
	}
	return Nack{in.ID, in.Body.Code}, a.Mailbox.Nack(ctx, string(in.ID), mailbox.Code(in.Body.Code), in.Body.Message)
}

// DeadLetters is the answer of GET /v1/mailbox/dead-letters.
type DeadLetters struct {
	DeadLetters []agent.DeadLetter `json:"dead_letters"`
	Earlier     string             `json:"earlier,omitempty"`
}

type deadLetters struct {
	Limit  int    `query:"limit" range:"1..200" default:"50"`
	Before string `query:"before"`
}

func (a *API) deadLetters(_ context.Context, in deadLetters) (out DeadLetters, err error) {
	out.DeadLetters, out.Earlier, err = webapi.Page(a.Mailbox.DeadLetters(), webapi.Paged(in),
		func(d *agent.DeadLetter) webapi.Place { return webapi.Place{At: d.DeadAt.UnixMilli(), Key: d.ID} })
	return out, err
}
