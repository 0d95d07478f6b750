package httpapi

import (
	"cmp"
	"context"
	"fmt"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// outbound is a message of the bot. The mailbox checks its own.
type outbound struct {
	Body outboundBody
}

type outboundBody relay.Outbound

func (o *outboundBody) Check() error {
	if o.Channel == relay.MailChannel {
		return nil
	}
	return (*relay.Outbound)(o).Check()
}

func (a *api) outbound(ctx context.Context, in outbound) (relay.Sent, error) {
	switch {
	case in.Body.Channel != relay.MailChannel:
		return a.Send(ctx, relay.Outbound(in.Body))
	case a.Mail == nil:
		return relay.Sent{}, relay.Errorf(web.CodeMailboxOff, "this API has no mailbox")
	}
	return a.Mail.Outbound(ctx, relay.Outbound(in.Body))
}

type inbound struct {
	Authorization string `header:"Authorization"`
	Body          relay.Heard
}

func (a *api) inbound(ctx context.Context, in inbound) (relay.Sent, error) {
	return a.Hear(ctx, in.Body, a.byPerson(in.Authorization))
}

type question struct {
	Body relay.Question
}

func (a *api) decide(ctx context.Context, in question) (policy.Decision, error) {
	return a.Decide(ctx, in.Body)
}

// Saying is a message to send for a bot without its own Feishu client.
type Saying struct {
	ChatID   relay.ChatID    `json:"chat_id"`
	Content  string          `json:"content"` // plain text or Markdown; "@Name" mentions the agent of that name
	ReplyTo  relay.MessageID `json:"reply_to"`
	InThread bool            `json:"reply_in_thread"`
	Mentions []relay.Mention `json:"mentions"`
	// IdempotencyKey may also be the header Idempotency-Key. A repeat within an hour sends nothing.
	IdempotencyKey string `json:"idempotency_key"`
}

// Said is the answer to a [Saying].
type Said struct {
	MessageIDs []relay.MessageID `json:"message_ids"` // a long text is several messages
	Relayed    bool              `json:"relayed"`
}

type saying struct {
	Key  string `header:"Idempotency-Key"`
	Body Saying
}

func (a *api) say(ctx context.Context, in saying) (Said, error) {
	if a.Say == nil {
		return Said{}, relay.Errorf(web.CodeNoConnector,
			"the sidecar holds no Feishu connection: set CONNECTOR=true, or let the bot send its messages itself")
	}
	in.Body.IdempotencyKey = cmp.Or(in.Body.IdempotencyKey, in.Key)
	said, err := a.Say(ctx, in.Body)
	said.MessageIDs = web.List(said.MessageIDs)
	return said, err
}

// Check returns a [*relay.Error] if a field is missing or wrong.
func (s *Saying) Check() error {
	return cmp.Or(relay.NeedText("chat_id", string(s.ChatID)), relay.NeedText("content", s.Content),
		relay.CheckField("chat_id", s.ChatID), relay.CheckField("reply_to", s.ReplyTo),
		relay.CheckField("idempotency_key", s.IdempotencyKey))
}

// Deliveries are the messages that the bot was given.
type Deliveries interface {
	// InProgress lists the unanswered messages.
	InProgress() []Delivery
	// Settle settles a message for the bot: state is delivered, refused or retry.
	// Its error is a [*relay.Error] if the caller should get the reason.
	Settle(ctx context.Context, id relay.MessageID, state, reason string) error
}

// Delivery is a message that the bot was given and has not answered.
type Delivery struct {
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Channel    string          `json:"channel"`
	ChatID     relay.ChatID    `json:"chat_id"`
	Door       string          `json:"door"`  // the delivery channel
	Since      string          `json:"since"` // when it was written to the bot, as [relay.Timestamp]
}

// InProgress is the answer of GET /v1/deliveries.
type InProgress struct {
	Deliveries []Delivery `json:"deliveries"`
}

func (a *api) deliveries(context.Context, webapi.None) (InProgress, error) {
	return InProgress{web.List(a.Deliveries.InProgress())}, nil
}

type settlement struct {
	ID   relay.MessageID `path:"relay_msg_id"`
	Body struct {
		State  string `json:"state" enum:"|delivered|refused|retry"`
		Reason string `json:"reason"`
	} `body:"optional"`
}

// Settled is the answer of POST /v1/deliveries/{relay_msg_id}.
type Settled struct {
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	State      string          `json:"state"`
}

// maxReason is the most bytes of a delivery's reason; more is refused.
const maxReason = 4 << 10

func (a *api) settleDelivery(ctx context.Context, in settlement) (Settled, error) {
	if n := len(in.Body.Reason); n > maxReason {
		return Settled{}, a.web.Wrong("reason", fmt.Sprintf("has %d bytes, at most %d", n, maxReason))
	}
	out := Settled{in.ID, cmp.Or(in.Body.State, "delivered")}
	return out, a.Deliveries.Settle(ctx, in.ID, out.State, in.Body.Reason)
}
