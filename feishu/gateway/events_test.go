package gateway

import (
	"testing"

	"feishu-relay/feishu"
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

func FuzzTapEvent(f *testing.F) {
	r := newRig(f, nil)
	f.Add([]byte(eventOf(r.app, "bot", "ou_b", "om_e", group, "group", "hi")))
	f.Add([]byte(`{"schema":"2.0","header":{"event_type":"im.message.receive_v1","app_id":"` + r.app + `"},"event":{"message":null}}`))
	f.Add([]byte(`{"encrypt":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r.tapEvent(data)
	})
}
