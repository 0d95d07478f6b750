package sidecar

import (
	"context"
	"errors"
	"fmt"

	"feishu-relay/feishu"
	"feishu-relay/httpapi"
	"feishu-relay/internal/delivery"
)

// doors are the delivery channels to the bot: the gateway, INJECT_URL and the
// stream, in the order in which they are tried.
type doors struct {
	gateway *gatewayDoor    // nil without a gateway
	webhook *webhookDoor    // nil without INJECT_URL
	stream  *httpapi.Stream // nil with INJECT_URL
}

// Names of the channels in logs, events and the status.
const (
	doorGateway = "gateway"
	doorWebhook = "webhook"
	doorStream  = "stream"
)

// channels lists them for [delivery.New].
func (d *doors) channels() []delivery.Channel {
	var list []delivery.Channel
	if d.gateway != nil {
		list = append(list, d.gateway)
	}
	if d.webhook != nil {
		list = append(list, d.webhook)
	}
	if d.stream != nil {
		list = append(list, streamDoor{d.stream})
	}
	return list
}

// current is the name of the channel that would deliver now.
func (d *doors) current() string {
	switch {
	case d.gateway != nil && d.gateway.Open():
		return doorGateway
	case d.webhook != nil:
		return doorWebhook
	case d.gateway != nil && !d.stream.Connected():
		return doorGateway
	}
	return doorStream
}

// streamDoor is the stream as a delivery channel.
type streamDoor struct{ *httpapi.Stream }

var _ delivery.Channel = streamDoor{}

func (streamDoor) Name() string               { return doorStream }
func (d streamDoor) Open() bool               { return d.Connected() }
func (d streamDoor) Present() bool            { return d.Connected() }
func (d streamDoor) Changed() <-chan struct{} { return d.Arrived() }
func (streamDoor) Serial() bool               { return false }
func (streamDoor) Pauses() delivery.Pauses {
	return delivery.Pauses{First: webhookFirst, Most: webhookMax}
}

func (d streamDoor) Write(ctx context.Context, m *delivery.Message, written func(<-chan struct{})) error {
	return streamError(d.Offer(ctx, m.ID, m.Inbound, written))
}

// streamError is the error of an offer as a delivery channel returns it.
func streamError(err error) error {
	switch {
	case errors.Is(err, httpapi.ErrNoReader):
		return fmt.Errorf("%w: %w", delivery.ErrNotWritten, err)
	case errors.Is(err, httpapi.ErrReaderGone):
		return fmt.Errorf("%w: %w", delivery.ErrEnded, err)
	}
	return err
}

// injectionError is the error of an injection into the bot's Feishu connection as
// a delivery channel returns it.
func injectionError(err error) error {
	if a, ok := errors.AsType[*feishu.AnswerError](err); ok && feishu.IsRefusal(a.Code) {
		return fmt.Errorf("%w: %w", delivery.ErrRefused, err)
	}
	switch {
	case errors.Is(err, feishu.ErrNotInjected):
		return fmt.Errorf("%w: %w", delivery.ErrNotWritten, err)
	case errors.Is(err, feishu.ErrInjectionEnded):
		return fmt.Errorf("%w: %w", delivery.ErrEnded, err)
	}
	return err
}
