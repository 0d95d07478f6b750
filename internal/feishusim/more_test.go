package feishusim

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

func TestTopicsBySendAndForward(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	a := r.apps[0]
	topics := r.AddTopicGroup("Topics", a.ID, r.ann.ID)
	root, err := r.Say("Topics", "Ann", "a topic")
	if err != nil {
		t.Fatal(err)
	}
	topic := r.message(root).ThreadID
	if _, err := r.Post(Utterance{User: "Ann", Thread: topic, Text: "more"}); err != nil {
		t.Fatal(err)
	}
	_, v := r.raw(a, "POST", "/open-apis/im/v1/messages?receive_id_type=thread_id", compact(map[string]string{
		"receive_id": topic, "msg_type": "text", "content": textOf("the bot's"),
	}))
	if code(v) != 0 || at(v, "data", "thread_id") != topic || at(v, "data", "root_id") != root {
		t.Errorf("a send into a topic: %v", v)
	}
	_, v = r.raw(a, "POST", "/open-apis/im/v1/threads/"+topic+"/forward?receive_id_type=chat_id&uuid=f1", `{"receive_id":"`+r.group.ID+`"}`)
	_, read := r.raw(a, "GET", "/open-apis/im/v1/messages/"+str(at(v, "data", "message_id")), "")
	if items := at(read, "data", "items").([]any); len(items) != 4 || at(v, "data", "msg_type") != "merge_forward" {
		t.Errorf("a forwarded topic: %v, %d items", v, len(items))
	}
	_, v = r.raw(a, "GET", "/open-apis/im/v1/messages?container_id_type=chat&container_id="+topics.ID, "")
	if items := at(v, "data", "items").([]any); len(items) != 1 {
		t.Errorf("the chat shows %d messages of a topic, want its root", len(items))
	}
}

func TestCardsByPatch(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	a, c := r.apps[0], r.client(r.apps[0])
	post := r.mustSend(c, "post", `{"zh_cn":{"content":[[{"tag":"md","text":"draft"}]]}}`)
	body := compact(map[string]string{"content": `{"zh_cn":{"content":[[{"tag":"md","text":"done"}]]}}`})
	if _, v := r.raw(a, "PATCH", "/open-apis/im/v1/messages/"+post, body); code(v) != 0 || r.message(post).Text != "done" {
		t.Errorf("a post edited by PATCH: %v, %q", v, r.message(post).Text)
	}
	card := r.mustSend(c, "interactive", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"a"}]}}`)
	codes := map[int]int{}
	for range 8 {
		_, v := r.raw(a, "PATCH", "/open-apis/im/v1/messages/"+card, compact(map[string]string{"content": `{"schema":"2.0","body":{"elements":[]}}`}))
		codes[code(v)]++
	}
	if codes[230020] == 0 || codes[0] == 0 {
		t.Errorf("8 patches at once: codes %v", codes)
	}
	fixed := r.mustSend(c, "interactive", `{"config":{"update_multi":false},"elements":[]}`)
	if _, v := r.raw(a, "PATCH", "/open-apis/im/v1/messages/"+fixed, compact(map[string]string{"content": `{"elements":[]}`})); code(v) != 230099 {
		t.Errorf("a card that may not change: %v", v)
	}
	_, v := r.raw(a, "POST", "/open-apis/cardkit/v1/cards/id_convert", `{"message_id":"`+card+`"}`)
	id := str(at(v, "data", "card_id"))
	if _, v := r.raw(a, "POST", "/open-apis/cardkit/v1/cards/"+id+"/elements", compact(map[string]any{
		"type": "append", "sequence": 1, "elements": `[{"tag":"markdown","content":"added"}]`,
	})); code(v) != 0 || r.message(card).Text != "added" || r.message(card).CardID != id {
		t.Errorf("an inline card made an entity: %v, %+v", v, r.message(card))
	}
	if _, v := r.raw(a, "POST", "/open-apis/cardkit/v1/cards", compact(map[string]string{"type": "card_json", "data": "{"})); code(v) != 99992402 {
		t.Errorf("no card: %v", v)
	}
}

func TestEmitAndMembers(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA", Events: append(DefaultEvents(), "im.chat.member.user.added_v1")})
	if err := r.Emit("BotA", "card.action.trigger", json.RawMessage(`{"operator":{}}`)); err != nil {
		t.Fatal(err)
	}
	bob := r.AddUser("Bob")
	if err := r.Join("Lab", "Bob"); err != nil {
		t.Fatal(err)
	}
	if err := r.Leave("Lab", "Bob"); err != nil { // that is not subscribed
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var types []string
	for _, p := range r.Server.apps[r.apps[0].ID].pending {
		types = append(types, p.eventType)
	}
	if want := []string{"card.action.trigger", "im.chat.member.user.added_v1"}; !slices.Equal(types, want) {
		t.Errorf("events: got %v, want %v", types, want)
	}
	if p := r.Server.apps[r.apps[0].ID].pending[1]; !bytes.Contains(p.body, []byte(openID(r.apps[0].ID, bob.ID))) {
		t.Errorf("event: %s", p.body)
	}
}

func TestWhatCannotBeSaid(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	r.AddUser("Bob")
	for name, u := range map[string]Utterance{
		"nobody":         {Chat: "Lab", User: "Nobody"},
		"a bot":          {Chat: "Lab", User: "BotA"},
		"not a member":   {Chat: "Lab", User: "Bob"},
		"no chat":        {Chat: "Moon", User: "Ann"},
		"no message":     {User: "Ann", ReplyTo: "om_x"},
		"no topic":       {User: "Ann", Thread: "omt_x"},
		"no app":         {User: "Ann", App: "Ann"},
		"unknown member": {Chat: "Lab", User: "Ann", Mentions: []string{"Moon"}},
		"too long":       {Chat: "Lab", User: "Ann", Text: string(bytes.Repeat([]byte("x"), maxTextBytes))},
		"no content":     {Chat: "Lab", User: "Ann", Type: "post"},
	} {
		if _, err := r.Post(u); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if n := len(r.Messages("")); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func TestFilesAreBoundedAndRemoved(t *testing.T) {
	s := New(Options{})
	first, err := s.AddFile("0.png", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for range maxFiles {
		if _, err := s.AddFile("a.bin", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	dir := s.files.dir
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != maxFiles || s.files.find(first) != nil {
		t.Errorf("%d files, %v", len(entries), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	if _, err := s.AddFile("a.bin", []byte("x")); err == nil {
		t.Error("a closed server takes files")
	}
}

// TestOldMessagesAreForgotten keeps memory bounded in long runs.
func TestOldMessagesAreForgotten(t *testing.T) {
	s, a, _, in := testRoom()
	defer s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	in.mode = modeTopic
	for range maxMessages + 10 {
		if _, err := s.create(draft{chat: in, sender: a.ID, msgType: "text", content: textOf("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.sent) != maxMessages || len(s.messages) != maxMessages || len(s.threads) != maxMessages {
		t.Errorf("%d messages, %d by id, %d topics", len(s.sent), len(s.messages), len(s.threads))
	}
	if n := len(s.apps[s.order[1]].pending); n > maxPending {
		t.Errorf("%d events wait", n)
	}
}

func TestOwnFilesComeBack(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"})
	c := r.client(r.apps[0])
	made, err := c.Im.V1.Image.Create(t.Context(), larkim.NewCreateImageReqBuilder().
		Body(larkim.NewCreateImageReqBodyBuilder().ImageType("message").Image(bytes.NewReader([]byte("picture"))).Build()).Build())
	if err != nil || !made.Success() {
		t.Fatalf("%v %v", err, made)
	}
	got, err := c.Im.V1.Image.Get(t.Context(), larkim.NewGetImageReqBuilder().ImageKey(*made.Data.ImageKey).Build())
	if err != nil || !got.Success() || !same(got.File, []byte("picture")) {
		t.Errorf("%v %v", err, got)
	}
}
