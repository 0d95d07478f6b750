package mention_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mention"
)

// team is the directory of most tests. ann and bea share the alias "Twin".
func team() *mention.Directory {
	return mention.NewDirectory([]mention.Agent{
		{ID: "ann", Names: []string{"Ann"}, IDs: []string{"ou_ann", "cli_ann"}},
		{ID: "anna", Names: []string{"Anna", "Ann Lee"}, IDs: []string{"ou_anna"}},
		{ID: "agent_b", Names: []string{"BotB", "小B"}, IDs: []string{"ou_b", "ou_b_seen_by_a", "cli_b"}},
		{ID: "coder", Names: []string{"Code Bot", "写码机器人"}, IDs: []string{"ou_c"}},
		{ID: "ming", Names: []string{"小明"}, IDs: []string{"ou_ming"}},
		{ID: "mingming", Names: []string{"小明明"}, IDs: []string{"ou_mingming"}},
		{ID: "gpt-4.1", Names: []string{"Üben"}, IDs: []string{"ou_gpt"}},
		{ID: "twin_1", Names: []string{"Twin"}, IDs: []string{"ou_t1", "ou_shared"}},
		{ID: "twin_2", Names: []string{"Twin"}, IDs: []string{"ou_t2", "ou_shared"}},
	})
}

const all = "*" // means Found.All in the tables

func flat(f mention.Found) string {
	names := f.Agents
	if f.All {
		names = append(names, all)
	}
	return strings.Join(names, " ")
}

func TestFindInText(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a name", "@Ann hi", "ann"},
		{"at the end", "hi @Ann", "ann"},
		{"alone", "@Ann", "ann"},
		{"the relay name", "@agent_b hi", "agent_b"},
		{"an alias", "@小B 看一下", "agent_b"},
		{"case aside", "@aNN @BOTB", "ann agent_b"},
		{"case aside beyond ASCII", "@üBEN", "gpt-4.1"},
		{"no mention without an at", "Ann, BotB and 小明", ""},
		{"an unknown name", "@Zoe", ""},
		{"nobody", "", ""},
		{"only an at", "@", ""},
		{"a blank behind the at", "@ Ann", ""},
		{"order of appearance", "@BotB then @Ann then @botb", "agent_b ann"},
		{"many ats", "@@@Ann", "ann"},

		{"a longer name is another", "@Anna", "anna"},
		{"a longer unknown name is not found", "@Annabel", ""},
		{"a digit goes on", "@Ann2", ""},
		{"an underscore goes on", "@Ann_x", ""},
		{"an accent goes on", "@Ann\u0301", ""},
		{"Cyrillic goes on", "@Annа", ""},
		{"a full-width letter goes on", "@Annｘ", ""},
		{"a hyphen with a letter goes on", "@Ann-Marie", ""},
		{"a hyphen with a digit goes on", "@BotB-2", ""},
		{"a dot with a letter goes on", "@Ann.example", ""},
		{"a full stop ends", "Ask @Ann.", "ann"},
		{"a full stop and a blank end", "Ask @Ann. Please", "ann"},
		{"a hyphen alone ends", "@Ann - hi", "ann"},
		{"an ellipsis ends", "@Ann...hi", "ann"},
		{"an apostrophe ends", "@Ann's turn", "ann"},
		{"punctuation ends", "@Ann,@BotB! @小明：", "ann agent_b ming"},
		{"Chinese punctuation ends", "@Ann，@BotB。", "ann agent_b"},
		{"a dot and Chinese end", "@Ann.请看", "ann"},
		{"Chinese follows a Latin name", "@Ann请看", "ann"},
		{"Kana follows a Latin name", "@Annさん", "ann"},
		{"Hangul follows a Latin name", "@Ann님", "ann"},
		{"a name with hyphen and dot", "@gpt-4.1 go", "gpt-4.1"},
		{"a mixed name ends as Latin", "@小Bob", ""},
		{"a mixed name before Chinese", "@小B看", "agent_b"},
		{"a line break ends", "@Ann\nhi", "ann"},

		{"Chinese without boundary", "@小明请看", "ming"},
		{"the longest Chinese name", "@小明明看", "mingming"},
		{"the longest Chinese name, then the shorter", "@小明明@小明", "mingming ming"},
		{"Chinese before the at", "请@小明看一下", "ming"},
		{"Chinese before a Latin name", "请@BotB看一下", "agent_b"},
		{"a full-width at", "请＠小明看", "ming"},
		{"a full-width name", "＠ＢｏｔＢ 看", "agent_b"},
		{"a part of a Chinese name", "@小", ""},

		{"a name with a space", "@Code Bot go", "coder"},
		{"a name with more space", "@code  \u00a0bot go", "coder"},
		{"no name goes over a line", "@Code\nBot", ""},
		{"half a name", "@Code", ""},
		{"the longest name with a space", "@Ann Lee", "anna"},
		{"back to the shorter name", "@Ann Leeds", "ann"},

		{"an e-mail address", "write to joe@ann.example or x@Ann", ""},
		{"an e-mail address with Chinese around", "写给joe@BotB.com吧", ""},
		{"an at with an address", "@ann@example.com", ""},
		{"a dot before the at", "joe.@Ann", ""},
		{"a hyphen before the at", "joe-@Ann", ""},
		{"an underscore before the at", "joe_@Ann", ""},
		{"a digit before the at", "7@Ann", ""},
		{"a bracket before the at", "(@Ann)", "ann"},
		{"stars around", "**@Ann**", "ann"},
		{"one mention behind the other", "@Ann@BotB", "ann agent_b"},
		{"a URL", "see https://example.com/@Ann ok", ""},
		{"a URL with a query", "https://example.com/?to=@Ann&cc=@BotB", ""},
		{"a URL with a user", "ssh://@Ann/x", ""},
		{"a URL without a scheme", "example.com/@Ann", ""},
		{"a mention after a URL", "https://example.com/x @Ann", "ann"},
		{"Chinese ends a URL", "看https://example.com/x请@Ann看", "ann"},
		{"a link's bracket ends a URL", "[t](https://example.com/a(b))@Ann", "ann"},
		{"a comma with a mention ends a URL", "https://example.com/x,@Ann", "ann"},
		{"a slash between mentions", "@Ann/@BotB", "ann agent_b"},
		{"a name in a link's text", "[@Ann](https://example.com)", "ann"},

		{"inline code", "run `@Ann` now", ""},
		{"inline code with two backticks", "``a ` @Ann`` @BotB", "agent_b"},
		{"inline code over a line", "`a\n@Ann` x", ""},
		{"an open backtick is text", "a ` @Ann", "ann"},
		{"backticks in two paragraphs", "a ` b\n\n@Ann ` c", "ann"},
		{"unequal backticks", "` @Ann ``", "ann"},
		{"between two codes", "`a` @Ann `b`", "ann"},
		{"a fence", "```go\n@Ann\n```\n@BotB", "agent_b"},
		{"a fence of tildes", "~~~\n@Ann\n```\n~~~\n@BotB", "agent_b"},
		{"a longer fence", "````\n```\n@Ann\n````\n@BotB", "agent_b"},
		{"an indented fence", "- a\n  ```\n  @Ann\n  ```\n@BotB", "agent_b"},
		{"an open fence", "```\n@Ann\n\n@BotB", ""},
		{"a fence on one line is inline", "```@Ann``` @BotB", "agent_b"},
		{"a tag in code", "`<at user_id=\"ou_ann\">Ann</at>`", ""},
		{"a quoted line", "> @Ann said\n@BotB ok?", "agent_b"},
		{"an indented quote", "  > @Ann", ""},
		{"a quote with CRLF", "> @Ann\r\n@BotB\r\n", "agent_b"},
		{"a quoted tag", "> <at user_id=\"ou_ann\">Ann</at>", ""},
		{"a comparison is no quote", "5 > 3 @Ann", "ann"},
		{"a fence in a quote opens nothing", "> ```\n@Ann", "ann"},

		{"everybody", "@all hi", all},
		{"everybody, case aside", "@All", all},
		{"everybody in Chinese", "@所有人请看", all},
		{"everybody by placeholder", "@_all hi", all},
		{"not everybody", "@allen @all-hands @all_x", ""},
		{"everybody and one", "@all @Ann", "ann " + all},
		{"everybody in code", "`@all`", ""},

		{"an ambiguous name", "@Twin hi", ""},
		{"the relay name of a twin", "@twin_2 hi", "twin_2"},

		{"a placeholder without a record", "@_user_1 hi", ""},
		{"JSON that is no content", `{"a":"@Ann"}`, "ann"},
		{"broken JSON", `{"text":"@Ann`, "ann"},
		{"invalid UTF-8", "\xff@Ann\xff", "ann"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := flat(team().Find(mention.Text{Content: tt.text})); got != tt.want {
				t.Errorf("Find(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestFindTags(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"double quotes", `<at user_id="ou_b">BotB</at> hi`, "agent_b"},
		{"single quotes", `<at user_id='ou_b'>BotB</at> hi`, "agent_b"},
		{"escaped quotes", `<at user_id=\"ou_b\">BotB</at> hi`, "agent_b"},
		{"no quotes", `<at id=ou_b></at> hi`, "agent_b"},
		{"closed in itself", `<at id=ou_b/> @Ann`, "agent_b ann"},
		{"closed in itself with a blank", `<at id="ou_b" /> @Ann`, "agent_b ann"},
		{"upper case", `<AT ID="ou_b"></AT>`, "agent_b"},
		{"never closed", `<at id=ou_b> @Ann`, "agent_b ann"},
		{"other attributes", `<at style='x' user_id="ou_b" y>B</at>`, "agent_b"},
		{"several ids", `<at ids=ou_b,ou_ann></at>`, "agent_b ann"},
		{"several ids with blanks", `<at ids="ou_b, ou_ann"></at>`, "agent_b ann"},
		{"an id another app sees", `<at user_id="ou_b_seen_by_a">x</at>`, "agent_b"},
		{"an app id", `<at id=cli_b></at>`, "agent_b"},
		{"a word before", `hi<at id=ou_b></at>`, "agent_b"},
		{"the id goes before the name", `<at user_id="ou_b">Ann</at>`, "agent_b"},
		{"an unknown id with a known name", `<at user_id="ou_b_seen_by_x">BotB</at>`, "agent_b"},
		{"an unknown id with an at in the name", `<at user_id="ou_x">@BotB</at>`, "agent_b"},
		{"an unknown id with an escaped name", `<at user_id="ou_x">Bot&#66;</at>`, "agent_b"},
		{"an unknown id with an unknown name", `<at user_id="ou_x">Zoe</at>`, ""},
		{"an unknown id with more than a name", `<at user_id="ou_x">BotB2</at>`, ""},
		{"an unknown id with an ambiguous name", `<at user_id="ou_x">Twin</at>`, ""},
		{"an ambiguous name with an id", `<at user_id="ou_t2">Twin</at>`, "twin_2"},
		{"an id of two agents", `<at user_id="ou_shared"></at>`, ""},
		{"an id of two agents with a name", `<at user_id="ou_shared">BotB</at>`, "agent_b"},
		{"an unknown id with an endless name", `<at id=ou_x>` + strings.Repeat("小", 500) + `</at>`, ""},
		{"no id but a name", `<at>BotB</at>`, "agent_b"},
		{"everybody", `<at user_id="all">所有人</at>`, all},
		{"everybody in a card", `<at id=all></at>`, all},
		{"another tag", `<attach id=ou_b></attach>`, ""},
		{"no end", `<at id=ou_b`, ""},
		{"an open quote", `<at id="ou_b`, ""},
		{"too long", `<at x=` + strings.Repeat("y", 2000) + ` id=ou_b></at>`, ""},
		{"swallows no mention", "<at that @BotB -> @Ann>", "agent_b ann"},
		{"swallows no line", "<at\n@BotB\n> x", "agent_b"},
		{"swallows no line in quotes", "<at id='x\n@BotB' >", "agent_b"},
		{"a name goes over no line", "<at id=ou_x>\n@BotB</at>", "agent_b"},
		{"a tag in a tag", `<at <at id=ou_b></at>`, "agent_b"},
		{"the name is not read twice", `<at user_id="ou_b">@Ann</at>`, "agent_b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := flat(team().Find(mention.Text{Content: tt.text})); got != tt.want {
				t.Errorf("Find(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestFindByRefs(t *testing.T) {
	type refs = []mention.Ref
	b := mention.Ref{Key: "@_user_1", Name: "BotB", OpenID: "ou_b"}
	for _, tt := range []struct {
		name, text string
		refs       refs
		want       string
	}{
		{"by its key", "@_user_1 hi", refs{b}, "agent_b"},
		{"Chinese follows the key", "请@_user_1看", refs{b}, "agent_b"},
		{"a word before the key", "hi@_user_1 x", refs{b}, "agent_b"},
		{"another number", "@_user_12 `@_user_1`", refs{b}, ""},
		{"only in code", "`@_user_1`", refs{b}, ""},
		{"in code and in the text", "`@_user_1` @_user_1", refs{b}, "agent_b"},
		{"the text does not show the key", "hi", refs{b}, "agent_b"},
		{"by the name where the id is unknown", "@_user_1", refs{{Key: "@_user_1", Name: "BotB", OpenID: "ou_x"}}, "agent_b"},
		{"the id goes before the name", "@_user_1", refs{{Key: "@_user_1", Name: "Ann", OpenID: "ou_b"}}, "agent_b"},
		{"a person", "@_user_1", refs{{Key: "@_user_1", Name: "Tom", OpenID: "ou_tom"}}, ""},
		{"resolved by the sender", "a card", refs{{AgentName: "agent_b"}}, "agent_b"},
		{"resolved goes before the id", "", refs{{AgentName: "ann", OpenID: "ou_b"}}, "ann"},
		{"resolved under a display name", "", refs{{AgentName: "BotB"}}, "agent_b"},
		{"resolved as an unknown agent", "", refs{{AgentName: "zoe", Name: "BotB"}}, ""},
		{"resolved, and its key in code", "`@_user_1`", refs{{Key: "@_user_1", AgentName: "agent_b"}}, "agent_b"},
		{"without a key, by id", "hi", refs{{OpenID: "ou_b"}}, "agent_b"},
		{"without a key, by name", "hi", refs{{Name: "BotB"}}, "agent_b"},
		{"an endless name", "hi", refs{{Name: strings.Repeat("小", 500)}}, ""},
		{"an unknown number", "@_user_ @_user_x", refs{{Key: "@_user_", Name: "Zoe"}}, ""},
		{"an empty record", "hi", refs{{}}, ""},
		{"the text goes first", "@Ann", refs{b}, "ann agent_b"},
		{"the text's order", "@_user_2 @_user_1", refs{b, {Key: "@_user_2", OpenID: "ou_ann"}}, "ann agent_b"},
		{"a tag by its key", `<at id=ou_other mention_key=@_user_1></at>`, refs{b}, "agent_b"},
		{"a tag by its id as no record has the key", `<at id=ou_ann mention_key=@_user_7></at>`, refs{b}, "ann agent_b"},
		{"everybody", "@_user_1", refs{{Key: "@_user_1", OpenID: "all"}}, all},
		{"everybody without an id", "", refs{{Key: "@_all", Name: "所有人"}}, all},
		{"the first record of a key", "@_user_1", refs{b, {Key: "@_user_1", OpenID: "ou_ann"}}, "agent_b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := flat(team().Find(mention.Text{Content: tt.text, MsgType: "text", Refs: tt.refs}))
			if got != tt.want {
				t.Errorf("Find(%q) = %q, want %q", tt.text, got, tt.want)
			}
		})
	}
}

func TestFindReadsOnlySoManyRefs(t *testing.T) {
	refs := make([]mention.Ref, mention.MaxRefs, mention.MaxRefs+1)
	refs = append(refs, mention.Ref{AgentName: "ann"})
	if got, want := flat(team().Find(mention.Text{Refs: refs})), ""; got != want {
		t.Errorf("beyond the bound: %q, want %q", got, want)
	}
	if got, want := flat(team().Find(mention.Text{Refs: refs[1:]})), "ann"; got != want {
		t.Errorf("within the bound: %q, want %q", got, want)
	}
}

func TestNewDirectory(t *testing.T) {
	t.Run("joins entries of one agent", func(t *testing.T) {
		d := mention.NewDirectory([]mention.Agent{
			{ID: "a", Names: []string{"One"}}, {ID: "a", Names: []string{"Two"}, IDs: []string{"ou_a"}},
		})
		got := d.Find(mention.Text{Content: "@One @Two <at id=ou_a></at>"})
		if diff := cmp.Diff(mention.Found{Agents: []string{"a"}}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("leaves out what has no id or no usable name", func(t *testing.T) {
		long := strings.Repeat("x", mention.MaxName+1)
		d := mention.NewDirectory([]mention.Agent{
			{Names: []string{"Ghost"}}, {ID: "a", Names: []string{"", " ", "@", long}, IDs: []string{""}},
		})
		got := d.Find(mention.Text{Content: "@Ghost @ @@ @" + long + " <at id=''></at>", Refs: []mention.Ref{{Name: "@"}}})
		if diff := cmp.Diff(mention.Found{}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("names are written loosely", func(t *testing.T) {
		d := mention.NewDirectory([]mention.Agent{{ID: "a", Names: []string{" ＠Code \t Bot "}}})
		if got, want := flat(d.Find(mention.Text{Content: "@code bot"})), "a"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("everybody is no agent's name", func(t *testing.T) {
		d := mention.NewDirectory([]mention.Agent{{ID: "all", Names: []string{"所有人"}, IDs: []string{"all"}}})
		if got, want := flat(d.Find(mention.Text{Content: "@all @所有人 <at id=all></at>"})), all; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("none", func(t *testing.T) {
		if got, want := flat(mention.NewDirectory(nil).Find(mention.Text{Content: "@Ann @all"})), all; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		name string
		text mention.Text
		want []mention.Ref
	}{
		{"nobody", mention.Text{Content: "hi @Zoe"}, nil},
		{"by name", mention.Text{Content: "@小B 看"}, []mention.Ref{{AgentName: "agent_b", Name: "BotB"}}},
		{
			"by tag", mention.Text{Content: `<at user_id="ou_b_seen_by_a">小B</at>`},
			[]mention.Ref{{AgentName: "agent_b", Name: "BotB", OpenID: "ou_b_seen_by_a"}},
		},
		{
			"by a tag's name, with the id the sender sees", mention.Text{Content: `<at user_id="ou_new">BotB</at>`},
			[]mention.Ref{{AgentName: "agent_b", Name: "BotB", OpenID: "ou_new"}},
		},
		{
			"an app id is no open id", mention.Text{Content: `<at id=cli_b></at>`},
			[]mention.Ref{{AgentName: "agent_b", Name: "BotB"}},
		},
		{
			"records: agents first, people after them",
			mention.Text{Content: "@_user_1 @_user_2 @_user_3 hi", Refs: []mention.Ref{
				{Key: "@_user_1", Name: "Tom", OpenID: "ou_tom"}, {Key: "@_user_2", Name: "BotB", OpenID: "ou_b"},
				{Key: "@_user_3", Name: "BotB", OpenID: "ou_b"},
			}},
			[]mention.Ref{
				{Key: "@_user_2", Name: "BotB", OpenID: "ou_b", AgentName: "agent_b"},
				{Key: "@_user_1", Name: "Tom", OpenID: "ou_tom"},
				{Key: "@_user_3", Name: "BotB", OpenID: "ou_b", AgentName: "agent_b"},
			},
		},
		{
			"a record completes a name",
			mention.Text{Content: "@BotB hi", Refs: []mention.Ref{{Key: "@_user_1", Name: "BotB", OpenID: "ou_b"}}},
			[]mention.Ref{{Key: "@_user_1", Name: "BotB", OpenID: "ou_b", AgentName: "agent_b"}},
		},
		{
			"a record whose key is in code remains unresolved",
			mention.Text{Content: "`@_user_1`", Refs: []mention.Ref{{Key: "@_user_1", OpenID: "ou_b"}}},
			[]mention.Ref{{Key: "@_user_1", OpenID: "ou_b"}},
		},
		{
			"a record without a key occurs once",
			mention.Text{Content: "@_user_1", Refs: []mention.Ref{{Key: "@_user_1", OpenID: "ou_b"}, {AgentName: "agent_b"}}},
			[]mention.Ref{{Key: "@_user_1", Name: "BotB", OpenID: "ou_b", AgentName: "agent_b"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := team().Resolve(tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Resolve (-want +got):\n%s", diff)
			}
			// A receiver who knows only the relay names finds the same agents.
			before := team().Find(tt.text)
			after := team().Find(mention.Text{Content: tt.text.Content, Refs: got})
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("found by the receiver (-want +got):\n%s", diff)
			}
		})
	}
}
