package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"feishu-relay/outcome"
	"feishu-relay/relay"
)

// Outcomes tells what became of messages at all bots. [*outcome.Log] says what
// each method does.
type Outcomes interface {
	Recent(ctx context.Context, channel string, chat relay.ChatID, limit int) (list []outcome.Outcome, complete bool, err error)
	Watch(func(outcome.Outcome)) (stop func())
}

var _ Outcomes = (*outcome.Log)(nil)

const (
	outcomesShown = 1000 // in an answer, if the caller does not say
	maxOutcomes   = 5000 // in an answer
)

var errNotInChat = relay.Errorf(codeNotFound, "the bot is not in this chat, or has heard nothing of it")

// outcomes serves GET /v1/outcomes: what became of a chat's newest messages.
func (a *api) outcomes(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	channel, chat := q.Get("channel"), relay.ChatID(q.Get("chat_id"))
	if channel == "" {
		channel = relay.DefaultChannel
	}
	limit := outcomesShown
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxOutcomes {
			a.fail(w, r, invalid("limit: want a number from 1 to %d", maxOutcomes))
			return
		}
	}
	if chat == "" {
		a.fail(w, r, invalid("chat_id is missing"))
		return
	}
	if err := cmp.Or(relay.CheckField("channel", channel), relay.CheckField("chat_id", chat)); err != nil {
		a.fail(w, r, err)
		return
	}
	if !a.Visible(channel, chat) {
		writeError(w, errNotInChat)
		return
	}
	found, complete, err := a.Outcomes.Recent(r.Context(), channel, chat, limit)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"channel": channel, "chat_id": chat, "outcomes": list(found), "complete": complete})
}

// watchOutcomes returns the outcomes from now on, of chats that the bot is in.
// The channel is closed when its reader is too far behind.
func (a *api) watchOutcomes() (outcomes chan outcome.Outcome, stop func()) {
	var (
		mu     sync.Mutex
		closed bool
	)
	outcomes = make(chan outcome.Outcome, watcherQueue)
	stop = a.Outcomes.Watch(func(o outcome.Outcome) {
		if !a.Visible(o.Channel, o.ChatID) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
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

// outcomeEvent is o as an event in JSON.
func outcomeEvent(o outcome.Outcome) []byte {
	data, _ := relay.Marshal(Event{Type: EventOutcome, Time: relay.MillisOf(time.Now()), Outcome: o}) // always possible
	return data
}
