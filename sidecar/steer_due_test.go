package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/mailbox"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/steer"
)

// registry is one whose cards are read by a function.
type registry struct {
	mailbox.Store
	cards func() []mailbox.Card
}

func (r registry) Cards(context.Context) ([]mailbox.Card, error) { return r.cards(), nil }

// A pause and a mute that people gave a time end by it.
func TestPausesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shownSidecar(t, policy.Limits{MaxDepth: 3}).steer
		s.cfg.Steer.Commands, s.cfg.Steer.By = []string{"/relay", "/中继"}, "members"
		members := steer.Join(steer.Member{Agent: "agent_b"}).Of(relay.MillisOf(time.Now()), "agent_b")
		if _, err := s.records.merge("feishu", "oc_own", members, false); err != nil {
			t.Fatal(err)
		}
		types := func(text string) {
			t.Helper()
			why, _, err := s.weigh(t.Context(), &relay.Message{Channel: "feishu", ChatID: "oc_own", MessageID: relay.MessageID("om_" + text),
				MsgType: "text", Role: relay.RoleUser, SenderName: "Tom", Content: text, TS: relay.MillisOf(time.Now())}, sentBy{kind: "user"})
			if why != relay.Command || err != nil {
				t.Fatalf("%q: %s, %v", text, why, err)
			}
		}
		want := func(why relay.Reason, person bool) {
			t.Helper()
			now := time.Now()
			m := &relay.Message{Channel: "feishu", ChatID: "oc_own", MessageID: "om_b", SenderAgentName: "agent_a", TS: relay.MillisOf(now)}
			got, err := s.steered(m, now)
			if got != why || err != nil {
				t.Errorf("a bot's message: %q, %v, want %q", got, err, why)
			}
			m.Role, m.SenderAgentName, m.SenderName = relay.RoleUser, "", "Tom"
			if got, _ := s.forPerson(m, entryOf(m, now)); (got == relay.Pass) != person {
				t.Errorf("a person's message: %q, want it to pass %t", got, person)
			}
		}
		want(relay.Pass, true)
		types("/relay pause 30m")
		want(relay.Paused, true)
		time.Sleep(30*time.Minute - time.Millisecond)
		want(relay.Paused, true)
		time.Sleep(time.Millisecond)
		want(relay.Pass, true)
		if g := s.group("feishu", "oc_own"); g.Settings.Paused != nil {
			t.Errorf("the group is shown as paused until %v", g.Settings.Paused.Until)
		}
		types("/中继 静音 agent_b 2小时")
		types("/relay pause")
		want(relay.Muted, false)
		time.Sleep(2*time.Hour - time.Millisecond)
		want(relay.Muted, false)
		time.Sleep(time.Millisecond)
		want(relay.Paused, true)
		time.Sleep(30 * 24 * time.Hour) // without a time it holds until somebody ends it
		want(relay.Paused, true)
		types("/relay resume")
		want(relay.Pass, true)
	})
}

// Only what Feishu calls a user commands, whether the gateway or the connector hears it.
func TestOnlyUsersCommand(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	s.steer.cfg.Steer.Commands = []string{"/relay"}
	s.chats.saw("feishu", "oc_own", 1)
	queue, err := filerelay.New(filerelay.Options{Dir: t.TempDir(), Queue: nativeQueue, Agent: "agent_b"})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	s.send.native = &native{base: s.base, queue: queue}
	for kind, want := range map[string]bool{"user": true, "anonymous": false, "unknown": false, "": false} {
		m := feishu.Message{ID: relay.MessageID("om_" + kind), ChatID: "oc_own", ChatType: "group", Type: "text",
			Content: `{"text":"/relay status"}`, CreateTime: relay.MillisOf(time.Now()), Sender: feishu.Sender{Type: kind, OpenID: "ou_x"}}
		if p, err := s.send.heard(t.Context(), m, nil); err != nil || (p.Verdict == feishu.Keep) != want {
			t.Errorf("the gateway hears %q: a command: %v, %v", kind, p.Verdict, err)
		}
		m.ID += "_again"
		n := &native{base: s.base, chats: s.chats, app: s.app, send: s.send, steer: s.steer}
		p := &arrival{}
		var err error
		if p.msg, err = n.stored(m, m.Doc(), nativePerson); err != nil {
			t.Fatal(err)
		}
		if why, err := n.hearPerson(t.Context(), p); err != nil || (why == relay.Command) != want {
			t.Errorf("the connector hears %q: %s, %v", kind, why, err)
		}
	}
}
