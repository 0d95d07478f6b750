package sidecar

import (
	"context"

	"feishu-relay/httpapi"
	"feishu-relay/relay"
)

// doors are the ways to the bot. One of them delivers a message: the bot on the
// gateway, else INJECT_URL, else the stream.
type doors struct {
	gateway *gatewayDoor    // nil without a gateway
	webhook door            // nil without INJECT_URL
	stream  *httpapi.Stream // nil with one
}

// Deliver hands in to the bot and tells by which door. It waits for a bot that
// is away until ctx is done. An error wraps errRefused where the bot will never
// take it.
func (d *doors) Deliver(ctx context.Context, in relay.Inbound) (name string, err error) {
	for {
		var changed <-chan struct{}
		if d.gateway != nil {
			changed = d.gateway.changed() // asked first: what changes in between wakes us
			if d.gateway.connected() {
				return doorGateway, d.gateway.Deliver(ctx, in)
			}
		}
		if d.webhook != nil {
			return doorWebhook, d.webhook.Deliver(ctx, in)
		}
		arrived := d.stream.Arrived()
		if d.gateway == nil || d.stream.Connected() {
			return doorStream, d.stream.Deliver(ctx, in)
		}
		select {
		case <-changed:
		case <-arrived:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Names of the doors in logs, events and the status.
const (
	doorGateway = "gateway"
	doorWebhook = "webhook"
	doorStream  = "stream"
)

// current is the door that would deliver now.
func (d *doors) current() string {
	switch {
	case d.gateway != nil && d.gateway.connected():
		return doorGateway
	case d.webhook != nil:
		return doorWebhook
	case d.gateway != nil && !d.stream.Connected():
		return doorGateway
	}
	return doorStream
}
