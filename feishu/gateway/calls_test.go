package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/test/talktest"
	"feishu-relay/relay"
)

func recallOf(app, chat, id string) []byte {
	return fmt.Appendf(nil, `{"schema":"2.0","header":{"event_id":"e","event_type":"im.message.recalled_v1","app_id":%q,"create_time":"1"},
		"event":{"message_id":%q,"chat_id":%q,"recall_time":"1700000000123","recall_type":"group_manager"}}`, app, id, chat)
}

// The calls of testdata/calls.txt: one of the bot, what Feishu answers, or what follows from it, a line.
func TestCalls(t *testing.T) {
	talktest.Run(t, "testdata/calls.txt", func(t *testing.T, talk string) {
		var c *calls
		for line := range talktest.Steps(t, talk) {
			setting, isSetting := strings.CutPrefix(line, "with ")
			if c == nil {
				c = newCalls(t, setting)
			}
			if !isSetting {
				c.step(strings.ReplaceAll(line, "{app}", c.app))
			}
		}
	})
}

// calls is a gateway, and what the bot and the host have got last.
type calls struct {
	*rig
	from    string // the app of events
	answer  string // of the last "feishu"
	status  int
	body    string
	last    Sent
	verdict feishu.Verdict
	instead string
	told    map[string]bool // heard, native
}

func newCalls(t *testing.T, setting string) *calls {
	c := &calls{told: map[string]bool{}}
	if setting == "injected" {
		c.rig = lookupRig(t)
		peer := c.host.peer
		c.host.peer = func(id relay.OpenID) (feishu.Bot, bool) {
			if id == "ou_panic" {
				panic("boom")
			}
			return peer(id)
		}
	} else {
		c.rig = newRig(t, func(o *Options) {
			if o.RewriteMentions = setting == "rewriting"; setting == "slow" {
				o.EditSettle = time.Hour
			}
		})
	}
	if setting != "unknown" {
		c.knowGroup()
	}
	if c.from = c.app; setting == "other" {
		c.from = "cli_other"
	}
	if setting == "self" {
		c.book.LearnSelf(feishu.Self{OpenID: relay.OpenID("ou_self_" + c.app)})
	}
	c.host.reactions = map[string]bool{"om_1/OK": true}
	c.host.heard = func(feishu.Message) error { c.told["heard"] = true; return nil }
	c.host.native = func(feishu.Message, bool) error { c.told["native"] = true; return nil }
	return c
}

func (c *calls) is(got, want any) {
	c.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("got %v, want %v", got, want)
	}
}

// step is a line of a conversation.
func (c *calls) step(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	word := strings.Fields(rest)
	part := func(n int) []string { return append(strings.SplitN(rest, " ", n), make([]string, n)...) }
	switch verb {
	case "feishu": // METHOD PATH STATUS ANSWER
		p, status := part(4), 0
		fmt.Sscan(p[2], &status)
		c.answer = p[3]
		c.up.say(p[0]+" /open-apis/"+p[1], status, p[3])
	case "call": // METHOD PATH BODY
		p := part(3)
		c.status, c.body = c.call(p[0], "/open-apis/"+p[1], p[2])
	case "as": // TOKEN METHOD PATH BODY
		p := part(4)
		c.status, c.body = c.as(p[0], p[1], "/open-apis/"+p[2], p[3])
	case "send": // TYPE CONTENT
		p := part(2)
		c.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id",
			js(map[string]any{"receive_id": group, "msg_type": p[0], "content": p[1]}))
	case "got": // STATUS ANSWER
		p := part(2)
		if c.is(c.status, p[0]); p[1] != "" {
			c.is(c.body, p[1])
		}
	case "passes": // Feishu's answer
		c.is(c.body, c.answer)
	case "has":
		if !strings.Contains(c.body, rest) {
			c.t.Errorf("got %s", c.body)
		}
	case "sent":
		got := last(c.up.seen())
		c.is(got.Body, rest)
		c.is(got.Header.Get("Content-Length"), len(rest))
	case "said", "now":
		if verb == "now" && len(c.host.said) == 0 {
			c.t.Fatal("nothing was published at once")
		}
		c.last = c.rig.said()
		c.is(c.last.Text, strings.ReplaceAll(rest, `\n`, "\n"))
		c.is(c.last.Sender.AppID, c.app)
	case "from":
		c.is(c.last.CreateTime, rest)
	case "keys":
		c.is(c.last.Doc.Keys(), word)
	case "mentions": // ID NAME TYPE …
		var got strings.Builder
		for _, m := range c.last.Mentions {
			got.WriteString(fmt.Sprintln(m.OpenID, m.Name, m.Type))
		}
		c.is(strings.Fields(got.String()), word)
	case "silent":
		c.silent()
	case "stored":
		c.is(c.stored(), rest)
	case "waiting":
		c.is(c.drafts.waiting(), rest)
	case "counted", "until":
		if verb == "until" {
			waitFor(c.t, func() bool { return c.counts.of(word[1]) > 0 })
		}
		c.is(c.counts.of(word[1]), word[0])
	case "login":
		c.tokens.Add("t-"+c.app, c.app)
		c.api.SawToken("t-" + c.app)
	case "agent": // ID NAME
		c.book.LearnName(word[0], feishu.Who{Name: word[1], Agent: "agent_b"})
	case "learn":
		c.book.LearnBot(feishu.Bot{OpenID: relay.OpenID(word[0]), Name: word[1], Agent: relay.AgentName(word[2])})
	case "self":
		self := c.book.Self()
		c.is(strings.TrimSpace(string(self.OpenID)+" "+self.Name), rest)
	case "bot", "nobot":
		bot, known := c.book.Bot(relay.OpenID(word[0]))
		if c.is(known, verb == "bot"); known {
			c.is(bot.Name, word[1])
		}
	case "chat": // ID KIND NAME
		chat := c.book.Chat(relay.ChatID(word[0]))
		c.is(strings.TrimSpace(fmt.Sprintln(chat.ID, chat.Kind, chat.Name)), rest)
	case "left":
		c.is(c.host.leftChats, word)
		for _, id := range word {
			c.is(c.book.Chat(relay.ChatID(id)).In, feishu.No)
		}
	case "event": // TYPE SENDER CHAT KIND TEXT
		p := part(5)
		c.tap([]byte(eventOf(c.from, p[0], p[1], "om_e", p[2], p[3], p[4])))
	case "notice":
		c.tap(fmt.Appendf(nil, `{"schema":"2.0","header":{"event_id":"e","event_type":"%s","app_id":"%s"},
			"event":{"chat_id":"oc_x"}}`, rest, c.from))
	case "reaction": // KIND OPERATOR APP MESSAGE EMOJI
		c.tap([]byte(js(map[string]any{"schema": "2.0", "header": map[string]any{"event_id": "e", "app_id": c.from,
			"event_type": "im.message.reaction." + word[0] + "_v1"},
			"event": map[string]any{"message_id": word[3], "operator_type": word[1], "app_id": strings.Trim(word[2], "-"),
				"reaction_type": map[string]any{"emoji_type": word[4]}}})))
	case "recall": // MESSAGE CHAT
		c.tap(recallOf(c.from, word[1], word[0]))
	case "recalled":
		ids := []string{}
		for _, one := range c.host.recalls() {
			ids = append(ids, string(one.id))
		}
		c.is(ids, word)
	case "verdict":
		c.is(c.verdict, map[string]feishu.Verdict{"pass": feishu.Pass, "keep": feishu.Keep, "refuse": feishu.Refuse}[rest])
	case "instead":
		if rest != "" {
			rest = eventOf(c.from, "user", "ou_u", "om_e", "oc_e", "group", rest)
		}
		c.is(c.instead, rest)
	case "late": // the bot gets a message before it is decided on
		c.events.Passed([]byte(eventOf(c.from, "user", "ou_u", rest, "oc_e", "group", "hi")))
		c.is(c.host.passed, word)
	case "heard", "native":
		c.is(c.told, map[string]bool{verb: true})
	case "host": // what it does from now on
		does, before, _ := strings.Cut(rest, " ")
		act := func() error {
			switch does {
			case "panics":
				panic("boom")
			case "fails", "refuses":
				return errTest
			}
			return nil
		}
		c.host.native = func(feishu.Message, bool) error { return act() }
		c.host.passage = func(feishu.Message, []byte) (feishu.Passage, error) {
			v := map[string]feishu.Verdict{"keeps": feishu.Keep, "refuses": feishu.Refuse}[does]
			return feishu.Passage{Verdict: v, Before: before}, act()
		}
	default:
		c.t.Fatalf("%q is not a verb", verb)
	}
}

func (c *calls) tap(event []byte) {
	clear(c.told)
	v, instead := c.tapEvent(event)
	c.verdict, c.instead = v, string(instead)
}
