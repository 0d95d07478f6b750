package sidecar

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// A clock that differs is reported once, whichever of the two sidecars is wrong; the old card of one that
// no longer runs, and a foreign program's local time, are not.
func TestClocksThatDiffer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead time.Duration
		dead  bool // its card is not written again
		alien bool // it has no sidecar
		want  string
	}{
		{name: "right"},
		{name: "a little ahead", ahead: relay.MaxAhead},
		{name: "a little behind", ahead: -relay.MaxAhead},
		{name: "ahead", ahead: 3 * time.Hour, want: "the clock of agent_c's host is 3h0m0s ahead of this one's"},
		{name: "behind", ahead: -3 * time.Hour, want: "the clock of agent_c's host is 3h0m0s behind this one's"},
		{name: "dead", ahead: -3 * time.Hour, dead: true},
		{name: "foreign", ahead: 8 * time.Hour, alien: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := aSidecar(t).presence
				p.reading, p.shared = t.Context(), &mailbox.Settings{}
				began := time.Now()
				p.store = registry{cards: func() []mailbox.Card {
					c := mailbox.Card{AgentID: "agent_c", LastHeartbeat: began.Add(tt.ahead)}
					if !tt.dead {
						c.LastHeartbeat = time.Now().Add(tt.ahead)
					}
					if !tt.alien {
						c.Sidecar = &mailbox.Settings{}
					}
					return []mailbox.Card{c}
				}}
				for range 5 {
					time.Sleep(2 * presenceFresh)
					p.online()
					p.readers.Wait()
				}
				var got []Problem
				for _, problem := range p.problems.list() {
					if problem.Part == "clock" {
						got = append(got, problem)
					}
				}
				if tt.want == "" && len(got) > 0 {
					t.Errorf("got %v, want nothing", got)
				}
				if tt.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0].Error, tt.want) || got[0].Count != 1) {
					t.Errorf("got %v, want once %q", got, tt.want)
				}
			})
		})
	}
}

// registry is one whose cards are read by a function.
type registry struct {
	mailbox.Store
	cards func() []mailbox.Card
}

func (r registry) Cards(context.Context) ([]mailbox.Card, error) { return r.cards(), nil }
