package gateway

import (
	"fmt"
	"slices"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

func eventOf(app, senderType, sender, id, chat, chatType, text string) string {
	return js(map[string]any{"schema": "2.0", "header": map[string]any{"event_id": "e-" + id, "event_type": feishu.MessageReceived, "app_id": app, "create_time": "1700000000000"},
		"event": map[string]any{
			"sender": map[string]any{"sender_id": map[string]any{"open_id": sender}, "sender_type": senderType},
			"message": map[string]any{"message_id": id, "chat_id": chat, "chat_type": chatType, "message_type": "text", "create_time": "1700000000000",
				"content": textOf(text), "mentions": []any{
					map[string]any{"key": "@_user_1", "id": map[string]any{"open_id": "ou_bot_x"}, "name": "X", "mentioned_type": "bot"},
					map[string]any{"key": "@_user_2", "id": map[string]any{"open_id": "ou_person"}, "name": "P", "mentioned_type": "user"}}}}})
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name, senderType, sender, chatType string
		app                                string
		verdict                            feishu.Verdict
		heard, native                      bool
	}{
		{name: "a person in a group", senderType: "user", sender: "ou_u", chatType: "group", verdict: feishu.Pass, heard: true},
		{name: "a person in private", senderType: "user", sender: "ou_u", chatType: "p2p", verdict: feishu.Pass, heard: true},
		{name: "another bot", senderType: "bot", sender: "ou_b", chatType: "group", verdict: feishu.Keep, native: true},
		{name: "another app", senderType: "app", sender: "ou_b", chatType: "group", verdict: feishu.Keep, native: true},
		{name: "another bot in private", senderType: "bot", sender: "ou_b", chatType: "p2p", verdict: feishu.Pass},
		{name: "the bot itself", senderType: "bot", sender: "ou_self", chatType: "group", verdict: feishu.Pass},
		{name: "an event of another app", senderType: "bot", sender: "ou_b", chatType: "group", app: "cli_other", verdict: feishu.Pass},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.book.LearnSelf(feishu.Self{OpenID: "ou_self"})
			var heard, native bool
			r.host.heard = func(m feishu.Message) error { heard = m.ID == "om_e"; return nil }
			r.host.native = func(m feishu.Message, _ bool) error { native = m.ID == "om_e"; return nil }
			app := r.app
			if c.app != "" {
				app = c.app
			}
			v, _ := r.tapEvent([]byte(eventOf(app, c.senderType, c.sender, "om_e", "oc_e", c.chatType, "hi")))
			if v != c.verdict || heard != c.heard || native != c.native {
				t.Errorf("verdict %v, heard %v, native %v", v, heard, native)
			}
			if !c.heard && !c.native {
				return
			}
			if got := r.book.Chat("oc_e"); got.Kind != c.chatType || got.In != feishu.Yes {
				t.Errorf("the chat is %+v", got)
			}
			if b, ok := r.book.Bot("ou_bot_x"); !ok || b.Name != "X" {
				t.Error("the mentioned bot was not learned")
			}
			if _, ok := r.book.Bot("ou_person"); ok {
				t.Error("a person was taken for a bot")
			}
		})
	}
}

func TestNativeTrouble(t *testing.T) {
	r := newRig(t, nil)
	event := []byte(eventOf(r.app, "bot", "ou_b", "om_e", group, "group", "hi"))
	r.host.native = func(feishu.Message, bool) error { return errTest }
	if v, _ := r.tapEvent(event); v != feishu.Refuse {
		t.Errorf("what could not be stored: %v", v)
	}
	r.host.native = func(feishu.Message, bool) error { panic("boom") }
	if v, _ := r.tapEvent(event); v != feishu.Pass {
		t.Errorf("after a panic: %v", v)
	}
}

func TestOwnMessageWhileOpenIDIsUnknown(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	r.up.say("GET /open-apis/bot/v3/info", 500, `{}`)
	id := r.text("mine")
	r.said()
	card := r.send("interactive", `{"schema":"2.0","config":{"streaming_mode":true}}`)
	for _, id := range []string{id, card} {
		if v, _ := r.tapEvent([]byte(eventOf(r.app, "bot", "ou_unknown", id, group, "group", "mine"))); v != feishu.Pass {
			t.Errorf("own message %s: %v", id, v)
		}
	}
}

func TestMembershipEvents(t *testing.T) {
	r := newRig(t, nil)
	event := func(kind string) []byte {
		return fmt.Appendf(nil, `{"schema":"2.0","header":{"event_id":"e","event_type":"%s","app_id":"%s"},"event":{"chat_id":"oc_x"}}`, kind, r.app)
	}
	for _, kind := range []string{feishu.EventBotDeleted, feishu.EventDisbanded} {
		if v, _ := r.tapEvent(event(feishu.EventBotAdded)); v != feishu.Pass || r.book.Chat("oc_x").In != feishu.Yes || r.book.Chat("oc_x").Kind != feishu.ChatGroup {
			t.Error(v, r.book.Chat("oc_x"))
		}
		if v, _ := r.tapEvent(event(kind)); v != feishu.Pass || r.book.Chat("oc_x").In != feishu.No {
			t.Error(v, r.book.Chat("oc_x"))
		}
	}
	want := []relay.ChatID{"oc_x", "oc_x"}
	if !slices.Equal(r.host.joinedChats, want) || !slices.Equal(r.host.leftChats, want) {
		t.Errorf("told %v and %v", r.host.joinedChats, r.host.leftChats)
	}
}

func FuzzTapEvent(f *testing.F) {
	f.Add([]byte(eventOf("cli_a", "bot", "ou_b", "om_e", group, "group", "hi")))
	f.Add([]byte(`{"schema":"2.0","header":{"event_type":"im.message.receive_v1","app_id":"cli_a"},"event":{"message":null}}`))
	f.Add([]byte(`{"encrypt":"x"}`))
	r := newRig(f, func(o *Options) { forApp(o, "cli_a") })
	f.Fuzz(func(t *testing.T, data []byte) {
		r.tapEvent(data)
	})
}
