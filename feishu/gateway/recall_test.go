package gateway

import (
	"context"
	"fmt"
	"testing"
	"time"

	"feishu-relay/feishu"
)

func recallOf(app, chat, id string) []byte {
	return fmt.Appendf(nil, `{"schema":"2.0","header":{"event_id":"e","event_type":"im.message.recalled_v1","app_id":%q,"create_time":"1"},
		"event":{"message_id":%q,"chat_id":%q,"recall_time":"1700000000123","recall_type":"group_manager"}}`, app, id, chat)
}

// What was recalled is never published: not a held text, not a card that streams, not what the
// host refused before, and no edit. It does not matter who recalled it.
func TestRecalledMessagesAreNotPublished(t *testing.T) {
	held := map[string]func(d *desk) string{
		"a text that may be edited": func(d *desk) string {
			return d.text("secret")
		},
		"a card that streams": func(d *desk) string { return d.send(group, "interactive", d.card("secret", true)) },
		"a text that the host refused": func(d *desk) string {
			refuse := true
			d.host.sent = func(context.Context, Sent) error {
				if refuse {
					refuse = false
					return errTest
				}
				return nil
			}
			return d.text("secret")
		},
		"an edit": func(d *desk) string {
			id := d.send(group, "interactive", d.card("before", false))
			d.after(settle, "before")
			d.do("PATCH", "im/v1/messages/"+id, map[string]any{"content": d.card("secret", false)}, map[string]any{})
			return id
		},
	}
	for name, hold := range held {
		for by, recall := range map[string]func(d *desk, id string){
			"the bot": func(d *desk, id string) { d.do("DELETE", "im/v1/messages/"+id, nil, map[string]any{}) },
			"a manager": func(d *desk, id string) {
				if v, _ := d.tapEvent(recallOf(d.app, group, id)); v != feishu.Pass {
					t.Errorf("the event does not pass: %v", v)
				}
			},
		} {
			t.Run(name+", by "+by, func(t *testing.T) {
				atDesk(t, func(d *desk) {
					id := hold(d)
					recall(d, id)
					recall(d, id) // events come again
					d.never(time.Hour)
					if got := d.host.recalls(); len(got) != 2 || got[0].chat != group || string(got[0].id) != id || got[0].at == 0 {
						t.Errorf("the host was told %v", got)
					}
					if n := d.drafts.waiting(); n != 0 || d.counts.of("draft_published") > 1 {
						t.Errorf("%d drafts", n)
					}
				})
			})
		}
	}
}

// The recall may be known before the send is recorded.
func TestARecallThatOvertakesTheSend(t *testing.T) {
	atDesk(t, func(d *desk) {
		d.tapEvent(recallOf(d.app, group, "om_1"))
		d.text("secret") // which is om_1
		d.never(time.Hour)
		d.text("next.")
		d.now("next.")
	})
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
