package sidecar

import (
	"context"

	"feishu-relay/relay"
)

// EntryEvents are the words that the gateway's entry counts.
var EntryEvents = entryEvents

// Send is the bot's send, for tests that use no HTTP.
func (s *Sidecar) Send(ctx context.Context, out relay.Outbound) (relay.Sent, error) {
	return s.send.Send(ctx, out)
}

// Hear is what the bot reports of a person, for tests that use no HTTP.
func (s *Sidecar) Hear(ctx context.Context, h relay.Heard) (relay.Sent, error) {
	return s.send.Hear(ctx, h, true)
}
