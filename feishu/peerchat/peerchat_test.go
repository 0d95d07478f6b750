package peerchat_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// store is one whose chats are opened again and again, as after restarts.
func store(t *testing.T) *feishu.Store {
	t.Helper()
	s, err := feishu.OpenStore(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func open(t *testing.T, s *feishu.Store) *peerchat.Chats { return openWith(t, s, peerchat.Options{}) }

func openWith(t *testing.T, s *feishu.Store, o peerchat.Options) *peerchat.Chats {
	t.Helper()
	o.Store, o.SenderType = s, feishu.SenderUser
	o.Self = func() feishu.Self { return feishu.Self{AppID: "cli_1", OpenID: "ou_1"} }
	o.Trace, o.Logger = func(string) {}, slog.New(slog.DiscardHandler)
	if o.Needed == nil {
		o.Needed = func(peerchat.Message) bool { return false }
	}
	chats, err := peerchat.Open(o)
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

// reply answers mail and returns the id of the answer; "" where it is refused.
func reply(t *testing.T, c *peerchat.Chats, mail peerchat.Message, uuid string) string {
	t.Helper()
	body := fmt.Sprintf(`{"msg_type":"text","content":"{\"text\":\"done\"}","uuid":%q}`, uuid)
	r := httptest.NewRequest("POST", "/open-apis/im/v1/messages/"+string(mail.ID)+"/reply", strings.NewReader(body))
	_, data := c.Answer(r, []byte(body), true)
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
	dir := store(t)
	before := open(t, dir)
	mail := receive(t, before, "msg_1")
	answer := reply(t, before, mail, "once")
	after := open(t, dir)
	if again := receive(t, after, "msg_1"); again.ID != mail.ID || string(again.Mail) != `{"kept":true}` {
		t.Errorf("the mail is %+v, was %+v", again, mail)
	}
	if again := reply(t, after, mail, "once"); again != answer || answer == "" {
		t.Errorf("the send with the same uuid made %q and %q", answer, again)
	}
	if n := len(after.Messages(mail.Chat)); n != 2 {
		t.Errorf("the chat has %d messages, want 2", n)
	}
	other := open(t, store(t))
	if other.Chat("writer") == mail.Chat {
		t.Error("the ids of two bots are the same: they can be guessed")
	}
}

// A mail that is as large as mail can be is shown all the same, cut, with its last paragraph.
func TestALargeLetterIsCut(t *testing.T) {
	const line = "\n\n(writer gives you this task.)"
	for name, unit := range map[string]string{"quotation marks": `"x",`, "control characters": "\x01", "characters of three bytes": "写"} {
		dir := store(t)
		text := strings.Repeat(unit, 1<<20/len(unit)) + line
		m, err := open(t, dir).Receive("writer", "msg_1", text, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		shown := m.Text()
		if !strings.HasPrefix(shown, unit) || !strings.HasSuffix(shown, fmt.Sprintf("[… cut here: it has %d bytes]%s", len(text), line)) {
			t.Errorf("%s: the mail ends with %q", name, shown[len(shown)-100:])
		}
		if left := open(t, dir).Messages(m.Chat); len(left) != 1 || left[0].Content != m.Content {
			t.Errorf("%s: after a restart the chat has %d messages", name, len(left))
		}
	}
}

// However much an agent writes, the task that its bot works on stays, also over a restart.
func TestMailOfAnOpenTaskStays(t *testing.T) {
	dir := store(t)
	var task peerchat.Message
	needed := peerchat.Options{Needed: func(m peerchat.Message) bool { return m.ID == task.ID }}
	c := openWith(t, dir, needed)
	task = receive(t, c, "msg_0")
	for i := range 250 {
		receive(t, c, fmt.Sprint("msg_", i+1))
	}
	for _, c := range []*peerchat.Chats{c, openWith(t, dir, needed)} {
		if all := c.Messages(task.Chat); len(all) != 200 {
			t.Errorf("the chat has %d messages, want 200", len(all))
		}
		if reply(t, c, task, "once") == "" {
			t.Error("the reply to the task is refused")
		}
	}
}

// The messages of a chat come back in the order in which they were made, also those of one millisecond.
func TestOrderSurvivesARestart(t *testing.T) {
	dir := store(t)
	c := open(t, dir)
	mail := receive(t, c, "msg_0")
	for i := range 50 {
		receive(t, c, fmt.Sprint("msg_", i+1))
		reply(t, c, mail, "")
	}
	ids := func(c *peerchat.Chats) (out []relay.MessageID) {
		for _, m := range c.Messages(mail.Chat) {
			out = append(out, m.ID)
		}
		return out
	}
	if before, after := ids(c), ids(open(t, dir)); !slices.Equal(before, after) {
		t.Errorf("the order was\n%v, is\n%v", before, after)
	}
}

// A chat keeps its newest messages, on disk as well; a call about a forgotten one is one about an unknown message.
func TestOldMessagesAreForgotten(t *testing.T) {
	dir := store(t)
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
