package sidecar

import (
	"context"
	"errors"

	"feishu-relay/httpapi"
	"feishu-relay/internal/delivery"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// settlements are the deliveries, and the mail, as the local API shows them.
type settlements struct {
	deliver *deliverer
	mail    *mail // nil with MAILBOX=off
}

func (s settlements) InProgress() (list []httpapi.Delivery) {
	for _, p := range s.deliver.deliveries.InProgress() {
		list = append(list, httpapi.Delivery(p))
	}
	return list
}

// Settle notes what the bot says of a message that it was given, or of mail.
func (s settlements) Settle(ctx context.Context, id relay.MessageID, state, reason string) error {
	err := s.deliver.deliveries.Settle(ctx, id, delivery.State(state), reason)
	if errors.Is(err, delivery.ErrUnknown) {
		err = s.settleUnknown(ctx, id, state, reason)
	}
	if s.deliver.doors.stream != nil && err == nil {
		switch delivery.State(state) {
		case delivery.Delivered:
			s.deliver.doors.stream.Acknowledge(id)
		case delivery.Refused:
			s.deliver.doors.stream.Withdraw(id)
		}
	}
	if conflict, ok := errors.AsType[*delivery.ConflictError](err); ok {
		return &relay.Error{Code: relay.CodeSettled, Message: conflict.Error()}
	}
	if errors.Is(err, delivery.ErrUnknown) {
		return relay.Errorf(relay.CodeUnknownMessage,
			"this bot was not given a message %.200q; GET /v1/deliveries lists what is in progress", id)
	}
	return err
}

// settleUnknown settles what is not a delivery known since the start: mail that
// waits in the inbox, or a message that was handled before a restart.
func (s settlements) settleUnknown(ctx context.Context, id relay.MessageID, state, reason string) error {
	if s.mail != nil && s.mail.agent.Waits(string(id)) {
		switch delivery.State(state) {
		case delivery.Delivered:
			return s.mail.agent.Ack(ctx, string(id))
		case delivery.Refused:
			return s.mail.agent.Nack(ctx, string(id), mailbox.InvalidMessage, reason)
		}
		return nil // it waits, and is handed over again
	}
	if s.deliver.given.has(givenAs(id)) || s.mail != nil && s.mail.agent.Handled(string(id)) {
		if delivery.State(state) != delivery.Delivered {
			return &delivery.ConflictError{State: delivery.Delivered}
		}
		return nil
	}
	return delivery.ErrUnknown
}
