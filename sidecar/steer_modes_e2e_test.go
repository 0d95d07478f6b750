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
	sent       int             // messages of BotC and BotD
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
	f.says(feishusim.Utterance{Text: "hello"})
	f.agrees("all know each other", func(g shownGroup) bool {
		return len(g.Bots) == 4 && g.Bots[0].Online && g.Bots[1].Online && g.Bots[2].Online && g.Bots[3].Online
	})
	return f
}

// agrees waits until the group is as it should be at all sidecars.
func (f *four) agrees(what string, is func(shownGroup) bool) {
	f.t.Helper()
	f.until(what, func() bool {
		for _, s := range f.sides {
			var g shownGroup
			must(f.t, json.Unmarshal([]byte(f.get(s, "/v1/groups/"+f.chat)), &g))
			if !is(g) {
				return false
			}
		}
		return true
	})
}

// says lets a person say something, which BotD reports.
func (f *four) says(u feishusim.Utterance) feishusim.Message {
	f.t.Helper()
	u.Chat = f.chat
	if u.User == "" {
		u.User = f.user.ID
	}
	id, err := f.Post(u)
	must(f.t, err)
	answer := f.told(f.sides["D"], id)
	f.forD[id] = answer.ForMe != nil && *answer.ForMe
	m, _ := f.Message(id)
	return m
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

// speaks lets a bot answer a message, and returns what it said.
func (f *four) speaks(bot string, to feishusim.Message, text string) feishusim.Message {
	f.t.Helper()
	f.sent++
	text = fmt.Sprintf("%s, number %d", text, f.sent)
	switch bot {
	case "A":
		f.reply(f.botA, heard{ID: to.ID}, "", text)
	case "B":
		f.reply(f.botB, heard{ID: to.ID}, "", text)
	case "C":
		status, answer := f.posts(f.sides["C"], "/v1/send", fmt.Sprintf(`{"chat_id":%q,"content":%q,"reply_to":%q}`, f.chat, text, to.ID))
		if status != http.StatusOK {
			f.t.Fatalf("POST /v1/send is answered %d: %s", status, answer)
		}
	}
	said, err := f.Wait(limited(f.t), func(m feishusim.Message) bool { return m.ParentID == to.ID && strings.Contains(m.Text, text) })
	must(f.t, err)
	for other := range strings.SplitSeq("ABCD", "") { // its own sidecar knows it
		if other != bot {
			f.until("Bot"+other+"'s sidecar has decided on "+text, func() bool {
				return f.given(other, said.ID) > 0 || f.stoppedAs("agent_"+strings.ToLower(other), said.ID) != ""
			})
		}
	}
	return said
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

// stoppedAs is why a message was not given to an agent's bot, as the outcomes say.
func (f *four) stoppedAs(agent, id string) relay.Reason { return f.became(agent, id).Stopped }

// became is what became of a message at an agent's bot, as the outcomes say.
func (f *four) became(agent, id string) (o httpapi.Outcome) {
	var list struct{ Outcomes []httpapi.Outcome }
	must(f.t, json.Unmarshal([]byte(f.get(f.sides["A"], "/v1/outcomes?channel=feishu&chat_id="+f.chat)), &list))
	for _, o := range list.Outcomes {
		if string(o.Agent) == agent && string(o.RelayMsgID) == id {
			return o
		}
	}
	return o
}

// isFor checks which bots are given a message, once each, with an outcome that says so, that the others have the outcome
// not_for_me, and that their sidecars say so if asked.
func (f *four) isFor(m feishusim.Message, want string) {
	f.t.Helper()
	for _, bot := range []string{"A", "B", "C", "D"} {
		agent := "agent_" + strings.ToLower(bot)
		if m.SenderName == "Bot"+bot {
			continue
		}
		wanted := strings.Contains(want, bot)
		f.until(fmt.Sprintf("it is known whether Bot%s is given %q, which is for %q", bot, m.Text, want), func() bool {
			return f.given(bot, m.ID) > 0 || f.stoppedAs(agent, m.ID) != ""
		})
		if got := f.given(bot, m.ID); wanted && got != 1 || !wanted && got > 0 {
			f.t.Errorf("Bot%s was given %q, which is for %q, %d times", bot, m.Text, want, got)
		}
		if wanted {
			f.until(fmt.Sprintf("the outcomes say that Bot%s was given %q", bot, m.Text), func() bool {
				return f.became(agent, m.ID).Delivered != 0
			})
			continue
		}
		if why := f.stoppedAs(agent, m.ID); why != relay.NotForMe {
			f.t.Errorf("Bot%s was not given %q because of %q", bot, m.Text, why)
		}
		question := map[string]any{"chat_id": f.chat, "content": m.Text, "sender": m.SenderName, "role": "user", "message_id": m.ID,
			"parent_id": m.ParentID, "root_id": m.RootID, "thread_id": m.ThreadID}
		if m.SenderType == "app" {
			delete(question, "role")
			question["sender_agent_name"] = "agent_" + strings.ToLower(strings.TrimPrefix(m.SenderName, "Bot"))
		}
		body, err := json.Marshal(question)
		must(f.t, err)
		status, answer := f.posts(f.sides[bot], "/v1/decide", string(body))
		if status != http.StatusOK || !strings.Contains(answer, `"allow":false`) || !strings.Contains(answer, `"reason":"not_for_me"`) {
			f.t.Errorf("of %q, which is for %q, Bot%s's sidecar says %d: %s", m.Text, want, bot, status, answer)
		}
	}
}

// Who gets a message in the modes: the same over gateway, webhook, connector and local API.
func TestWhoGetsAMessage(t *testing.T) {
	t.Parallel()
	f := newFour(t)
	ann := f.AddUser("Ann")
	must(t, f.Join(f.chat, ann.ID))
	mode := func(settings string, is func(shownGroup) bool) {
		t.Helper()
		f.patch(f.sides["A"], settings)
		f.agrees(settings, is)
	}
	answers := func(how, bot string) func(shownGroup) bool {
		return func(g shownGroup) bool { return g.Settings.Answer == how && g.Settings.DefaultBot == bot }
	}
	is := func(want string, u feishusim.Utterance) feishusim.Message {
		t.Helper()
		m := f.says(u)
		f.isFor(m, want)
		return m
	}
	say := func(want, text string) feishusim.Message {
		t.Helper()
		return is(want, feishusim.Utterance{Text: text})
	}
	say("A B C D", "who is there?")

	mode(`{"answer":"named"}`, answers("named", ""))
	say("", "who is there?")
	say("A", "@BotA are you there?")
	say("B C", "@BotB and @BotC, are you there?")
	say("D", "@BotD are you there?")
	say("", "@Ann are you there?")
	say("A", "@Ann and @BotA, are you there?")
	say("B D", "@all are you there?") // those with MENTION_ALL
	asked := say("C", "@BotC what is the plan?")
	plan := f.speaks("C", asked, "the plan is this")
	f.isFor(plan, "") // bots' messages that name nobody are for nobody
	is("C", feishusim.Utterance{Text: "why?", ReplyTo: plan.ID})
	is("A", feishusim.Utterance{Text: "@BotA and you?", ReplyTo: plan.ID}) // who is named comes first
	is("", feishusim.Utterance{Text: "me too", ReplyTo: asked.ID})         // a reply to a person
	f.isFor(f.speaks("C", asked, "@BotA what do you say to that?"), "A")

	topic := is("B", feishusim.Utterance{Text: "@BotB open a topic", ReplyTo: asked.ID, InThread: true})
	is("B", feishusim.Utterance{Text: "more of that", Thread: topic.ThreadID})
	is("A", feishusim.Utterance{Text: "@BotA go on", Thread: topic.ThreadID})
	is("A", feishusim.Utterance{Text: "what else?", Thread: topic.ThreadID})
	reply := f.speaks("B", topic, "here I am.")
	if reply.ThreadID != topic.ThreadID {
		t.Errorf("BotB's answer is in the topic %q", reply.ThreadID)
	}
	is("B", feishusim.Utterance{Text: "and then?", Thread: topic.ThreadID}) // who said the newest line
	say("", "who is there?")                                                // outside of the topic

	mode(`{"answer":"default"}`, answers("default", ""))
	say("", "who is there?")
	mode(`{"default_bot":"agent_d"}`, answers("default", "agent_d"))
	say("D", "who is there?")
	say("A", "@BotA not by default?")
	is("C", feishusim.Utterance{Text: "why?", ReplyTo: plan.ID})

	mode(`{"answer":"one","default_bot":null}`, answers("one", ""))
	f.speaks("B", f.says(feishusim.Utterance{Text: "@BotB hi"}), "hi.") // BotB has spoken to the person last
	say("B", "who answers?")
	is("A", feishusim.Utterance{User: ann.ID, Text: "who answers me?"}) // none has spoken to her: the first
	mode(`{"answer":"all"}`, answers("all", ""))
	say("A B C D", "the end")
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
