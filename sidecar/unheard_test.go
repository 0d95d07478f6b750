//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/feishusim"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// emits delivers an event of a message to an app; as it is, the event has no text.
func (n *tenant) emits(app feishusim.App, id string) {
	n.t.Helper()
	m := feishu.Message{ID: relay.MessageID(id), ChatID: relay.ChatID(n.chat), ChatType: feishu.ChatGroup, Type: "text",
		Content: `{"text":""}`, CreateTime: relay.MillisOf(time.Now()),
		Sender: feishu.Sender{OpenID: relay.OpenID(n.OpenID(app.ID, n.user.ID)), Type: feishu.SenderUser}}
	var event struct{ Event json.RawMessage }
	must(n.t, json.Unmarshal(m.Event("late-"+id, "", feishu.Self{}), &event))
	must(n.t, n.Emit(app.ID, feishu.MessageReceived, event.Event))
}

// fails waits until a sidecar's status has an error with words in it.
func (n *tenant) fails(s *running, words string) {
	n.t.Helper()
	n.until("the status has "+words, func() bool {
		return slices.ContainsFunc(s.Status().Errors, func(p sidecar.Problem) bool { return strings.Contains(p.Error, words) })
	})
}

// Of a merged forward its lines are recorded, which its event does not have; of an event without a text what Feishu
// says; and of a message without a text nothing.
func TestContentsAreReadFromFeishu(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"gateway", "connector"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA",
				Scopes: append(feishusim.DefaultScopes(), feishusim.ScopeGroup)})
			if by == "connector" {
				n.connector(apps[0], asIs)
			} else {
				_, botA := n.behind(apps[0], n.config("agent_a"), nil)
				botA.introduce(t)
			}
			say := func(u feishusim.Utterance) {
				u.Chat, u.User = n.chat, n.user.ID
				_, err := n.Post(u)
				must(t, err)
			}
			say(feishusim.Utterance{Children: []feishusim.Utterance{{User: "Tom", Text: "the first\nand more"},
				{User: "BotA", Text: "the second"}, {User: "Tom", Type: "image", Content: `{"image_key":"img_1"}`}}})
			say(feishusim.Utterance{Type: "text", Content: `{"text":""}`})
			n.Fault(feishusim.Fault{Kind: feishusim.FaultDelay, Delay: time.Hour})
			late := n.says("words that come late")
			n.ClearFaults()
			n.emits(apps[0], late)
			n.recorded([]string{"[合并转发]\nTom: the first\n  and more\nBotA: the second\nTom: [图片]", "words that come late"})
			n.says("the end")
			n.recorded([]string{"the first", "words that come late", "the end"})
		})
	}
}

// What Feishu does not deliver to a bot that it names, another bot's copy tells: the bot is given it, once.
func TestMissedMessagesAreReadFromFeishu(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA",
		Scopes: append(feishusim.DefaultScopes(), feishusim.ScopeGroup)}, feishusim.App{Name: "BotB"}, feishusim.App{Name: "BotC"})
	a, cfg := n.start(n.config("agent_a")), n.config("agent_b")
	cfg.MaxAge = 20 * time.Second
	b := n.start(cfg)
	_, botB := n.bots(apps, a, b)
	botB.introduce(t)
	_, botC := n.connector(apps[2], func(cfg *sidecar.Config) { cfg.MaxAge = 20 * time.Second })
	for _, app := range apps[1:] {
		n.Fault(feishusim.Fault{Kind: feishusim.FaultDelay, App: app.ID, Delay: time.Hour})
	}
	id := n.says("@BotB @BotC are you there?")
	if h := n.hears(botB, "are you there?"); h.ID != id || !n.mentioned(botB, h) || h.SenderID != n.OpenID(apps[1].ID, n.user.ID) {
		t.Errorf("BotB was given %+v, want message %s of Tom, which mentions it", h, id)
	}
	if in := botC.gets("are you there?"); in.Metadata["message_id"] != id || in.Metadata["is_mentioned"] != true {
		t.Errorf("BotC was posted %+v", in)
	}
	n.fails(b, fmt.Sprint("the bot missed message ", id))
	n.ClearFaults()
	n.emits(apps[1], id)
	n.says("@BotB and now?")
	n.hears(botB, "and now?")
	n.eachOnce(botB)
}

// Another program that holds a connection of the app takes a part of its events: the status says so.
func TestOtherConnectionsAreReported(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	a, botA := n.behind(apps[0], n.config("agent_a"), nil)
	botA.introduce(t)
	n.bot(apps[0], n.url.String(), nil)
	n.fails(a, "the app has 2 connections to Feishu, and 1 are of this sidecar")
}
