package sidecar

import (
	"testing"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Only what happens in a group that the bot is in is told to the other sidecars:
// a private chat never leaves its bot, and of a group that it may not be in, as
// when Feishu did not say in time, it has nothing to tell.
func TestOutcomesAreOfTheBotsGroupsOnly(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	s.cfg.MembershipCheck = "on"
	s.chats.saw(relay.DefaultChannel, "oc_in", 1)
	s.chats.saw(relay.DefaultChannel, "oc_private", 1)
	for _, tt := range []struct {
		name, kind string
		chat       relay.ChatID
		tell       func(*arrival)
		want       int
	}{
		{"a private message is delivered", "p2p", "oc_private", func(p *arrival) { s.watch.noteDelivered(p, doorWebhook) }, 0},
		{"one on the stream", "p2p", "oc_private", func(p *arrival) { s.watch.noteDelivered(p, doorStream) }, 0},
		{"it came too late", "p2p", "oc_private", func(p *arrival) { s.watch.noteStopped(p, relay.Expired) }, 0},
		{"nobody knows whether the bot is there", "group", "oc_unknown", func(p *arrival) { s.watch.noteStopped(p, relay.Expired) }, 0},
		{"a group's message is delivered", "group", "oc_in", func(p *arrival) { s.watch.noteDelivered(p, doorStream) }, 1},
	} {
		before := s.watch.outcomes.Stats().Pending
		tt.tell(&arrival{key: "om_" + tt.name, msg: relay.Message{Channel: relay.DefaultChannel, ChatID: tt.chat, RelayMsgID: relay.MessageID("om_" + tt.name),
			Metadata: relay.Metadata{"chat_type": quote(tt.kind)}}})
		if got := s.watch.outcomes.Stats().Pending - before; got != tt.want {
			t.Errorf("%s: %d outcomes are told, want %d", tt.name, got, tt.want)
		}
	}
}
