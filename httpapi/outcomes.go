package httpapi

import (
	"context"

	"feishu-relay/internal/web"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Outcome is what became of one message at one bot, as far as is known. It holds no
// message text.
type Outcome struct {
	Agent      relay.AgentName `json:"agent"` // whose sidecar noted it
	Channel    string          `json:"channel"`
	ChatID     relay.ChatID    `json:"chat_id"`
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Sender     relay.AgentName `json:"sender,omitempty"`    // author of the message
	ThreadID   string          `json:"thread_id,omitempty"` // topic of the message

	At        relay.Millis     `json:"at"`                 // of the newest change
	Decision  *policy.Decision `json:"decision,omitempty"` // nil: not made, or not yet. Immutable
	Stopped   relay.Reason     `json:"stopped,omitempty"`  // why it will not be delivered
	Detail    string           `json:"detail,omitempty"`   // the error behind Stopped
	Delivered relay.Millis     `json:"delivered_at,omitempty"`
	Door      string           `json:"door,omitempty"` // delivery channel: gateway, webhook or stream
}

// Outcomes returns at most limit outcomes of the newest messages of a chat at all bots, the newest last. complete
// reports that these are the newest limit, or all.
type Outcomes func(ctx context.Context, channel string, chat relay.ChatID, limit int) (list []Outcome, complete bool,
	err error)

var errNotInChat = relay.Errorf(web.CodeNotFound, "the bot is not in this chat, or has no message of it")

// OutcomeList is the answer of GET /v1/outcomes: the outcomes of a chat's newest messages.
type OutcomeList struct {
	Channel  string       `json:"channel"`
	ChatID   relay.ChatID `json:"chat_id"`
	Outcomes []Outcome    `json:"outcomes"` // oldest first
	Complete bool         `json:"complete"`
}

type outcomes struct {
	Channel string       `query:"channel" default:"feishu"`
	ChatID  relay.ChatID `query:"chat_id"`
	Limit   int          `query:"limit" range:"1..5000" default:"1000"`
}

func (a *api) outcomes(ctx context.Context, in outcomes) (OutcomeList, error) {
	if in.ChatID == "" {
		return OutcomeList{}, a.web.Wrong("chat_id", "is missing")
	}
	if !a.Visible(in.Channel, in.ChatID) {
		return OutcomeList{}, errNotInChat
	}
	found, complete, err := a.Outcomes(ctx, in.Channel, in.ChatID, in.Limit)
	return OutcomeList{in.Channel, in.ChatID, web.List(found), complete}, err
}
