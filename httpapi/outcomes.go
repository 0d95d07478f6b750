package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"feishu-relay/internal/web"
	"feishu-relay/outcome"
	"feishu-relay/relay"
)

// Outcomes has the outcomes of messages at all bots. [*outcome.Log] describes
// the methods.
type Outcomes interface {
	Recent(ctx context.Context, channel string, chat relay.ChatID, limit int) (
		list []outcome.Outcome, complete bool, err error)
	Watch(func(outcome.Outcome)) (stop func())
}

var _ Outcomes = (*outcome.Log)(nil)

const (
	outcomesShown = 1000 // in an answer by default
	maxOutcomes   = 5000 // in an answer at most
)

var errNotInChat = relay.Errorf(web.CodeNotFound, "the bot is not in this chat, or has no message of it")

// outcomes serves GET /v1/outcomes: the outcomes of a chat's newest messages.
func (a *api) outcomes(r *http.Request) (any, error) {
	q := r.URL.Query()
	channel, chat := cmp.Or(q.Get("channel"), relay.DefaultChannel), relay.ChatID(q.Get("chat_id"))
	limit, ok := web.Limit(r, outcomesShown, maxOutcomes)
	if !ok {
		return nil, web.Invalid("limit: want a number from 1 to %d", maxOutcomes)
	}
	if chat == "" {
		return nil, web.Invalid("chat_id is missing")
	}
	if err := cmp.Or(relay.CheckField("channel", channel), relay.CheckField("chat_id", chat)); err != nil {
		return nil, err
	}
	if !a.Visible(channel, chat) {
		return nil, errNotInChat
	}
	found, complete, err := a.Outcomes.Recent(r.Context(), channel, chat, limit)
	if err != nil {
		return nil, err
	}
	return map[string]any{"channel": channel, "chat_id": chat, "outcomes": web.List(found), "complete": complete}, nil
}

// watchOutcomes returns a channel of the outcomes from now on, of chats that
// the bot is in. It is closed if its reader is too far behind.
func (a *api) watchOutcomes() (outcomes chan outcome.Outcome, stop func()) {
	outcomes = make(chan outcome.Outcome, watcherQueue)
	closed := false
	stop = a.Outcomes.Watch(func(o outcome.Outcome) { // one at a time
		if closed || !a.Visible(o.Channel, o.ChatID) {
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

// outcomeEvent encodes o as an event.
func outcomeEvent(o outcome.Outcome) []byte {
	data, _ := relay.Marshal(Event{Type: EventOutcome, Time: relay.MillisOf(time.Now()), Outcome: o}) // always possible
	return data
}
