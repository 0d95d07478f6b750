package gateway

import (
	"testing"

	larkcontact "github.com/larksuite/oapi-sdk-go/v3/service/contact/v3"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

func lookupRig(t testing.TB) *rig {
	r := newRig(t, nil)
	r.book.LearnSelf(feishu.Self{OpenID: "ou_self", Name: "Me"})
	r.proved("t-"+r.app, r.app)
	r.host.peer = func(id relay.OpenID) (feishu.Bot, bool) {
		return feishu.Bot{OpenID: id, AppID: "cli_b", Name: "BotB"}, id == "ou_b"
	}
	r.host.injected = func(id relay.MessageID) (feishu.Message, bool) {
		return feishu.Message{ID: id, ChatID: group, Type: "text", Content: `{"text":"@_user_1 <hi>"}`, CreateTime: 1700000000000, ThreadID: "omt_1",
			Sender:   feishu.Sender{Type: feishu.SenderBot, AppID: "cli_b", OpenID: "ou_b"},
			Mentions: []feishu.Mention{{Key: "@_user_1", OpenID: "ou_self", Name: "Me"}}}, id == "om_injected"
	}
	return r
}

func TestLookUpsReadBySDK(t *testing.T) {
	r := lookupRig(t)
	r.up.say("GET /open-apis/contact/v3/users/ou_b", 400, `{"code":41050,"msg":"no user authority error"}`)
	user, err := r.sdk().Contact.V3.User.Get(t.Context(), larkcontact.NewGetUserReqBuilder().UserId("ou_b").UserIdType("open_id").Build())
	if err != nil || !user.Success() || *user.Data.User.Name != "BotB" || *user.Data.User.OpenId != "ou_b" {
		t.Errorf("%v %+v", err, user)
	}
	for _, idType := range []string{"", "open_id"} {
		req := larkim.NewGetMessageReqBuilder().MessageId("om_injected")
		wantID, wantType := "ou_self", "open_id"
		if idType != "" {
			req.UserIdType(idType)
			wantID, wantType = r.app, "app_id"
		}
		got, err := r.sdk().Im.V1.Message.Get(t.Context(), req.Build())
		if err != nil || !got.Success() || len(got.Data.Items) != 1 {
			t.Fatalf("%v %+v", err, got)
		}
		m := got.Data.Items[0]
		if *m.MessageId != "om_injected" || *m.ChatId != group || *m.Body.Content != `{"text":"@_user_1 <hi>"}` || *m.CreateTime != "1700000000000" ||
			*m.Sender.Id != "cli_b" || *m.Sender.SenderType != "app" || *m.Mentions[0].Id != wantID || *m.Mentions[0].IdType != wantType {
			t.Errorf("%s", got.RawBody)
		}
	}
}
