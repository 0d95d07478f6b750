package peerchat_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
)

func open(t *testing.T, dir string) *peerchat.Chats {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	chats, err := peerchat.Open(peerchat.Options{Root: root, SenderType: feishu.SenderUser,
		Self: func() feishu.Self { return feishu.Self{AppID: "cli_1", OpenID: "ou_1"} }})
	if err != nil {
		t.Fatal(err)
	}
	return chats
}

func receive(t *testing.T, c *peerchat.Chats, name string) peerchat.Message {
	t.Helper()
	m, err := c.Receive("writer", name, "please", json.RawMessage(`{"kept":true}`))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// reply answers a letter and returns the id of the answer; "" where it is refused.
func reply(t *testing.T, c *peerchat.Chats, letter peerchat.Message, uuid string) string {
	t.Helper()
	body := fmt.Sprintf(`{"msg_type":"text","content":"{\"text\":\"done\"}","uuid":%q}`, uuid)
	r := httptest.NewRequest("POST", "/open-apis/im/v1/messages/"+string(letter.ID)+"/reply", strings.NewReader(body))
	data, err := io.ReadAll(c.Answer(r, []byte(body), true).Body)
	if err != nil {
		t.Fatal(err)
	}
	var ans struct {
		Data struct {
			ID string `json:"message_id"`
		}
	}
	if err := json.Unmarshal(data, &ans); err != nil {
		t.Fatal(err)
	}
	return ans.Data.ID
}

// A process that is killed after any answer leaves the chats as the bot knows them: ids, messages, what was kept with
// them, and the uuid of a send.
func TestChatsSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	before := open(t, dir)
	letter := receive(t, before, "msg_1")
	answer := reply(t, before, letter, "once")
	after := open(t, dir)
	if again := receive(t, after, "msg_1"); again.ID != letter.ID || string(again.Mail) != `{"kept":true}` {
		t.Errorf("the letter is %+v, was %+v", again, letter)
	}
	if again := reply(t, after, letter, "once"); again != answer || answer == "" {
		t.Errorf("the send with the same uuid made %q and %q", answer, again)
	}
	if n := len(after.Messages(letter.Chat)); n != 2 {
		t.Errorf("the chat has %d messages, want 2", n)
	}
	other := open(t, t.TempDir())
	if other.Chat("writer") == letter.Chat {
		t.Error("the ids of two bots are the same: they can be guessed")
	}
}

// A chat keeps its newest messages, on disk as well; a call about a forgotten one is one about an unknown message.
func TestOldMessagesAreForgotten(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	first := receive(t, c, "msg_0")
	for i := range 200 {
		receive(t, c, fmt.Sprint("msg_", i+1))
	}
	for _, c := range []*peerchat.Chats{c, open(t, dir)} {
		if all := c.Messages(first.Chat); len(all) != 200 {
			t.Errorf("the chat has %d messages, want 200", len(all))
		}
		if id := reply(t, c, first, ""); id != "" {
			t.Errorf("the reply to a forgotten message is %s", id)
		}
	}
}
