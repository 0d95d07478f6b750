//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/relay"
)

// A sidecar is killed right after its bot was given a message, before that is noted, and right after
// the message was settled, when it is not handed over again: everybody can read what became of it.
func TestOutcomesOfSettledMessagesSurvive(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		for victim, door := range []string{"stream", "webhook"} {
			t.Run(backend+"/"+door, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, onBackend(t, backend, setup{bots: 2, webhooks: []int{1}}))
				const chat = "oc_1"
				lives := []string{"delivered:2", "inject:1", "delivered:1"}
				crashAt(c, crashStep{name: "settled", victim: victim, lives: lives}, chat)
				ctx := limited(t)
				c.finish(ctx)
				for _, viewer := range c.bots {
					for _, b := range c.bots {
						c.wantOutcomes(ctx, viewer, b.name, chat)
					}
				}
			})
		}
	}
}

// wantOutcomes waits until viewer shows, for each message of a chat that a bot was given,
// that it was.
func (c *cluster) wantOutcomes(ctx context.Context, viewer *bot, name, chat string) {
	c.t.Helper()
	given := c.h.given(name)
	c.h.mu.Lock()
	for id := range given {
		if c.h.record.Messages[id].Chat != chat {
			delete(given, id)
		}
	}
	c.h.mu.Unlock()
	if len(given) == 0 {
		c.t.Fatalf("%s was given nothing", name)
	}
	what := fmt.Sprintf("%s shows that %s was given %d messages", viewer.name, name, len(given))
	eventually(ctx, c.t, what, func() bool {
		var answer struct{ Outcomes []httpapi.Outcome }
		if viewer.get(ctx, "/v1/outcomes?limit=5000&chat_id="+chat, &answer) != nil {
			return false
		}
		shown := map[relay.MessageID]bool{}
		for _, o := range answer.Outcomes {
			if string(o.Agent) == name && o.Delivered != 0 {
				shown[o.RelayMsgID] = true
			}
		}
		for id := range given {
			if !shown[id] {
				return false
			}
		}
		return true
	})
}
