package mailbox_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
)

func card() mailbox.Card {
	return mailbox.Card{
		AgentID: "coder", Description: "Writes code", Capabilities: []string{"go"}, Status: mailbox.Busy,
		AllowFrom: []mailbox.AgentID{"planner"}, MaxTasks: 2, CurrentTasks: []string{"T"},
		RegisteredAt: ten, LastHeartbeat: ten.Add(time.Minute),
	}
}

func TestDecodeCard(t *testing.T) {
	bare := mailbox.Card{AgentID: "coder", Capabilities: []string{}, Status: mailbox.Idle, AllowFrom: []mailbox.AgentID{"*"},
		MaxTasks: 3, CurrentTasks: []string{}}
	for _, tt := range []struct {
		name, raw string
		want      func(*mailbox.Card)
	}{
		{"snake_case", `{"agent_id":"coder","description":"Writes code","capabilities":["go"],"status":"busy","allow_from":["planner"],
			"max_concurrent_tasks":2,"current_tasks":["T"],"registered_at":"2026-04-26T12:00:00+02:00","last_heartbeat":"2026-04-26T10:01:00"}`,
			func(c *mailbox.Card) { *c = card() }},
		{"camelCase and numbers", `{"agentId":"coder","description":"Writes code","capabilities":["go"],"status":"BUSY","allowFrom":["planner"],
			"maxConcurrentTasks":2,"currentTasks":["T"],"registeredAt":1777197600,"lastHeartbeat":1777197660000}`,
			func(c *mailbox.Card) { *c = card() }},
		{"nothing", `{}`, nil},
		{"nulls", `{"status":null,"allow_from":null,"max_concurrent_tasks":null,"current_tasks":null,"goals":null,"last_heartbeat":null}`, nil},
		{"another name inside", `{"agent_id":"planner"}`, nil},
		{"unknown status", `{"status":"online"}`, nil},
		{"offline", `{"status":"offline"}`, func(c *mailbox.Card) { c.Status = mailbox.Offline }},
		{"nobody is allowed", `{"allow_from":[]}`, func(c *mailbox.Card) { c.AllowFrom = []mailbox.AgentID{} }},
		{"one text for a list", `{"capabilities":"go","allow_from":"planner"}`, func(c *mailbox.Card) {
			c.Capabilities, c.AllowFrom = []string{"go"}, []mailbox.AgentID{"planner"}
		}},
		{"fields of other forms", `{"capabilities":[1,"go",null],"status":7,"max_concurrent_tasks":"many","description":{},"last_heartbeat":"today"}`,
			func(c *mailbox.Card) { c.Capabilities = []string{"go"} }},
		{"no tasks at all", `{"max_concurrent_tasks":0}`, func(c *mailbox.Card) { c.MaxTasks = 0 }},
		{"a sidecar's settings", `{"sidecar":{"backend":"file","secret":"01234567","relay_dir":{"path":"/x","id":"aa"},"later":1}}`,
			func(c *mailbox.Card) {
				c.Sidecar = &mailbox.Settings{Backend: "file", Secret: "01234567", RelayDir: mailbox.Folder{Path: "/x", ID: "aa"}}
			}},
		{"settings of another form", `{"sidecar":{"secret":7}}`, nil},
		{"a bot's name", `{"bot_name":"小C"}`, func(c *mailbox.Card) { c.BotName = "小C" }},
		{"a bot's name of another form", `{"bot_name":["x"]}`, nil},
		{"goals", `{"goals":["g1","g2"]}`, func(c *mailbox.Card) { c.Goals = []string{"g1", "g2"} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := bare
			if tt.want != nil {
				tt.want(&want)
			}
			got, err := mailbox.DecodeCard("coder", []byte(tt.raw))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for id, raw := range map[mailbox.AgentID]string{
		"": `{}`, "../x": `{}`, "a": `[]`, "b": `{"a":`, "c": "", "d": "{\"description\":\"\xff\"}",
		"e": `{"description":"` + strings.Repeat("x", mailbox.MaxCard) + `"}`,
	} {
		if _, err := mailbox.DecodeCard(id, []byte(raw)); err == nil {
			t.Errorf("the entry %.20q of %q is read", raw, id)
		}
	}
}

func TestEncodeCard(t *testing.T) {
	const ours = `{"agent_id":"coder","description":"Writes code","capabilities":["go"],"status":"busy","allow_from":["planner"],` +
		`"max_concurrent_tasks":2,"current_tasks":["T"],"registered_at":"2026-04-26T10:00:00.000Z","last_heartbeat":"2026-04-26T10:01:00.000Z"`
	for name, tt := range map[string]struct{ previous, want string }{
		"first":              {"", ours + "}"},
		"no entry before":    {"[1]", ours + "}"},
		"half an entry":      {`{"a":`, ours + "}"},
		"unknown fields":     {`{"zone":{ "a": 1 },"agentId":"old","status":"idle","goals":["old"],"mood":"<good>"}`, ours + `,"mood":"<good>","zone":{"a":1}}`},
		"too long by others": {`{"x":"` + strings.Repeat("x", mailbox.MaxCard-50) + `"}`, ours + "}"},
	} {
		got, err := mailbox.EncodeCard(card(), []byte(tt.previous))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if string(got) != tt.want {
			t.Errorf("%s: written as\n%s\nwant\n%s", name, got, tt.want)
		}
		if err := mailbox.Check(mailbox.AgentSchema, got); err != nil {
			t.Errorf("%s: not as our schema says: %v", name, err)
		}
		back, err := mailbox.DecodeCard("coder", got)
		if diff := cmp.Diff(card(), back); diff != "" || err != nil {
			t.Errorf("%s: read again: %v\n%s", name, err, diff)
		}
	}
	if got, err := mailbox.EncodeCard(mailbox.Card{AgentID: "a", Status: mailbox.Idle, Goals: []string{"g"}}, nil); err != nil ||
		strings.Contains(string(got), "null") || !strings.Contains(string(got), `"goals":["g"]`) {
		t.Errorf("a card of little: %s, %v", got, err)
	}
	if _, err := mailbox.EncodeCard(mailbox.Card{Description: strings.Repeat("x", mailbox.MaxCard)}, nil); err == nil {
		t.Error("a card is written that is too long to be read")
	}
}

func TestCardAt(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status mailbox.Status
		beat   time.Duration // before now
		want   mailbox.Status
	}{
		{"alive", mailbox.Busy, 89 * time.Second, mailbox.Busy},
		{"at the time-out", mailbox.Idle, 90 * time.Second, mailbox.Idle},
		{"over it", mailbox.Idle, 90*time.Second + 1, mailbox.Offline},
		{"said so", mailbox.Offline, 0, mailbox.Offline},
		{"clock ahead", mailbox.Idle, -time.Hour, mailbox.Idle},
	} {
		c := mailbox.Card{Status: tt.status, LastHeartbeat: ten.Add(-tt.beat)}
		if got := c.At(ten, 90*time.Second); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if c := (mailbox.Card{Status: mailbox.Idle}); c.At(ten, 90*time.Second) != mailbox.Offline {
		t.Error("an agent that never beat is there")
	}
}

func TestCardAllows(t *testing.T) {
	for _, tt := range []struct {
		list []mailbox.AgentID
		want bool
	}{
		{nil, false}, {[]mailbox.AgentID{"*"}, true}, {[]mailbox.AgentID{"x", "writer"}, true}, {[]mailbox.AgentID{"write", "Writer"}, false},
	} {
		if c := (mailbox.Card{AllowFrom: tt.list}); c.Allows("writer") != tt.want {
			t.Errorf("%v: %v", tt.list, !tt.want)
		}
	}
}

func FuzzDecodeCard(f *testing.F) {
	f.Add([]byte(`{"agentId":"coder","status":"BUSY","registeredAt":1777197600,"x":[1]}`))
	f.Add([]byte(`{"allow_from":"*","max_concurrent_tasks":1e99,"goals":[""]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := mailbox.DecodeCard("coder", raw)
		if err != nil {
			return
		}
		line, err := mailbox.EncodeCard(c, raw)
		if err != nil {
			return // longer than what was read, by defaults
		}
		back, err := mailbox.DecodeCard("coder", line)
		if err != nil || !json.Valid(line) {
			t.Fatalf("read again: %v\n%s", err, line)
		}
		if diff := cmp.Diff(c, back); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}
