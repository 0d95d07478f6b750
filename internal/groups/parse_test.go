package groups

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"feishu-relay/mention"
)

func TestParse(t *testing.T) {
	b := Agent{
		ID: "agent_b", Name: "BotB", Aliases: []string{"小B"}, FeishuOpenID: "ou_b", AppID: "cli_b",
		OpenIDs: map[string]string{"cli_a": "ou_b_seen_by_a"},
	}
	x := Group{
		Name: "研发群", Members: []string{"agent_a", "agent_b"}, GroupPolicy: "auto",
		MaxBotReplyDepth: new(6), BotReplyLLMThreshold: new(0), BotReplyLLMCheck: new(false),
	}
	none, nobody := map[string]Group{}, map[string]Agent{}
	for _, tt := range []struct {
		name, data string
		want       File
	}{
		{
			"both sections, snake_case",
			`{"agents":{"agent_b":{"name":"BotB","aliases":["小B"],"feishu_open_id":"ou_b","app_id":"cli_b",
			  "open_ids":{"cli_a":"ou_b_seen_by_a"},"description":"writes code"}},
			 "groups":{"oc_x":{"name":"研发群","members":["agent_a","agent_b"],"group_policy":"auto",
			  "max_bot_reply_depth":6,"bot_reply_llm_threshold":0,"bot_reply_llm_check":false}}}`,
			File{Agents: map[string]Agent{"agent_b": b}, Groups: map[string]Group{"oc_x": x}, HasGroups: true},
		},
		{
			"both sections, camelCase",
			`{"agents":{"agent_b":{"name":"BotB","aliases":["小B"],"feishuOpenId":"ou_b","appId":"cli_b","type":"bot",
			  "openIds":{"cli_a":"ou_b_seen_by_a"},"description":"writes code"}},
			 "groups":{"oc_x":{"name":"研发群","members":["agent_a","agent_b"],"groupPolicy":"auto",
			  "maxBotReplyDepth":6,"botReplyLlmThreshold":0,"botReplyLLMCheck":false}}}`,
			File{Agents: map[string]Agent{"agent_b": b}, Groups: map[string]Group{"oc_x": x}, HasGroups: true},
		},
		{
			"a flat list",
			`[{"name":"BotB","feishu_open_id":"ou_b","type":"bot","description":"d"},{"name":"BotC"}]`,
			File{Agents: map[string]Agent{
				"BotB": {ID: "BotB", Name: "BotB", FeishuOpenID: "ou_b"},
				"BotC": {ID: "BotC", Name: "BotC"},
			}, Groups: none},
		},
		{
			"a flat list, camelCase and ids",
			`[{"name":"BotB","agentName":"agent_b","feishuOpenId":"ou_b","type":"BOT"},{"id":"agent_c"},{"agent_name":"agent_d","name":"D"}]`,
			File{Agents: map[string]Agent{
				"agent_b": {ID: "agent_b", Name: "BotB", FeishuOpenID: "ou_b"},
				"agent_c": {ID: "agent_c", Name: "agent_c"},
				"agent_d": {ID: "agent_d", Name: "D"},
			}, Groups: none},
		},
		{"a list as the agents section", `{"agents":[{"name":"B"}]}`, File{Agents: map[string]Agent{"B": {ID: "B", Name: "B"}}, Groups: none}},
		{"people are no agents, and not looked at", `[{"type":"user","name":7},{"type":"user"},{"name":"B","type":""},{"type":5}]`, File{Agents: map[string]Agent{"B": {ID: "B", Name: "B"}}, Groups: none}},
		{"unknown keys", `{"agents":{"b":{"color":1}},"more":[],"groups":{"oc_x":{"topic":null}}}`, File{Agents: map[string]Agent{"b": {ID: "b", Name: "b"}}, Groups: map[string]Group{"oc_x": {}}, HasGroups: true}},
		{"nulls are absent", `{"agents":{"b":{"name":null,"aliases":null,"open_ids":null,"type":null}},"groups":{"oc_x":{"members":null,"max_bot_reply_depth":null}}}`, File{Agents: map[string]Agent{"b": {ID: "b", Name: "b"}}, Groups: map[string]Group{"oc_x": {}}, HasGroups: true}},
		{"null sections", `{"agents":null,"groups":null}`, File{Agents: nobody, Groups: none}},
		{"an empty groups section", `{"groups":{}}`, File{Agents: nobody, Groups: none, HasGroups: true}},
		{"an empty object", `{}`, File{Agents: nobody, Groups: none}},
		{"an empty list", ` [] `, File{Agents: nobody, Groups: none}},
		{"a byte order mark", "\ufeff{}\n", File{Agents: nobody, Groups: none}},
		{"snake_case goes first", `[{"name":"B","feishuOpenId":"ou_1","feishu_open_id":"ou_2","FeishuOpenId":"ou_3"}]`, File{Agents: map[string]Agent{"B": {ID: "B", Name: "B", FeishuOpenID: "ou_2"}}, Groups: none}},
		{"an id told twice", `[{"name":"B","feishu_open_id":"ou_b","open_ids":{"cli_b":"ou_b"}}]`, File{Agents: map[string]Agent{"B": {ID: "B", Name: "B", FeishuOpenID: "ou_b", OpenIDs: map[string]string{"cli_b": "ou_b"}}}, Groups: none}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse([]byte(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreFields(File{}, "Unread")); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

// Each entry with a mistake is named, with its place.
func TestParseTellsMistakes(t *testing.T) {
	for _, tt := range []struct{ name, data, want string }{
		{"empty", " \n", "line 1: unexpected end of JSON input"},
		{"a number", "7", "the file: wants an object"},
		{"broken JSON", "{\n \"agents\": {,}\n}", "line 2: invalid character ',' looking for beginning of object key string"},
		{"a list", `[{"name":7},{"type":"bot"},"x",{"name":"B"},{"name":"B"}]`,
			"agents[0].name: wants string, got number\nagents[1]: the name is missing\nagents[2]: wants an object\n" +
				"agents[4]: B is another agent's id; give each agent an id of its own"},
		{"agents", `{"agents":{"":{},"a":null,"b":{"aliases":[1,"x"]},"c":{"open_ids":[]}}}`,
			"agents.: the name is missing\nagents.a: wants an object\nagents.b.aliases: wants string, got number\n" +
				"agents.c.open_ids: wants map[string]string, got array"},
		{"one id at two agents",
			`{"agents":{"a":{"feishu_open_id":"ou_1","open_ids":{"cli_c":"ou_2"}},"b":{"feishu_open_id":"ou_1","app_id":"ou_2"}}}`,
			"agents.b: ou_1 is also an id of agents.a\nagents.b: ou_2 is also an id of agents.a"},
		{"groups", `{"groups":{"oc_1":{"group_policy":"never","max_bot_reply_depth":-1},"oc_2":{"members":{"a":1}},` +
			`"oc_3":{"maxBotReplyDepth":"3"},"oc_4":[]}}`,
			"groups.oc_1.group_policy: wants one of auto, mention, open\ngroups.oc_1.max_bot_reply_depth: wants 0 or more\n" +
				"groups.oc_2.members: wants []string, got object\ngroups.oc_3.max_bot_reply_depth: wants int, got string\n" +
				"groups.oc_4: wants an object"},
		{"sections of a wrong kind", `{"agents":7}`, "agents: wants an object or a list"},
		{"too large", strings.Repeat(" ", MaxSize+1), "the file has 1048577 bytes, at most 1048576"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse([]byte(tt.data))
			if err == nil {
				t.Fatalf("Parse = %v, want an error", f)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
	_, err := Parse([]byte("[" + strings.Repeat("1,", 99) + "1]"))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != maxMistakes+1 || lines[maxMistakes] != "and 50 more mistakes" {
		t.Errorf("100 mistakes are reported as\n%v", err)
	}
}

func TestMember(t *testing.T) {
	f, err := Parse([]byte(`{"groups":{"oc_x":{"members":["agent_a"]},"oc_open":{},"oc_empty":{"members":[]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		chat, agent           string
		wantMember, wantKnown bool
	}{
		{"oc_x", "agent_a", true, true},
		{"oc_x", "agent_b", false, true},
		{"oc_open", "agent_b", true, true},
		{"oc_empty", "agent_b", false, true},
		{"oc_other", "agent_a", false, false},
	} {
		member, known := f.Member(tt.chat, tt.agent)
		if member != tt.wantMember || known != tt.wantKnown {
			t.Errorf("Member(%s, %s) = %t, %t, want %t, %t", tt.chat, tt.agent, member, known, tt.wantMember, tt.wantKnown)
		}
	}
	if member, known := (&File{}).Member("oc_x", "agent_a"); member || known {
		t.Error("an empty file knows a member")
	}
}

func found(d *mention.Directory, text string) string {
	return strings.Join(d.Find(mention.Text{Content: text}).Agents, " ")
}

func TestDirectoryFor(t *testing.T) {
	self := mention.Agent{ID: "agent_b", Names: []string{"BotB"}, IDs: []string{"ou_b", "cli_b"}}
	for _, tt := range []struct{ name, data, text, want string }{
		{"not in the file", `[]`, "@BotB <at id=cli_b></at>", "agent_b"},
		{"by its ID", `{"agents":{"agent_b":{"aliases":["小B"]}}}`, "@小B", "agent_b"},
		{"by an id", `[{"name":"小B","feishu_open_id":"ou_b"}]`, "@小B", "agent_b"},
		{"by its name", `[{"name":"BotB","feishu_open_id":"ou_older"},{"name":"BotC"}]`, "@BotB", "agent_b"},
		{"others stay", `[{"name":"BotB"},{"name":"BotC"}]`, "@BotC @BotB", "BotC agent_b"},
		{"the ID goes before the name", `{"agents":{"agent_b":{"name":"B"},"agent_c":{"name":"BotB"}}}`, "@agent_c @agent_b @BotB", "agent_c agent_b"},
		{"by any of their names and ids", `{"agents":{"b":{"name":"BotB","aliases":["小B"],"feishu_open_id":"ou_1","app_id":"cli_1",
			"open_ids":{"cli_a":"ou_ba"}}}}`, "@小B @b <at id=ou_1></at> <at id=cli_1></at> <at id=ou_ba></at>", "agent_b"},
		{"two with its name", `{"agents":{"b1":{"name":"BotB"},"b2":{"name":"BotB"}}}`, "@b1 @BotB @b2", "b1 b2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse([]byte(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			if got := found(f.DirectoryFor(self), tt.text); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestExampleFileLoads(t *testing.T) {
	w := New(filepath.Join("..", "..", "groups.example.json"), nil)
	if err := w.Load(); err != nil {
		t.Fatal(err)
	}
	f := w.Current()
	if len(f.Agents) < 3 || len(f.Groups) != 2 {
		t.Errorf("%d agents and %d groups, want 3 or more and 2", len(f.Agents), len(f.Groups))
	}
	for chat, g := range f.Groups {
		for _, id := range g.Members {
			if _, ok := f.Agents[id]; !ok {
				t.Errorf("member %s of %s is no agent of the file", id, chat)
			}
		}
	}
	if data, err := os.ReadFile(w.path); err != nil || bytes.Contains(data, []byte("//")) {
		t.Errorf("the example has comments, or cannot be read: %v", err)
	}
}

// A key that is not read and was probably meant to be is named, and breaks nothing.
func TestUnread(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		want       []string
	}{
		{"all known", `{"agents":{"a":{"type":"bot","feishuOpenId":"ou_a","agent_name":"x"}},
			"groups":{"oc_x":{"groupPolicy":"open"}}}`, nil},
		{"sections", `{"agent":{},"group":{}}`, []string{`"agent" is not read; agents is`, `"group" is not read; groups is`}},
		{"an agent's", `{"agents":{"a":{"alias":["x"],"color":1}}}`, []string{`"agents.a.alias" is not read; aliases is`}},
		{"in a list", `[{"name":"a","feishuOpenId":"ou_a","feishu_opn_id":"x"},{"type":"user","nam":"x"}]`,
			[]string{`"agents[0].feishu_opn_id" is not read; feishu_open_id is`}},
		{"a limit", `{"groups":{"oc_x":{"members":[],"maxBotReplyDeph":1,"max_depth":2}}}`, []string{
			`"groups.oc_x.maxBotReplyDeph" is not read; max_bot_reply_depth is`,
			`"groups.oc_x.max_depth" is not read; a group has name, members, group_policy, max_bot_reply_depth, ` +
				`bot_reply_llm_threshold, bot_reply_llm_check, answer_mode, default_bot, group_budget, stop_notice, steer_by, ` +
				`steer_max_depth, inject_context, locked`}},
		{"control characters", `{"groups":{"oc_x":{"m\nember":1}}}`,
			[]string{`"groups.oc_x.m\nember" is not read; members is`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file, err := Parse([]byte(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, file.Unread); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	many, err := Parse([]byte(`{"groups":{"oc_x":{` + manyKeys(100) + `}}}`))
	if err != nil || len(many.Unread) != maxMistakes {
		t.Errorf("%d of 100 keys are named (%v), want %d", len(many.Unread), err, maxMistakes)
	}
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"key%d":1`, i)
	}
	return strings.Join(keys, ",")
}
