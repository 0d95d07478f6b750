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

// bot returns whether the bot is connected and takes what it is given; nil: that is not known, as of a bot that
// only calls the local API.
func (d *deliverer) bot() *mailbox.Bot {
	gateway, stream := d.doors.gateway, d.doors.stream
	present := gateway != nil && gateway.Present() || stream != nil && stream.Connected()
	connected := !d.botAway.Load() && (present || d.doors.webhook != nil)
	s := &d.state
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = s.known || gateway != nil || present || d.botAway.Load()
	if connected != s.connected || s.since.IsZero() {
		s.connected, s.since = connected, time.Now().UTC().Truncate(time.Millisecond)
	}
	if !s.known {
		return nil
	}
	return &mailbox.Bot{Connected: s.connected, Since: s.since}
}

// lookAtBot notes when the bot comes and goes, and calls changed then, until ctx is done.
func (d *deliverer) lookAtBot(ctx context.Context, changed func()) {
	for before := d.bot(); wait.Sleep(ctx, botLook) == nil; {
		if now := d.bot(); !reflect.DeepEqual(now, before) {
			before = now
			changed()
		}
	}
}
