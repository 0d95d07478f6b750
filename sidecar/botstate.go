package sidecar

import (
	"sync"
	"time"

	"feishu-relay/mailbox"
)

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
