package gateway

import (
	"encoding/json"
	"fmt"
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

// An answer without what we injected is replaced, also where Feishu refuses the call.
func TestLookUpsReplaceOnlyWhatIsMissing(t *testing.T) {
	for _, path := range []string{"bot/v3/bots/basic_batch?bot_ids=%s", "contact/v3/users/%s?user_id_type=open_id", "im/v1/messages/%s", "im/v1/messages/mget?message_ids=%s"} {
		ours, theirs := "ou_b", "ou_other"
		if path[0] == 'i' {
			ours, theirs = "om_injected", "om_other"
		}
		for _, c := range []struct {
			name, id string
			status   int
			answer   string
			replaced bool
		}{
			{"no scope", ours, 400, `{"code":99991672,"msg":"Access denied"}`, true},
			{"no user scope", ours, 400, `{"code":99991679,"msg":"x"}`, true},
			{"no such page", ours, 404, `not JSON`, true},
			{"message not found", ours, 400, `{"code":230001,"msg":"x"}`, true},
			{"no authority", ours, 400, `{"code":41050,"msg":"x"}`, true},
			{"rate limit", ours, 429, `{"code":99991400,"msg":"x"}`, true},
			{"server trouble", ours, 502, `<html>`, false},
			{"another's id", theirs, 400, `{"code":99991672,"msg":"x"}`, false},
		} {
			t.Run(path+" "+c.name, func(t *testing.T) {
				r := lookupRig(t)
				target := "/open-apis/" + fmt.Sprintf(path, c.id)
				route, _, _ := cut(target)
				r.up.say("GET "+route, c.status, c.answer)
				status, body := r.call("GET", target, "{}")
				if c.replaced != (status == 200 && body != c.answer) {
					t.Errorf("the bot got %d %s", status, body)
				}
				if !c.replaced && (body != c.answer || status != c.status) {
					t.Errorf("altered: %d %s", status, body)
				}
				if c.replaced {
					var ans struct{ Code *int }
					if json.Unmarshal([]byte(body), &ans) != nil || ans.Code == nil || *ans.Code != 0 {
						t.Errorf("the bot got %s", body)
					}
				}
			})
		}
	}
}

func cut(s string) (before, after string, found bool) {
	for i := range s {
		if s[i] == '?' {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
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

func FuzzLookUp(f *testing.F) {
	f.Add("bot_ids=ou_b", []byte(`{"code":0,"data":{"bots":null,"failed_bots":[]}}`))
	f.Add("bot_ids[]=ou_b,ou_c", []byte(`{"code":99991672}`))
	f.Add("bot_ids=ou_b&message_ids=om_injected", []byte(`{"code":0,"data":null}`))
	r := lookupRig(f)
	f.Fuzz(func(t *testing.T, query string, answer []byte) {
		for _, path := range []string{"bot/v3/bots/basic_batch", "contact/v3/users/ou_b", "im/v1/messages/om_injected", "im/v1/messages/mget"} {
			call := r.match(nil, newRequest("GET", "/open-apis/"+path, query))
			call.token, call.status, call.answer = "t-"+r.app, 200, answer
			if call.read(call); call.instead != nil && !json.Valid(call.instead) {
				t.Errorf("answered %s", call.instead)
			}
		}
	})
}
