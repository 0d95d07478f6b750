package feishu_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
)

func newCard(t testing.TB, data string) *feishu.Card {
	t.Helper()
	c, err := feishu.NewCard([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCardText(t *testing.T) {
	v2 := func(elements string) string { return `{"schema":"2.0","body":{"elements":[` + elements + `]}}` }
	md := func(text string) string {
		quoted, _ := json.Marshal(text)
		return `{"tag":"markdown","content":` + string(quoted) + `}`
	}
	const footer = "<font color='grey'>Agent: main | Model: x/y</font>"
	for _, tt := range []struct{ name, card, want string }{
		{"header, then the body", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"b"}]},"header":{"title":{"tag":"plain_text","content":"T"},"subtitle":{"tag":"plain_text","content":"S"},"template":"blue"}}`, "T\nS\nb"},
		{"schema 1", `{"config":{"update_multi":true},"header":{"title":{"tag":"plain_text","content":"T"}},"elements":[{"tag":"markdown","content":"**a**"},{"tag":"div","text":{"tag":"lark_md","content":"b"},"fields":[{"is_short":true,"text":{"tag":"lark_md","content":"c"}}]},{"tag":"hr"},{"tag":"div","text":{"tag":"plain_text","content":"d"}},{"tag":"note","elements":[{"tag":"plain_text","content":"foot"}]},{"tag":"action","actions":[{"tag":"button","text":{"tag":"plain_text","content":"Press"}}]}]}`, "T\n**a**\nb\nc\n---\nd"},
		{"translations of schema 1", `{"i18n_header":{"en_us":{"title":{"tag":"plain_text","content":"T"}}},"i18n_elements":{"en_us":[{"tag":"markdown","content":"en"}],"zh_cn":[{"tag":"markdown","content":"中"}]}}`, "T\n中"},
		{"translations of schema 2", v2(`{"tag":"markdown","i18n_content":{"en_us":"en","zh_cn":"中"}},{"tag":"markdown","i18n_content":{"fr_fr":"fr","de_de":"de"}}`), "中\nde"},
		{"containers in document order", v2(`{"tag":"column_set","columns":[{"tag":"column","elements":[` + md("1") + `]},{"tag":"column","elements":[` + md("2") + `,{"tag":"form","elements":[` + md("3") + `,{"tag":"input"}]}]}]},{"tag":"collapsible_panel","header":{"title":{"tag":"plain_text","content":"4"}},"elements":[` + md("5") + `]},{"tag":"interactive_container","elements":[` + md("6") + `]}`), "1\n2\n3\n4\n5\n6"},
		{"a table", v2(`{"tag":"table","columns":[{"name":"a","display_name":"A"},{"name":"b"}],"rows":[{"a":"x\ny","b":2},{"b":[{"text":"l1"},"l2"]},7]}`), "A | b\nx y | 2\n | l1 l2\n | "},
		{"people", v2(`{"tag":"person","user_id":"ou_1"},{"tag":"person_list","persons":[{"id":"ou_2"},{"id":"ou_3"},7]}`), `<at id="ou_1" mention_key=""></at>` + "\n" + `<at id="ou_2" mention_key=""></at> <at id="ou_3" mention_key=""></at>`},
		{"colours go, words stay", v2(md("<font color='red'>a</font> <text_tag color='blue'>b</text_tag> <fonts>")), "a b <fonts>"},
		{"the footer of OpenClaw's streamed card", v2(md("answer") + `,{"tag":"hr","element_id":"hr"},{"tag":"markdown","element_id":"note","content":"` + footer + `"}`), "answer"},
		{"the footer of its inline card", v2(md("answer") + `,{"tag":"hr"},` + md(footer)), "answer"},
		{"notation is a footer", v2(md("answer") + `,{"tag":"markdown","text_size":"notation","content":"x"}`), "answer"},
		{"a footer without a rule", v2(md("answer") + `,` + md(footer)), "answer"},
		{"a footer in the text", v2(md("answer\n\n---\n" + footer + "\n")), "answer"},
		{"grey below a rule", v2(md("answer") + `,{"tag":"hr"},` + md("<font color=\"gray\">3.2 s</font>")), "answer"},
		{"grey without a rule stays", v2(md("answer") + `,` + md("<font color='grey'>see below</font>")), "answer\nsee below"},
		{"a grey answer stays", v2(md("<font color='grey'>fine</font>")), "fine"},
		{"two grey spans are no footer", v2(md("a") + `,{"tag":"hr"},` + md("<font color='grey'>x</font> b <font color='grey'>y</font>")), "a\n---\nx b y"},
		{"only a footer", v2(`{"tag":"hr"},` + md(footer)), ""},
		{"rules at the end", v2(md("a") + `,{"tag":"hr"},{"tag":"hr"}`), "a"},
		{"images where there are no words", v2(`{"tag":"img","img_key":"i"},{"tag":"img","img_key":"j"}`), "[图片]\n[图片]"},
		{"images beside words", v2(`{"tag":"img","img_key":"i"},` + md("w")), "w"},
		{"blank elements", v2(md("") + `,` + md(" \n") + `,` + md("\n\nx\n")), "x"},
		{"empty", `{}`, ""},
		{"of other types", `{"body":[1],"elements":{"a":1},"header":"x","config":7,"title":{},"i18n_elements":[]}`, ""},
		{"as CardKit's create has it", `{"type":"card_json","data":"{\"body\":{\"elements\":[{\"tag\":\"markdown\",\"content\":\"x\"}]}}"}`, "x"},
		{"as a JSON string", `"{\"elements\":[{\"tag\":\"markdown\",\"content\":\"x\"}]}"`, "x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCard(t, tt.card)
			if diff := cmp.Diff(c.Text(), tt.want); diff != "" {
				t.Errorf("text (-got +want):\n%s", diff)
			}
			roundTrip(t, c)
		})
	}
}

// roundTrip checks that a card that was written to disk is the same one.
func roundTrip(t testing.TB, c *feishu.Card) {
	t.Helper()
	data, err := json.Marshal(struct{ Card *feishu.Card }{c})
	if err != nil {
		t.Fatal(err)
	}
	var back struct{ Card *feishu.Card }
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	if back.Card.Text() != c.Text() || back.Card.Streaming() != c.Streaming() || cmp.Diff(back.Card.Mentions(), c.Mentions()) != "" {
		t.Errorf("%q came back as %q", c.Text(), back.Card.Text())
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != string(data) {
		t.Errorf("%s\nbecame\n%s", data, again)
	}
}

func TestNewCardRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"nothing": "", "a list": "[]", "a text": `"SECRET"`, "two": "{}{}", "torn": `{"a":"SECRET`,
		"deep": strings.Repeat(`[`, 40), "large": `{"a":"` + strings.Repeat("x", 1<<20) + `"}`, "broken inside": `{"user_dsl":"SECRET"}`,
		"deep inside": `{"user_dsl":"` + strings.Repeat(`[`, 40) + strings.Repeat(`]`, 40) + `"}`,
	} {
		if c, err := feishu.NewCard([]byte(data)); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}

func TestCardMentions(t *testing.T) {
	c := newCard(t, `{"schema":"2.0","body":{"elements":[
		{"tag":"markdown","content":"<at id=ou_1></at> <at ids=ou_2,cli_3></at> <at user_id=\"ou_4\">Ann</at> <at id=all></at> <at email=a@b></at> <at id=ou_1></at> `+"`<at id=ou_code></at>` ```\\n<at id=ou_block></at>\\n```"+`"},
		{"tag":"person","user_id":"ou_5"},{"tag":"person_list","persons":[{"id":"on_6"}]},
		{"tag":"markdown","element_id":"note","content":"<at id=ou_foot></at>"}]}}`)
	want := []feishu.Mention{{OpenID: "ou_1"}, {OpenID: "ou_2"}, {AppID: "cli_3", Type: "bot"}, {OpenID: "ou_4", Name: "Ann"}, {OpenID: "ou_5"}, {UnionID: "on_6"}}
	if diff := cmp.Diff(c.Mentions(), want); diff != "" {
		t.Errorf("mentions (-got +want):\n%s", diff)
	}
	named := feishu.WithNames(c.Text(), []feishu.Mention{{OpenID: "ou_1", Name: "Bot1"}})
	if !strings.HasPrefix(named, "@Bot1 <at ids=ou_2,cli_3></at> @Ann @所有人 @a@b @Bot1 ") {
		t.Errorf("named %q", named)
	}
	legacy := newCard(t, `{"title":"","elements":[[{"tag":"at","user_id":"@_user_1","user_name":"x"},{"tag":"at","user_id":"ou_1","user_name":"y"}]]}`)
	if diff := cmp.Diff(legacy.Mentions(), []feishu.Mention{{OpenID: "ou_1", Name: "y"}}); diff != "" {
		t.Errorf("legacy (-got +want):\n%s", diff)
	}
}

// The calls as OpenClaw makes them (docs/feishu.md 7.2).
func TestCardAsOpenClawStreamsIt(t *testing.T) {
	c := newCard(t, `{"schema":"2.0","config":{"streaming_mode":true,"summary":{"content":"[Generating...]"}},"body":{"elements":[{"tag":"markdown","content":"⏳ Thinking...","element_id":"content"},{"tag":"hr","element_id":"hr"},{"tag":"markdown","content":"<font color='grey'>Agent: main</font>","element_id":"note"}]}}`)
	if !c.Streaming() || !feishu.Placeholder(c.Text()) {
		t.Errorf("at first: streaming %v, %q", c.Streaming(), c.Text())
	}
	for _, text := range []string{"Hello", "Hello <at id=ou_b></at>", "Hello <at id=ou_b></at>, please look."} {
		c.SetContent("content", text)
		if c.Text() != text {
			t.Fatalf("%q, want %q", c.Text(), text)
		}
		roundTrip(t, c)
	}
	c.SetContent("note", "<font color='grey'>Agent: main | Model: x</font>")
	if err := c.Settings([]byte(`{"config":{"streaming_mode":false,"summary":{"content":"Hello"}}}`)); err != nil {
		t.Fatal(err)
	}
	if c.Streaming() || c.Text() != "Hello <at id=ou_b></at>, please look." {
		t.Errorf("at the end: streaming %v, %q", c.Streaming(), c.Text())
	}
}

// openclaw-lark: settings without config, then the whole card.
func TestCardAsOpenClawLarkStreamsIt(t *testing.T) {
	c := newCard(t, `{"schema":"2.0","config":{"streaming_mode":true},"body":{"elements":[{"tag":"markdown","content":"","element_id":"streaming_content"}]}}`)
	if err := c.Settings([]byte(`{"streaming_mode":false}`)); err != nil || c.Streaming() {
		t.Fatalf("streaming %v, %v", c.Streaming(), err)
	}
	if c.Text() != "" {
		t.Errorf("text %q", c.Text())
	}
	if err := c.Replace([]byte(`{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"short"}]}}`)); err != nil || c.Text() != "short" {
		t.Errorf("text %q, %v", c.Text(), err)
	}
	if err := c.Replace([]byte(`x`)); err == nil || c.Text() != "short" {
		t.Errorf("a broken card: %q, %v", c.Text(), err)
	}
}

const threeElements = `{"schema":"2.0","body":{"elements":[
	{"tag":"markdown","element_id":"a","content":"a"},
	{"tag":"column_set","element_id":"set","columns":[{"tag":"column","element_id":"col","elements":[{"tag":"div","element_id":"b","text":{"tag":"plain_text","content":"b"}}]}]},
	{"tag":"collapsible_panel","element_id":"c","header":{"title":{"tag":"plain_text","element_id":"t","content":"t"}},"elements":[]}]}}`

func TestCardEdits(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(c *feishu.Card) error
		want string // lines, or what they are after an error if it begins with "!"
	}{
		{"content of a div", func(c *feishu.Card) error { c.SetContent("b", "B"); return nil }, "a\nB\nt"},
		{"content of a title", func(c *feishu.Card) error { c.SetContent("t", "T"); return nil }, "a\nb\nT"},
		{"content of an unknown element", func(c *feishu.Card) error { c.SetContent("new", "n"); c.SetContent("new", "nn"); return nil }, "a\nb\nt\nnn"},
		{"content of an element without an id", func(c *feishu.Card) error { c.SetContent("", "n"); return nil }, "a\nb\nt\nn"},
		{"replace", func(c *feishu.Card) error {
			return c.ReplaceElement("b", []byte(`{"tag":"markdown","content":"R"}`))
		}, "a\nR\nt"},
		{"replace, as a JSON string", func(c *feishu.Card) error {
			return c.ReplaceElement("a", []byte(`"{\"tag\":\"markdown\",\"element_id\":\"a\",\"content\":\"R\"}"`))
		}, "R\nb\nt"},
		{"replaced elements keep their id", func(c *feishu.Card) error {
			err := c.ReplaceElement("a", []byte(`{"tag":"markdown","content":"R"}`))
			c.SetContent("a", "S")
			return err
		}, "S\nb\nt"},
		{"replace a title", func(c *feishu.Card) error {
			return c.ReplaceElement("t", []byte(`{"tag":"plain_text","content":"R"}`))
		}, "a\nb\nR"},
		{"replace an unknown element", func(c *feishu.Card) error {
			return c.ReplaceElement("new", []byte(`{"tag":"markdown","content":"R"}`))
		}, "a\nb\nt\nR"},
		{"replace by a list", func(c *feishu.Card) error { return c.ReplaceElement("a", []byte(`[]`)) }, "!a\nb\nt"},
		{"patch", func(c *feishu.Card) error { return c.PatchElement("a", []byte(`{"content":"P"}`)) }, "P\nb\nt"},
		{"patch what lies deeper", func(c *feishu.Card) error { return c.PatchElement("b", []byte(`{"text":{"content":"P"}}`)) }, "a\nP\nt"},
		{"patch an unknown element", func(c *feishu.Card) error { return c.PatchElement("new", []byte(`{"content":"P"}`)) }, "a\nb\nt\nP"},
		{"patch with nonsense", func(c *feishu.Card) error { return c.PatchElement("a", []byte(`7`)) }, "!a\nb\nt"},
		{"before", func(c *feishu.Card) error {
			return c.AddElements("insert_before", "a", []byte(`[{"tag":"markdown","content":"1"},{"tag":"markdown","content":"2"}]`))
		}, "1\n2\na\nb\nt"},
		{"after", func(c *feishu.Card) error {
			return c.AddElements("insert_after", "b", []byte(`"[{\"tag\":\"markdown\",\"content\":\"1\"}]"`))
		}, "a\nb\n1\nt"},
		{"append", func(c *feishu.Card) error {
			return c.AddElements("append", "", []byte(`{"tag":"markdown","content":"1"}`))
		}, "a\nb\nt\n1"},
		{"append inside", func(c *feishu.Card) error {
			return c.AddElements("append", "c", []byte(`[{"tag":"markdown","content":"1"}]`))
		}, "a\nb\nt\n1"},
		{"append a column", func(c *feishu.Card) error {
			return c.AddElements("append", "set", []byte(`[{"tag":"column","elements":[{"tag":"markdown","content":"1"}]}]`))
		}, "a\nb\n1\nt"},
		{"beside an unknown element", func(c *feishu.Card) error {
			return c.AddElements("insert_before", "gone", []byte(`[{"tag":"markdown","content":"1"}]`))
		}, "a\nb\nt\n1"},
		{"beside a title", func(c *feishu.Card) error {
			return c.AddElements("insert_before", "t", []byte(`[{"tag":"markdown","content":"1"}]`))
		}, "a\nb\nt\n1"},
		{"add nonsense", func(c *feishu.Card) error { return c.AddElements("append", "", []byte(`7`)) }, "!a\nb\nt"},
		{"add torn", func(c *feishu.Card) error { return c.AddElements("append", "", []byte(`[{`)) }, "!a\nb\nt"},
		{"delete", func(c *feishu.Card) error { c.DeleteElement("a"); return nil }, "b\nt"},
		{"delete a title", func(c *feishu.Card) error { c.DeleteElement("t"); return nil }, "a\nb"},
		{"delete a container", func(c *feishu.Card) error { c.DeleteElement("set"); c.DeleteElement("b"); return nil }, "a\nt"},
		{"delete nothing", func(c *feishu.Card) error { c.DeleteElement(""); return nil }, "a\nb\nt"},
		{"batch", func(c *feishu.Card) error {
			return c.Batch([]byte(`[{"action":"partial_update_setting","params":{"settings":{"config":{"streaming_mode":true}}}},
				{"action":"add_elements","params":{"type":"insert_before","target_element_id":"b","elements":[{"tag":"markdown","element_id":"n","content":"n"}]}},
				{"action":"delete_elements","params":{"element_ids":["a"]}},
				{"action":"partial_update_element","params":{"element_id":"b","partial_element":{"text":{"content":"P"}}}},
				{"action":"update_element","params":{"element_id":"c","element":{"tag":"markdown","content":"U"}}}]`))
		}, "n\nP\nU"},
		{"batch of JSON strings", func(c *feishu.Card) error {
			return c.Batch([]byte(`"[{\"action\":\"update_element\",\"params\":\"{\\\"element_id\\\":\\\"a\\\",\\\"element\\\":\\\"{\\\\\\\"tag\\\\\\\":\\\\\\\"markdown\\\\\\\",\\\\\\\"content\\\\\\\":\\\\\\\"U\\\\\\\"}\\\"}\"}]"`))
		}, "U\nb\nt"},
		{"batch with the reference's other names", func(c *feishu.Card) error {
			return c.Batch([]byte(`[{"action":"partial_update_setting","params":{"config":{"streaming_mode":true}}},
				{"action":"add_elements","params":{"type":"append","element_list":[{"tag":"markdown","content":"n"}]}},
				{"action":"delete_elements","params":{"element_id_list":["a","b"]}}]`))
		}, "t\nn"},
		{"batch with an unknown action", func(c *feishu.Card) error {
			return c.Batch([]byte(`[7,{"action":"paint"},{"action":"update_element","params":{"element":7}},{"action":"partial_update_element"},{"action":"add_elements"},{"action":"delete_elements","params":{"element_id":"a"}}]`))
		}, "!b\nt"},
		{"batch of nonsense", func(c *feishu.Card) error { return c.Batch([]byte(`{}`)) }, "!a\nb\nt"},
		{"torn batch", func(c *feishu.Card) error { return c.Batch([]byte(`[`)) }, "!a\nb\nt"},
		{"settings of nonsense", func(c *feishu.Card) error { return c.Settings([]byte(`[]`)) }, "!a\nb\nt"},
		{"settings leave the text", func(c *feishu.Card) error { return c.Settings([]byte(`{"config":{"x":1},"card_link":{"url":"u"}}`)) }, "a\nb\nt"},
		{"too much", func(c *feishu.Card) error {
			one := `[{"tag":"markdown","content":"` + strings.Repeat("x", 400<<10) + `"}]`
			var err error
			for i := 0; i < 3 && err == nil; i++ {
				err = c.AddElements("append", "c", []byte(one))
			}
			c.DeleteElement("c")
			return err
		}, "!a\nb"},
		{"too deep", func(c *feishu.Card) error {
			err, id := error(nil), "c"
			for i := 0; i < 40 && err == nil; i++ {
				next := fmt.Sprintf("d%d", i)
				err = c.AddElements("append", id, fmt.Appendf(nil, `[{"tag":"form","element_id":%q,"elements":[]}]`, next))
				id = next
			}
			return err
		}, "!a\nb\nt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCard(t, threeElements)
			err := tt.edit(c)
			want, fails := strings.CutPrefix(tt.want, "!")
			if (err != nil) != fails {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(c.Text(), want); diff != "" {
				t.Errorf("text (-got +want):\n%s", diff)
			}
			roundTrip(t, c)
		})
	}
}

func TestCardOfSchema1IsEditedToo(t *testing.T) {
	c := newCard(t, `{"elements":[{"tag":"markdown","element_id":"a","content":"a"}]}`)
	c.SetContent("a", "A")
	c.SetContent("b", "B")
	if c.Text() != "A\nB" {
		t.Errorf("text %q", c.Text())
	}
	i18n := newCard(t, `{"i18n_elements":{"zh_cn":[{"tag":"markdown","element_id":"a","content":"a"}]}}`)
	i18n.SetContent("a", "A")
	i18n.SetContent("b", "B")
	if i18n.Text() != "A\nB" {
		t.Errorf("text %q", i18n.Text())
	}
}

func TestZeroCard(t *testing.T) {
	var c feishu.Card
	if c.Text() != "" || c.Streaming() || c.Mentions() != nil {
		t.Error("it is not empty")
	}
	roundTrip(t, &c)
	c.DeleteElement("x")
	c.SetContent("x", "y")
	if c.Text() != "y" {
		t.Errorf("text %q", c.Text())
	}
	c = feishu.Card{}
	if err := c.Settings([]byte(`{"streaming_mode":true}`)); err != nil || !c.Streaming() {
		t.Errorf("streaming %v, %v", c.Streaming(), err)
	}
}

func TestCardTakesOnlySoMuchText(t *testing.T) {
	var c feishu.Card
	c.SetContent("x", strings.Repeat("长", 1<<20))
	if text := c.Text(); len(text) > 400_000 || !strings.HasPrefix(text, "长长") {
		t.Errorf("%d bytes", len(text))
	}
	c = feishu.Card{}
	for i := range 4 {
		c.SetContent(fmt.Sprint(i), strings.Repeat("\x01", 400_000))
	}
	data, err := json.Marshal(&c) // each of these bytes becomes six
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		t.Errorf("the fullest card cannot be read again: %v", err)
	}
}
