package httpapi

import (
	"context"
	"errors"
	"net/http"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// Deliveries are the messages that the bot was given.
type Deliveries interface {
	// InProgress lists the unanswered messages, for encoding as JSON.
	InProgress() any
	// Settle settles a message for the bot: state is delivered, refused or retry.
	// Its error is a [*relay.Error] if the caller should get the reason.
	Settle(ctx context.Context, id relay.MessageID, state, reason string) error
}

// maxReason is the most bytes of a delivery's reason; more is refused.
const maxReason = 4 << 10

// deliveries serves GET /v1/deliveries.
func (a *api) deliveries(*http.Request) (any, error) {
	return map[string]any{"deliveries": a.Deliveries.InProgress()}, nil
}

// settleDelivery serves POST /v1/deliveries/{relay_msg_id}.
func (a *api) settleDelivery(r *http.Request) (any, error) {
	id := relay.MessageID(r.PathValue("relay_msg_id"))
	body := struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	}{State: "delivered"}
	if err := readJSON(r, &body); err != nil && !errors.Is(err, errEmpty) {
		return nil, err
	}
	switch body.State {
	case "delivered", "refused", "retry":
	default:
		return nil, web.Invalid("field \"state\": want delivered, refused or retry, got %.40q", body.State)
	}
	if len(body.Reason) > maxReason {
		return nil, web.Invalid("field \"reason\": %d bytes, at most %d", len(body.Reason), maxReason)
	}
	if err := a.Deliveries.Settle(r.Context(), id, body.State, body.Reason); err != nil {
		return nil, err
	}
	return map[string]any{"relay_msg_id": id, "state": body.State}, nil
}
