package feishusim

import (
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

func at(v map[string]any, path ...string) any {
	var now any = v
	for _, key := range path {
		m, _ := now.(map[string]any)
		now = m[key]
	}
	return now
}

func TestChatsAndMembers(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB"})
	a, b := r.apps[0], r.apps[1]
	c := r.client(a)
	chat, err := c.Im.V1.Chat.Get(t.Context(), larkim.NewGetChatReqBuilder().ChatId(r.group.ID).Build())
	if err != nil || !chat.Success() || *chat.Data.ChatMode != "group" || *chat.Data.Name != "Lab" || *chat.Data.BotCount != "2" {
		t.Errorf("chat: %v %v", err, chat)
	}
	if *chat.Data.OwnerId != r.OpenID(a.ID, r.ann.ID) || *chat.Data.OwnerIdType != "open_id" || len(chat.Data.UserManagerIdList) != 0 {
		t.Errorf("owner: %v", chat)
	}
	bob := r.AddUser("Bob")
	if err := r.Join("Lab", "Bob"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.UpdateGroup(Group{Name: "Lab", Owner: "Bob", Managers: []string{"Ann", "BotB"}}); err != nil {
		t.Fatal(err)
	}
	chat, err = c.Im.V1.Chat.Get(t.Context(), larkim.NewGetChatReqBuilder().ChatId(r.group.ID).UserIdType("union_id").Build())
	if err != nil || *chat.Data.OwnerId != bob.UnionID || *chat.Data.OwnerIdType != "union_id" ||
		!slices.Equal(chat.Data.UserManagerIdList, []string{r.ann.UnionID}) || !slices.Equal(chat.Data.BotManagerIdList, []string{b.ID}) {
		t.Errorf("owner and managers: %v %v", err, chat)
	}
	for _, g := range []Group{{Name: "Lab", Owner: "Nobody"}, {Name: "Lab", Topic: true}, {Name: "Moon"}} {
		if _, err := r.UpdateGroup(g); err == nil {
			t.Errorf("%+v: no error", g)
		}
	}
	if err := r.Leave("Lab", "Bob"); err != nil || r.State().Groups[0].Owner != r.ann.ID {
		t.Errorf("the owner left: %v %+v", err, r.State().Groups)
	}
	topics := must(r.addGroup(Group{Name: "Topics", Topic: true, Members: []string{a.ID}}))
	if _, v := r.raw(a, "GET", "/open-apis/im/v1/chats/"+topics.ID, ""); at(v, "data", "chat_mode") != "topic" {
		t.Errorf("topic group: %v", v)
	}
	people, err := c.Im.V1.ChatMembers.Get(t.Context(), larkim.NewGetChatMembersReqBuilder().ChatId(r.group.ID).Build())
	if err != nil || !people.Success() || len(people.Data.Items) != 1 || *people.Data.Items[0].MemberId != r.OpenID(a.ID, r.ann.ID) {
		t.Errorf("members: %v %v", err, people)
	}
	_, v := r.raw(a, "GET", "/open-apis/im/v1/chats/"+r.group.ID+"/members/bots", "")
	bots := at(v, "data", "items").([]any)
	if len(bots) != 2 || at(bots[1].(map[string]any), "bot_id") != r.OpenID(a.ID, b.ID) || at(bots[1].(map[string]any), "bot_name") != "BotB" {
		t.Errorf("bots: %v", v)
	}
	for chat, want := range map[string]bool{r.group.ID: true, r.AddGroup("Other", b.ID).ID: false} {
		if _, v := r.raw(a, "GET", "/open-apis/im/v1/chats/"+chat+"/members/is_in_chat", ""); at(v, "data", "is_in_chat") != want {
			t.Errorf("is_in_chat: %v, want %v", v, want)
		}
	}
	if _, v := r.raw(a, "GET", "/open-apis/im/v1/chats?page_size=1", ""); at(v, "data", "has_more") != true || len(at(v, "data", "items").([]any)) != 1 {
		t.Errorf("own chats: %v", v)
	}
	if err := r.Disband("Lab", ""); err != nil {
		t.Fatal(err)
	}
	if _, v := r.raw(a, "GET", "/open-apis/im/v1/chats/"+r.group.ID, ""); code(v) != 232009 {
		t.Errorf("a group that is gone: %v", v)
	}
	if _, v := r.raw(a, "GET", "/open-apis/im/v1/chats/oc_x", ""); code(v) != 232006 {
		t.Errorf("no chat: %v", v)
	}
}

func TestHistory(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB", Scopes: []string{"im:message"}})
	a := r.apps[0]
	var ids []string
	for i := range 5 {
		ids = append(ids, r.say("message "+strconv.Itoa(i)))
	}
	mentions := r.mustSend(r.client(r.apps[0]), "text", textOf(`<at user_id="`+r.OpenID(a.ID, r.apps[1].ID)+`"></at>`))
	now := strconv.FormatInt(time.Now().Unix(), 10)
	var got []string
	page := ""
	for {
		q := url.Values{"container_id_type": {"chat"}, "container_id": {r.group.ID}, "page_size": {"4"}, "end_time": {now}, "start_time": {"1"}}
		if page != "" {
			q.Set("page_token", page)
		}
		_, v := r.raw(a, "GET", "/open-apis/im/v1/messages?"+q.Encode(), "")
		if code(v) != 0 {
			t.Fatalf("list: %v", v)
		}
		for _, item := range at(v, "data", "items").([]any) {
			got = append(got, str(at(item.(map[string]any), "message_id")))
		}
		if page = str(at(v, "data", "page_token")); page == "" {
			break
		}
	}
	if len(got) != 6 || got[0] != ids[0] || got[5] != mentions {
		t.Errorf("history: %v, want %v and %s", got, ids, mentions)
	}
	_, v := r.raw(a, "GET", "/open-apis/im/v1/messages?container_id_type=chat&container_id="+r.group.ID+"&start_time=99999999999", "")
	if n := len(at(v, "data", "items").([]any)); n != 0 {
		t.Errorf("%d messages of the future: start_time is in seconds", n)
	}
	_, v = r.raw(a, "GET", "/open-apis/im/v1/messages?sort_type=ByCreateTimeDesc&page_size=1&with_sender_name=true&container_id_type=chat&container_id="+r.group.ID, "")
	last := at(v, "data", "items").([]any)[0].(map[string]any)
	if last["message_id"] != mentions || at(last, "sender", "sender_name") != "BotA" || at(last, "sender", "id") != a.ID {
		t.Errorf("newest: %v", last)
	}
	if _, v := r.raw(r.apps[1], "GET", "/open-apis/im/v1/messages?container_id_type=chat&container_id="+r.group.ID, ""); code(v) != 230027 {
		t.Errorf("without im:message.group_msg: %v", v)
	}
	for query, want := range map[string]string{"": r.OpenID(a.ID, r.apps[1].ID), "?user_id_type=open_id": r.apps[1].ID} {
		_, v := r.raw(a, "GET", "/open-apis/im/v1/messages/"+mentions+query, "")
		item := at(v, "data", "items").([]any)[0].(map[string]any)
		if got := item["mentions"].([]any)[0].(map[string]any)["id"]; got != want {
			t.Errorf("mention, asked with %q: got %v, want %s", query, got, want)
		}
	}
	if _, v := r.raw(a, "GET", "/open-apis/im/v1/messages/mget?message_ids="+ids[0]+"&message_ids="+ids[1], ""); len(at(v, "data", "items").([]any)) != 2 {
		t.Errorf("mget: %v", v)
	}
	if _, v := r.raw(a, "GET", "/open-apis/im/v1/messages/mget?message_ids=om_x", ""); code(v) != 99992354 {
		t.Errorf("mget of nothing: %v", v)
	}
	if err := r.Recall(ids[0]); err != nil {
		t.Fatal(err)
	}
	_, v = r.raw(a, "GET", "/open-apis/im/v1/messages/"+ids[0], "")
	if item := at(v, "data", "items").([]any)[0].(map[string]any); item["deleted"] != true || at(item, "body", "content") != "This message was recalled" {
		t.Errorf("taken back: %v", item)
	}
}
