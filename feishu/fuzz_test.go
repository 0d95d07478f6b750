package feishu_test

import (
	"errors"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

func FuzzEvent(f *testing.F) {
	f.Add([]byte(received))
	f.Add([]byte(`{"type":"event_callback","event":{"type":"message"}}`))
	f.Add([]byte(`{"header":{"event_type":"im.message.receive_v1"},"event":{"message":{"message_id":"a","chat_id":"b","message_type":"interactive","content":"{}","mentions":[{"id":7}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := feishu.ParseEvent(data)
		if err != nil {
			if !errors.Is(err, feishu.ErrNotEvent) || len(err.Error()) > 200 {
				t.Fatalf("error %v", err)
			}
			return
		}
		if e.Message == nil {
			return
		}
		if e.Message.ID == "" || e.Message.ChatID == "" || relay.CheckID(string(e.Message.ID)) != nil || e.ChatID != e.Message.ChatID {
			t.Fatalf("ids %+v", e)
		}
		e.Message.Text()
	})
}

func FuzzSent(f *testing.F) {
	f.Add([]byte(sentAnswer))
	f.Add([]byte(`{"code":0,"data":{"items":[{"message_id":"a","body":7}],"message":{"message_id":"b"}}}`))
	f.Add([]byte(`{"code":230002,"msg":"x"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := feishu.ParseSent(data)
		if err != nil && !errors.Is(err, feishu.ErrNotAccepted) {
			t.Fatalf("error %v", err)
		}
		if relay.CheckID(string(m.ID)) != nil && err == nil {
			t.Fatalf("id %q", m.ID)
		}
		items, err := feishu.ParseHistory(data)
		if err != nil && !errors.Is(err, feishu.ErrNotAccepted) {
			t.Fatalf("error %v", err)
		}
		for _, m := range items {
			if m.ID == "" || relay.CheckID(string(m.ID)) != nil {
				t.Fatalf("id %q", m.ID)
			}
		}
	})
}

func FuzzInjected(f *testing.F) {
	f.Add("@BotB @BotC <at id=all> @_user_1 /x", "BotB", "BotC", "[A] ", true)
	f.Add("/x", "", "", "", false)
	f.Add("_user_1", "a@", "_user_1", "@", true)
	f.Fuzz(func(t *testing.T, text, self, other, prefix string, addressed bool) {
		in := feishu.Injected{EventID: "e", AppID: "a", Message: "m", ChatID: "c", Text: text, MentionsSelf: addressed, Prefix: prefix,
			Self: feishu.Bot{OpenID: "ou_s", Name: self}, Mentions: []feishu.Mention{{OpenID: "ou_1", Name: other}, {OpenID: "ou_2", Name: self}}}
		checkInjected(t, in)
	})
}

func FuzzCard(f *testing.F) {
	calls := []string{"PUT ", "PATCH /settings", "POST /batch_update", "POST /elements", "PUT /elements/{element}",
		"PATCH /elements/{element}", "DELETE /elements/{element}", "PUT /elements/{element}/content"}
	f.Add(threeElements, "b", `{"content":"x"}`)
	f.Add(threeElements, "b", `{"actions":[{"action":"delete_elements","params":{"element_ids":["a"]}}]}`)
	f.Add(`{"elements":[{"tag":"markdown","element_id":"a"}]}`, "a", `{"elements":[{"tag":"hr"}],"type":"append"}`)
	f.Add(`{"user_dsl":"{}"}`, "", `{"element":"{}","partial_element":{"text":7}}`)
	f.Fuzz(func(t *testing.T, card, element, body string) {
		c, err := feishu.NewCard([]byte(card))
		if err != nil || len(card) > 1<<16 {
			return
		}
		for _, call := range calls {
			_ = c.Apply(call, element, []byte(body))
			roundTrip(t, c)
		}
	})
}
