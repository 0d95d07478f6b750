package sidecar

import (
	"context"
	"reflect"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// botLook is how often a sidecar looks whether its bot is connected.
const botLook = time.Second

// botState is since when the bot is connected, or is not.
type botState struct {
	mu        sync.Mutex
	known     bool // it was connected once, or it has to be; guarded by mu, as the rest is
	connected bool
	since     time.Time
}

// botIs returns whether the bot is connected and takes what it is given; nil: that is not known, as of a bot that only
// calls the local API.
func (s *Sidecar) botIs() *mailbox.Bot {
	gateway, stream := s.channels.gateway, s.channels.stream
	present := gateway != nil && gateway.gateway != nil && gateway.Present() || stream != nil && stream.Connected()
	connected := !s.away.Load() && (present || s.channels.webhook != nil)
	b := &s.bot
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = b.known || gateway != nil || present || s.away.Load()
	if connected != b.connected || b.since.IsZero() {
		b.connected, b.since = connected, time.Now().UTC().Truncate(time.Millisecond)
	}
	if !b.known {
		return nil
	}
	return &mailbox.Bot{Connected: b.connected, Since: b.since}
}

// lookAtBot notes when the bot comes and goes, and has this agent's card written then, until ctx is done.
func (s *Sidecar) lookAtBot(ctx context.Context) {
	for before := s.botIs(); wait.Sleep(ctx, botLook) == nil; {
		if now := s.botIs(); !reflect.DeepEqual(now, before) {
			before = now
			s.announce()
		}
	}
}
