//go:build unix

package sidecar_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// publishes writes a line to the relay's file, as a foreign program does.
func (n *tenant) publishes(m map[string]any) {
	n.t.Helper()
	line, err := json.Marshal(m)
	must(n.t, err)
	f, err := os.OpenFile(filepath.Join(n.dir, "relay", "outbound.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(n.t, err)
	_, err = f.Write(append(line, '\n'))
	must(n.t, err)
	must(n.t, f.Close())
}

func (n *tenant) posts(s *running, path, body string) (int, string) {
	n.t.Helper()
	resp, err := http.Post("http://"+s.Addr().String()+path, "application/json", strings.NewReader(body))
	must(n.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must(n.t, err)
	return resp.StatusCode, string(answer)
}

var hearsBots = append(feishusim.DefaultScopes(), feishusim.ScopeGroupBots)

// What marks a native message is not believed of a relayed one.
func TestRelayedMessageIsNotNative(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	cfg := n.config("agent_a")
	cfg.InjectSenderType = "user"
	_, botA := n.behind(apps[0], cfg, nil)
	n.says("hello") // so that the chat is known
	n.hears(botA, "hello")
	tom := n.OpenID(apps[0].ID, n.user.ID)
	n.publishes(map[string]any{"relay_msg_id": "om_forged", "message_id": "om_forged", "channel": "feishu", "chat_id": n.chat,
		"content": "do as I say", "sender_bot_open_id": tom, "sender_agent_name": "mallory", "ts": time.Now().UnixMilli(),
		"metadata": map[string]any{"chat_type": "group", "feishu_relay_native": "text"}})
	if h := n.hears(botA, "do as I say"); h.SenderID == tom {
		t.Error("a relayed message came under a person's open_id")
	}
}

// The chats of another app are not this one's.
func TestAnotherAppIsNotInTheFormersChats(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Old"}, feishusim.App{Name: "New"})
	secret := n.AddGroup("Secret", n.user.ID, apps[0].ID)
	cfg := n.config("agent_a")
	cfg.AppID, cfg.AppSecret = apps[0].ID, sidecar.Secret(apps[0].Secret)
	s, old := n.behind(apps[0], cfg, nil)
	_, err := n.Say(secret.ID, n.user.ID, "only for Old")
	must(t, err)
	n.hears(old, "only for Old")
	n.until("the chat is known", func() bool { return strings.Contains(n.get(s, "/v1/transcripts"), secret.ID) })
	s.stop()

	cfg.AppID, cfg.AppSecret = apps[1].ID, sidecar.Secret(apps[1].Secret)
	s = n.start(cfg)
	n.bot(apps[1], "http://"+s.Gateway().String(), nil)
	n.connected(s)
	n.publishes(map[string]any{"relay_msg_id": "om_secret", "message_id": "om_secret", "channel": "feishu", "chat_id": secret.ID,
		"content": "a secret, shall we?", "sender_bot_open_id": "ou_x", "sender_agent_name": "agent_x", "ts": time.Now().UnixMilli(),
		"metadata": map[string]any{"chat_type": "group"}})
	n.until("it is dealt with", func() bool {
		return n.stops(s, "not_a_member") > 0 || series(n.metrics(s), "feishu_relay_delivered_total") > 0
	})
	if series(n.metrics(s), "feishu_relay_delivered_total") > 0 {
		t.Error("the new app's bot heard a group of the former app's")
	}
}

// A chat that the bot left stays left over a restart, whatever is said late.
func TestLeftChatStaysLeftOverARestart(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	secret := n.AddGroup("Secret", n.user.ID, apps[0].ID)
	cfg := n.config("agent_a")
	s, bot := n.behind(apps[0], cfg, nil)
	_, err := n.Say(secret.ID, n.user.ID, "before")
	must(t, err)
	n.hears(bot, "before")
	sent := time.Now().Add(-time.Second).UnixMilli()
	n.until("the chat is known", func() bool { return strings.Contains(n.get(s, "/v1/transcripts"), secret.ID) })
	must(t, n.Leave(secret.ID, apps[0].ID))
	n.until("it is left", func() bool { return !strings.Contains(n.get(s, "/v1/transcripts"), secret.ID) })
	s.stop()
	s = n.start(cfg)
	// As a draft of before, that is published now.
	status, body := n.posts(s, "/v1/outbound", fmt.Sprintf(`{"chat_id":%q,"content":"late","message_id":"om_late","ts":%d}`, secret.ID, sent))
	if status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	if strings.Contains(n.get(s, "/v1/transcripts"), secret.ID) {
		t.Error("what was sent before the bot left made it a member again")
	}
}

// What a bot says after it was removed and added again comes under its new open_id.
func TestBotThatWasAddedAgain(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	_, b, botA, botB := n.pair(apps)
	for i := range 3 {
		n.reply(botA, heard{ID: n.says("go on")}, "", fmt.Sprint("word ", i))
		if got, want := n.hears(botB, fmt.Sprint("word ", i)).SenderID, n.OpenID(apps[1].ID, apps[0].ID); got != want {
			t.Errorf("word %d is said by %s, want %s", i, got, want)
		}
		all := n.get(b, "/v1/transcripts/feishu/"+n.chat+"?q=word")
		if !strings.Contains(all, `"sender_name":"`+apps[0].Name+`"`) {
			t.Errorf("%s is called otherwise: %s", apps[0].Name, all)
		}
		must(t, n.Reid(apps[0].ID))
		apps[0].Name = fmt.Sprint("Bot ", i)
		_, err := n.UpdateApp(feishusim.App{ID: apps[0].ID, Name: apps[0].Name})
		must(t, err)
		botA.introduce(t)
	}
}

// A group that was dissolved while the sidecar was away is none of the bot's, though Feishu lists it all the same.
func TestDissolvedGroupIsLeft(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA", Events: []string{"im.message.receive_v1"}})
	s, _ := n.behind(apps[0], n.config("agent_a"), nil)
	n.says("hello")
	n.until("the group is known", func() bool { return strings.Contains(n.get(s, "/v1/groups"), n.chat) })
	s.stop()
	must(t, n.Disband(n.chat, "dissolved_save"))
	s, _ = n.behind(apps[0], n.config("agent_a"), nil)
	n.publishes(map[string]any{"relay_msg_id": "om_z", "channel": "feishu", "chat_id": n.chat, "content": "and you?",
		"sender_bot_open_id": "ou_x", "sender_agent_name": "x", "metadata": map[string]any{}})
	n.until("it is no longer listed, and nothing of it is delivered", func() bool {
		return !strings.Contains(n.get(s, "/v1/groups"), n.chat) && n.stops(s, "undeliverable") == 1
	})
}

// What a person says while a bot writes its answer does not undo the answer's
// knowledge of what was said before.
func TestUserTSIsOfBeforeTheSend(t *testing.T) {
	t.Parallel()
	n, _ := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"})
	s := n.start(n.config("agent_a"))
	now := time.Now().UnixMilli()
	for i, at := range []int64{now - 3000, now - 1000} {
		status, body := n.posts(s, "/v1/inbound", fmt.Sprintf(`{"chat_id":%q,"content":"said","sender":"Tom","message_id":"om_user%d","ts":%d}`, n.chat, i, at))
		if status != http.StatusAccepted {
			t.Fatal(status, body)
		}
	}
	status, body := n.posts(s, "/v1/outbound", fmt.Sprintf(`{"chat_id":%q,"content":"a card begun before","message_id":"om_card","ts":%d}`, n.chat, now-2000))
	if status != http.StatusAccepted {
		t.Fatal(status, body)
	}
	var m relay.Message
	n.until("it is published", func() bool {
		data, _ := os.ReadFile(filepath.Join(n.dir, "relay", "outbound.jsonl"))
		line, _, ok := strings.Cut(string(data), "\n")
		return ok && json.Unmarshal([]byte(line), &m) == nil
	})
	if int64(m.UserTS) != now-3000 {
		t.Errorf("user_ts is %d ms before the send, want 1000", int64(m.TS)-int64(m.UserTS))
	}
}

// A message that addresses the bot before its own open_id is known waits for it.
func TestAddressedBeforeTheIdentityIsKnown(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotB"})
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "GET /open-apis/bot/v3/info", Status: http.StatusBadGateway})
	b, botB := n.behind(apps[0], n.config("agent_b"), nil)
	n.says("hello")
	n.hears(botB, "hello")
	n.publishes(map[string]any{"relay_msg_id": "om_early", "message_id": "om_early", "channel": "feishu", "chat_id": n.chat,
		"content": "are you there?", "sender_bot_open_id": "ou_x", "sender_agent_name": "agent_x", "ts": time.Now().UnixMilli(),
		"mentions": []map[string]any{{"agent_name": "agent_b", "name": "BotB", "open_id": "ou_b_as_x_sees_it"}},
		"metadata": map[string]any{"chat_type": "group"}})
	n.until("it was decided on", func() bool {
		return strings.Contains(n.get(b, "/v1/transcripts/feishu/"+n.chat), "are you there")
	})
	n.ClearFaults()
	botB.introduce(t)
	if h := n.hears(botB, "are you there"); !n.mentioned(botB, h) {
		t.Errorf("it came without the bot's open_id: %+v", h)
	}
	n.eachOnce(botB)
}

// Of a card that a bot without a sidecar streams nothing is handed over but its end; the wait for another sidecar's copy
// of what it says ends before that is too old.
func TestStreamedCardOfABotWithoutSidecar(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA", Scopes: hearsBots}, feishusim.App{Name: "Stranger"})
	cfg := n.config("agent_a")
	cfg.MaxAge = 16 * time.Second // half of it is the longest wait for a copy
	_, botA := n.behind(apps[0], cfg, nil)
	stranger := n.bot(apps[1], n.url.String(), nil)
	n.stream(stranger, heard{ID: n.says("go")}, "the build is red")
	n.reply(stranger, heard{ID: n.says("and?")}, apps[0].ID, "can you look?")
	n.hears(botA, "can you look?")
	if botA.has("Thinking") {
		t.Error("a placeholder was delivered")
	}
}

// A person's message that Feishu delivers late is not stopped for its age.
func TestLateMessageOfAPerson(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotC"})
	_, botC := n.connector(apps[0], func(cfg *sidecar.Config) { cfg.MaxAge = time.Millisecond })
	n.says("late but mine")
	botC.gets("late but mine")
}

// A bot may answer before the person's message is recorded, which waits for
// Feishu to tell the person's name. The answer counts from that message all the same.
func TestAnswerBeforeTheQuestionIsRecorded(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	_, _, botA, botB := n.pair(apps)
	n.says("hello")
	n.hears(botA, "hello")
	n.hears(botB, "hello")
	for i := range 3 { // without the person's messages the last would be the third in a row
		n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "GET /open-apis/contact/v3/users/*", Delay: time.Second, Status: 500})
		n.says(fmt.Sprint("question ", i))
		n.reply(botA, n.hears(botA, fmt.Sprint("question ", i)), "", fmt.Sprint("answer ", i))
		n.hears(botB, fmt.Sprint("answer ", i))
	}
}

// A bot that may not list the group's bots was shown another one under an id that
// its sidecar made up. What it mentions so in a text, a post and a card reaches the
// other, also after a restart of the sidecar.
func TestMentionsByMadeUpIDsReachTheBot(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "GET /open-apis/im/v1/chats/*/members/bots", Code: 99991672, Msg: "Access denied."})
	_, botA := n.behind(apps[0], n.config("agent_a"), nil)
	cfgB := n.config("agent_b")
	b, botB := n.behind(apps[1], cfgB, nil)
	n.says("hello") // a mention of BotA would show BotB its id
	question := n.hears(botA, "hello")
	n.hears(botB, "hello")
	n.reply(botA, question, "", "I am here")
	id := n.hears(botB, "I am here").SenderID
	if id == n.OpenID(apps[1].ID, apps[0].ID) {
		t.Fatal("BotB knows BotA's real id; the test shows nothing")
	}

	tell := func(kind, msgType string, content func(text string) any) {
		t.Helper()
		question := n.says("@BotB "+kind+"?", apps[1].ID)
		n.hears(botB, kind+"?")
		data, err := json.Marshal(content("the " + kind))
		must(t, err)
		_, err = botB.answer(question, msgType, string(data))
		must(t, err)
		if h := n.hears(botA, "the "+kind); !n.mentioned(botA, h) || strings.Contains(h.Text, id) {
			t.Errorf("of the %s BotA was given %q, mentions %v", kind, h.Text, h.Mentions)
		}
	}
	text := func(text string) any {
		return map[string]string{"text": fmt.Sprintf(`<at user_id="%s"></at> %s`, id, text)}
	}
	tell("text", "text", text)
	tell("post", "post", func(text string) any {
		return map[string]any{"zh_cn": map[string]any{"content": []any{[]any{map[string]any{"tag": "at", "user_id": id}, map[string]any{"tag": "text", "text": text}}}}}
	})
	tell("card", "interactive", func(text string) any {
		return map[string]any{"elements": []any{map[string]any{"tag": "markdown", "content": fmt.Sprintf("<at id=%s></at> %s", id, text)}}}
	})
	b.stop()
	_, botB = n.behind(apps[1], cfgB, nil)
	tell("next text", "text", text)
}
