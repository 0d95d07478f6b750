package sidecar

import (
	"context"

	"feishu-relay/relay"
)

// EntryEvents are the words that the gateway's entry counts.
var EntryEvents = entryEvents

// Hear is what the bot reports of a person, for tests that use no HTTP.
func (s *Sidecar) Hear(ctx context.Context, h relay.Heard) (relay.Sent, error) {
	return s.hear(ctx, h, true)
}
