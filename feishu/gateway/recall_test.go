package gateway

import (
	"fmt"
	"testing"

	"feishu-relay/feishu"
)

func recallOf(app, chat, id string) []byte {
	return fmt.Appendf(nil, `{"schema":"2.0","header":{"event_id":"e","event_type":"im.message.recalled_v1","app_id":%q,"create_time":"1"},
		"event":{"message_id":%q,"chat_id":%q,"recall_time":"1700000000123","recall_type":"group_manager"}}`, app, id, chat)
}

func TestRecallsAreTold(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	r.tapEvent(recallOf(r.app, "oc_x", "om_x"))
	id := r.text("hi")
	r.said()
	if status, _ := r.call("DELETE", "/open-apis/im/v1/messages/"+id, "{}"); status != 200 {
		t.Fatal(status)
	}
	r.up.say("DELETE /open-apis/im/v1/messages/om_other", 400, `{"code":230026,"msg":"m"}`)
	r.call("DELETE", "/open-apis/im/v1/messages/om_other", "{}")
	got := r.host.recalls()
	if len(got) != 2 || got[0] != (recalled{"oc_x", "om_x", 1700000000123}) || got[1].chat != group || string(got[1].id) != id {
		t.Errorf("told %v", got)
	}
	if v, _ := r.tapEvent(recallOf("cli_other", "oc_x", "om_x")); v != feishu.Pass || len(r.host.recalls()) != 2 {
		t.Error("another app's event is read")
	}
}

// A reaction by which a sidecar shows something is kept from the bot, whichever app set it.
func TestReactionsOfOurOwn(t *testing.T) {
	r := newRig(t, nil)
	r.host.reactions = map[string]bool{"om_1/OK": true}
	for _, c := range []struct {
		kind, operator, app, id, emoji string
		want                           feishu.Verdict
	}{
		{feishu.EventReacted, "app", r.app, "om_1", "OK", feishu.Keep},
		{feishu.EventReactionEnded, "app", r.app, "om_1", "OK", feishu.Keep},
		{feishu.EventReacted, "app", "", "om_1", "OK", feishu.Keep},
		{feishu.EventReacted, "app", r.app, "om_1", "Typing", feishu.Pass},
		{feishu.EventReacted, "app", r.app, "om_2", "OK", feishu.Pass},
		{feishu.EventReacted, "app", "cli_other", "om_1", "OK", feishu.Keep}, // another sidecar's
		{feishu.EventReacted, "app", "cli_other", "om_1", "Typing", feishu.Pass},
		{feishu.EventReacted, "user", "", "om_1", "OK", feishu.Pass},
		{feishu.EventReacted, "app", r.app, "", "OK", feishu.Pass},
	} {
		event := js(map[string]any{"schema": "2.0", "header": map[string]any{"event_id": "e", "event_type": c.kind, "app_id": r.app},
			"event": map[string]any{"message_id": c.id, "operator_type": c.operator, "app_id": c.app,
				"reaction_type": map[string]any{"emoji_type": c.emoji}}})
		if v, _ := r.tapEvent([]byte(event)); v != c.want {
			t.Errorf("%+v: verdict %v", c, v)
		}
	}
}
