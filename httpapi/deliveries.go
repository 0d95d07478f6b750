package httpapi

import (
	"context"
	"errors"
	"net/http"

	"feishu-relay/relay"
)

// Deliveries are the messages that the bot was given.
type Deliveries interface {
	// InProgress lists those that it has not answered, to be encoded as JSON.
	InProgress() any
	// Settle notes what the bot says of one: state is delivered, refused or retry.
	// Its error is an [*relay.Error] where the caller is to be told why.
	Settle(ctx context.Context, id relay.MessageID, state, reason string) error
}

// deliveries serves GET /v1/deliveries.
func (a *api) deliveries(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"deliveries": a.Deliveries.InProgress()})
}

// settleDelivery serves POST /v1/deliveries/{relay_msg_id}.
func (a *api) settleDelivery(w http.ResponseWriter, r *http.Request) {
	id := relay.MessageID(r.PathValue("relay_msg_id"))
	body := struct {
		State  string `json:"state"`
		Reason string `json:"reason"`
	}{State: "delivered"}
	if err := readJSON(w, r, &body); err != nil && !errors.Is(err, errEmpty) {
		a.fail(w, r, err)
		return
	}
	switch body.State {
	case "delivered", "refused", "retry":
	default:
		a.fail(w, r, invalid("field \"state\": want delivered, refused or retry, got %.40q", body.State))
		return
	}
	if len(body.Reason) > maxReason {
		a.fail(w, r, invalid("field \"reason\": %d bytes, at most %d", len(body.Reason), maxReason))
		return
	}
	if err := a.Deliveries.Settle(r.Context(), id, body.State, body.Reason); err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"relay_msg_id": id, "state": body.State})
}
