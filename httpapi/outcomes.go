package httpapi

import (
	"context"

	"feishu-relay/internal/web"
	"feishu-relay/outcome"
	"feishu-relay/relay"
)

// Outcomes has the outcomes of messages at all bots.
type Outcomes interface {
	// Recent returns at most limit outcomes of the newest messages of a chat at all bots, the newest last. complete
	// reports that these are the newest limit, or all.
	Recent(ctx context.Context, channel string, chat relay.ChatID, limit int) (
		list []outcome.Outcome, complete bool, err error)
	// Watch calls a function for each further one, one at a time, until stop is called.
	Watch(func(outcome.Outcome)) (stop func())
}

var errNotInChat = relay.Errorf(web.CodeNotFound, "the bot is not in this chat, or has no message of it")

// OutcomeList is the answer of GET /v1/outcomes: the outcomes of a chat's newest messages.
type OutcomeList struct {
	Channel  string            `json:"channel"`
	ChatID   relay.ChatID      `json:"chat_id"`
	Outcomes []outcome.Outcome `json:"outcomes"` // oldest first
	Complete bool              `json:"complete"`
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
	found, complete, err := a.Outcomes.Recent(ctx, in.Channel, in.ChatID, in.Limit)
	return OutcomeList{in.Channel, in.ChatID, web.List(found), complete}, err
}

// watchOutcomes returns a channel of the outcomes from now on. It is closed if its reader is too far behind.
func (a *api) watchOutcomes() (outcomes chan outcome.Outcome, stop func()) {
	outcomes, closed := make(chan outcome.Outcome, watcherQueue), false
	stop = a.Outcomes.Watch(func(o outcome.Outcome) { // one at a time
		if closed {
			return
		}
		select {
		case outcomes <- o:
		default:
			closed = true
			close(outcomes)
		}
	})
	return outcomes, stop
}
