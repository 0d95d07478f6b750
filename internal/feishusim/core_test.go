package feishusim

import (
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

func TestABotsMessage(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB", Scopes: append(DefaultScopes(), ScopeAtIncludeBot)})
	b := r.connect(r.apps[1])
	c := r.client(r.apps[0])
	r.mustSend(c, "text", textOf("nobody named"))
	resp, err := c.Im.V1.Message.Create(t.Context(), larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").
		Body(larkim.NewCreateMessageReqBodyBuilder().ReceiveId(r.group.ID).MsgType("text").
			Content(textOf(`<at user_id="`+r.OpenID(r.apps[0].ID, r.apps[1].ID)+`"></at> hi <b>you</b>`)).Build()).Build())
	if err != nil || !resp.Success() {
		t.Fatalf("send: %v %v", err, resp)
	}
	if got, want := *resp.Data.Body.Content, `{"text":"@_user_1 hi you"}`; got != want {
		t.Errorf("answer: got %s, want %s", got, want)
	}
	if got := resp.Data.Mentions[0]; *got.Id != r.OpenID(r.apps[0].ID, r.apps[1].ID) || *got.Name != "BotB" {
		t.Errorf("answer's mention: %v", got)
	}
	if got := resp.Data.Sender; *got.Id != r.apps[0].ID || *got.SenderType != "app" || *got.IdType != "app_id" {
		t.Errorf("answer's sender: %v", got)
	}
	e := r.next(b)
	if got := *e.Event.Message.MessageId; got != *resp.Data.MessageId {
		t.Errorf("event: got %s, want the message that names BotB", got)
	}
	if *e.Event.Sender.SenderType != "bot" || *e.Event.Message.Mentions[0].Id.OpenId != r.OpenID(r.apps[1].ID, r.apps[1].ID) {
		t.Errorf("event: %v %v", e.Event.Sender, e.Event.Message.Mentions)
	}
	if got := r.message(*resp.Data.MessageId); got.Text != "@BotB hi you" || got.Mentions[0] != r.apps[1].ID {
		t.Errorf("true message: %+v", got)
	}
}
