//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// four is a group of a bot behind a gateway with a long connection, one with a webhook, one on a
// connector, and one on the local API.
type four struct {
	*tenant
	apps       []feishusim.App
	sides      map[string]*running // by the bots' letters
	botA, botB *sdkBot
	botC, botD *worker
	forD       map[string]bool // people's messages that BotD was told are for it
}

func newFour(t *testing.T) *four {
	t.Helper()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB", EncryptKey: "key of BotB"},
		feishusim.App{Name: "BotC"})
	f := &four{tenant: n, apps: apps, sides: map[string]*running{}, botD: newWorker(t, nil), forD: map[string]bool{}}
	f.sides["A"], f.botA = n.behind(apps[0], n.steered("agent_a"), nil)
	cfg := n.steered("agent_b")
	cfg.MentionAll = true
	f.sides["B"], f.botB = n.hooked(apps[1], cfg, nil)
	f.sides["C"], f.botC = n.connector(apps[2], n.steers)
	cfg = n.steered("agent_d")
	cfg.Gateway, cfg.BotName, cfg.InjectURL, cfg.MentionAll = sidecar.GatewayConfig{}, "BotD", f.botD.hook.URL, true
	f.sides["D"] = n.start(cfg)
	f.botA.introduce(t)
	f.botB.introduce(t)
	f.says("hello")
	for _, s := range f.sides {
		f.until("all know each other", func() bool {
			bots := f.group(s, f.chat).Bots
			return len(bots) == 4 && bots[0].Online && bots[1].Online && bots[2].Online && bots[3].Online
		})
	}
	return f
}

// says lets a person say something, which BotD reports.
func (f *four) says(text string) string {
	f.t.Helper()
	id := f.tenant.says(text)
	answer := f.told(f.sides["D"], id)
	f.forD[id] = answer.ForMe != nil && *answer.ForMe
	return id
}

// told has a bot on the local API report a message of a person, and returns the answer.
func (n *tenant) told(s *running, id string) (answer relay.Sent) {
	n.t.Helper()
	m, _ := n.Message(id)
	body, err := json.Marshal(map[string]any{"chat_id": m.ChatID, "content": m.Text, "sender": m.SenderName, "message_id": id,
		"msg_type": m.Type, "parent_id": m.ParentID, "root_id": m.RootID, "thread_id": m.ThreadID, "ts": m.CreateTime})
	must(n.t, err)
	status, said := n.posts(s, "/v1/inbound", string(body))
	if status != http.StatusAccepted || json.Unmarshal([]byte(said), &answer) != nil {
		n.t.Fatalf("POST /v1/inbound of %q is answered %d: %s", m.Text, status, said)
	}
	return answer
}

func (f *four) given(bot, id string) int {
	switch bot {
	case "A":
		return f.botA.given(id)
	case "B":
		return f.botB.given(id)
	case "C":
		return f.botC.ids()[id]
	}
	if f.forD[id] {
		return 1
	}
	return f.botD.ids()[id]
}

// became is what became of a message at a bot, as the outcomes say.
func (f *four) became(bot, id string) (o httpapi.Outcome) {
	var list struct{ Outcomes []httpapi.Outcome }
	must(f.t, json.Unmarshal([]byte(f.get(f.sides["A"], "/v1/outcomes?channel=feishu&chat_id="+f.chat)), &list))
	for _, o := range list.Outcomes {
		if string(o.Agent) == "agent_"+strings.ToLower(bot) && string(o.RelayMsgID) == id {
			return o
		}
	}
	return o
}

// Who gets a message: the same over gateway, webhook, connector and local API, once each, with an outcome that says so.
func TestWhoGetsAMessage(t *testing.T) {
	t.Parallel()
	f := newFour(t)
	say := func(want, text string) {
		t.Helper()
		id := f.says(text)
		for _, bot := range []string{"A", "B", "C", "D"} {
			f.until(fmt.Sprintf("the outcomes say whether Bot%s is given %q", bot, text), func() bool {
				o := f.became(bot, id)
				return o.Stopped != "" || o.Delivered != 0 && f.given(bot, id) > 0
			})
			wanted := strings.Contains(want, bot)
			if got := f.given(bot, id); wanted && got != 1 || !wanted && (got > 0 || f.became(bot, id).Stopped != relay.NotForMe) {
				t.Errorf("Bot%s was given %q, which is for %q, %d times: %+v", bot, text, want, got, f.became(bot, id))
			}
		}
	}
	say("A B C D", "who is there?")
	f.patch(f.sides["A"], `{"answer":"named"}`)
	for _, s := range f.sides {
		f.until("the mode holds", func() bool { return f.group(s, f.chat).Settings.Answer == "named" })
	}
	say("", "who is there?")
	say("A", "@BotA are you there?")
	say("B C", "@BotB and @BotC, are you there?")
	say("D", "@BotD are you there?")
	say("B D", "@all are you there?") // those with MENTION_ALL
}

// Only the group's owner and managers may steer it where STEER_BY says so; the others are told who may.
func TestAdminsSteer(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	ann, bob := n.AddUser("Ann"), n.AddUser("Bob")
	must(t, n.Join(n.chat, ann.ID))
	must(t, n.Join(n.chat, bob.ID))
	_, err := n.UpdateGroup(feishusim.Group{ID: n.chat, Owner: n.user.ID, Managers: []string{ann.ID}})
	must(t, err)
	var all []*running
	for i, agent := range []string{"agent_a", "agent_b", "agent_d"} {
		cfg := n.steered(agent)
		cfg.Steer.By = "admins"
		if agent == "agent_d" { // it cannot ask Feishu who the admins are
			cfg.Gateway = sidecar.GatewayConfig{}
			all = append(all, n.start(cfg))
			continue
		}
		s, b := n.behind(apps[i], cfg, nil)
		b.introduce(t)
		all = append(all, s)
	}
	limit := func(want int) {
		t.Helper()
		n.until(fmt.Sprintf("the limit is %d", want), func() bool {
			return !slices.ContainsFunc(all, func(s *running) bool { return n.steeredGroup(s).Settings.Limit != want })
		})
	}
	n.told(all[2], n.says("hello"))
	n.until("all know each other", func() bool {
		return !slices.ContainsFunc(all, func(s *running) bool { return len(n.steeredGroup(s).Bots) != 3 })
	})
	var ids []string
	says := func(user, text, want string) {
		t.Helper()
		id, err := n.Post(feishusim.Utterance{Chat: n.chat, User: user, Text: text})
		must(t, err)
		n.told(all[2], id)
		if got := n.repliesTo(id).Text; !strings.Contains(got, want) {
			t.Errorf("%q is answered %q, want %q", text, got, want)
		}
		ids = append(ids, id)
	}
	says(n.user.ID, "/relay limit 7", "The limit is 7")
	limit(7)
	says(ann.ID, "/relay limit 8", "The limit is 8")
	limit(8)
	says(bob.ID, "/relay limit 9", "Only the group's owner and administrators can do that.")
	says(bob.ID, "/中继 上限 9", "只有群主和群管理员可以这样做。")
	says(bob.ID, "/relay status", "limit 8")
	_, err = n.UpdateGroup(feishusim.Group{ID: n.chat, Managers: []string{}})
	must(t, err)
	status, body := n.posts(all[2], "/v1/inbound", fmt.Sprintf(`{"chat_id":%q,"content":"/relay limit 9","sender":"nobody knows","message_id":"om_unknown"}`, n.chat))
	if status != http.StatusAccepted || !strings.Contains(body, `"reason":"command"`) {
		t.Errorf("the command of somebody who is not known is answered %d: %s", status, body)
	}
	n.until("who is not known is refused", func() bool {
		for _, e := range n.marks() {
			if e.Mark.Kind == "notice" && e.Mark.Of == "om_unknown" {
				return strings.Contains(e.Content, "Only the group's owner")
			}
		}
		return false
	})

	for _, id := range ids {
		if got := n.replies(id); len(got) != 1 {
			t.Errorf("%s has the answers %q", id, got)
		}
	}
}

// A bot that leaves the group leaves its roster and is given nothing more there; back, it is in both
// again. One whose sidecar ends is offline, also with MAILBOX=off.
func TestABotLeavesTheGroup(t *testing.T) {
	t.Parallel()
	n, apps, a, b, botA, botB := steeredPair(t, asIs)
	n.answers("/relay answer BotB")
	roster := func(what string, agents ...string) {
		t.Helper()
		n.until(what, func() bool {
			var got []string
			for _, bot := range n.steeredGroup(a).Bots {
				if got = append(got, string(bot.Agent)); !bot.Online {
					got[len(got)-1] += " offline"
				}
			}
			return slices.Equal(got, agents)
		})
	}
	roster("both are there", "agent_a", "agent_b")
	if cards := n.dirEntries("mailboxes"); len(cards) == 0 {
		t.Error("there are no cards with MAILBOX=off")
	}
	must(t, n.Leave(n.chat, apps[1].ID))
	roster("BotB is gone", "agent_a")
	if got := n.answers("/relay status"); !strings.Contains(got, "Online (1): BotA") || strings.Contains(got, "BotB") {
		t.Errorf("the status is %q", got)
	}
	if got := n.answers("/relay mute BotB"); !strings.Contains(got, "not a bot in this group") {
		t.Errorf("a mute of a bot that is gone is answered %q", got)
	}
	first := n.says("is anybody there?") // its default bot is not
	n.until("nobody is given it", func() bool { return n.stops(a, "not_for_me") == 1 })
	n.reply(botA, heard{ID: first}, "", "nobody but me")
	n.until("BotB is given neither", func() bool { return n.stops(b, "not_a_member") == 2 })
	must(t, n.Join(n.chat, apps[1].ID))
	roster("BotB is back", "agent_a", "agent_b")
	n.says("are you there again?")
	n.hears(botB, "are you there again?")
	if botB.has("anybody") || botB.has("nobody") {
		t.Error("BotB was given what was said while it was away")
	}
	b.stop()
	roster("BotB's sidecar has ended", "agent_a", "agent_b offline")
	if got := n.answers("/relay status"); !strings.Contains(got, "Offline (1): BotB") {
		t.Errorf("the status is %q", got)
	}
}
