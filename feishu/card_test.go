package feishu_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
)

func newCard(t testing.TB, data string) *feishu.Card {
	t.Helper()
	c, err := feishu.NewCard([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func shown(c *feishu.Card) string {
	d := c.Doc()
	return d.Text()
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
	if shown(back.Card) != shown(c) || back.Card.Streaming() != c.Streaming() {
		t.Errorf("%q came back as %q", shown(c), shown(back.Card))
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

// The calls as OpenClaw makes them (docs/feishu.md 7.2).
func TestCardAsOpenClawStreamsIt(t *testing.T) {
	c := newCard(t, `{"schema":"2.0","config":{"streaming_mode":true,"summary":{"content":"[Generating...]"}},"body":{"elements":[{"tag":"markdown","content":"⏳ Thinking...","element_id":"content"},{"tag":"hr","element_id":"hr"},{"tag":"markdown","content":"<font color='grey'>Agent: main</font>","element_id":"note"}]}}`)
	if !c.Streaming() || !content.Placeholder(shown(c)) {
		t.Errorf("at first: streaming %v, %q", c.Streaming(), shown(c))
	}
	for _, text := range []string{"Hello", "Hello <at id=ou_b></at>", "Hello <at id=ou_b></at>, please look."} {
		c.SetContent("content", text)
		if shown(c) != text {
			t.Fatalf("%q, want %q", shown(c), text)
		}
		roundTrip(t, c)
	}
	c.SetContent("note", "<font color='grey'>Agent: main | Model: x</font>")
	if err := c.Settings([]byte(`{"config":{"streaming_mode":false,"summary":{"content":"Hello"}}}`)); err != nil {
		t.Fatal(err)
	}
	if c.Streaming() || shown(c) != "Hello <at id=ou_b></at>, please look." {
		t.Errorf("at the end: streaming %v, %q", c.Streaming(), shown(c))
	}
}

// openclaw-lark: settings without config, then the whole card.
func TestCardAsOpenClawLarkStreamsIt(t *testing.T) {
	c := newCard(t, `{"schema":"2.0","config":{"streaming_mode":true},"body":{"elements":[{"tag":"markdown","content":"","element_id":"streaming_content"}]}}`)
	if err := c.Settings([]byte(`{"streaming_mode":false}`)); err != nil || c.Streaming() {
		t.Fatalf("streaming %v, %v", c.Streaming(), err)
	}
	if shown(c) != "" {
		t.Errorf("text %q", shown(c))
	}
	if err := c.Replace([]byte(`{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"short"}]}}`)); err != nil || shown(c) != "short" {
		t.Errorf("text %q, %v", shown(c), err)
	}
	if err := c.Replace([]byte(`x`)); err == nil || shown(c) != "short" {
		t.Errorf("a broken card: %q, %v", shown(c), err)
	}
}

const threeElements = `{"schema":"2.0","body":{"elements":[
	{"tag":"markdown","element_id":"a","content":"a"},
	{"tag":"column_set","element_id":"set","columns":[{"tag":"column","element_id":"col","elements":[{"tag":"div","element_id":"b","text":{"tag":"plain_text","content":"b"}}]}]},
	{"tag":"interactive_container","element_id":"c","header":{"title":{"tag":"plain_text","element_id":"t","content":"t"}},"elements":[]}]}}`

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
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCard(t, threeElements)
			err := tt.edit(c)
			want, fails := strings.CutPrefix(tt.want, "!")
			if (err != nil) != fails {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(shown(c), want); diff != "" {
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
	if shown(c) != "A\nB" {
		t.Errorf("text %q", shown(c))
	}
	i18n := newCard(t, `{"i18n_elements":{"zh_cn":[{"tag":"markdown","element_id":"a","content":"a"}]}}`)
	i18n.SetContent("a", "A")
	i18n.SetContent("b", "B")
	if shown(i18n) != "A\nB" {
		t.Errorf("text %q", shown(i18n))
	}
}

func TestCardTakesOnlySoMuchText(t *testing.T) {
	var c feishu.Card
	c.SetContent("x", strings.Repeat("长", 1<<20))
	if text := shown(&c); len(text) > 400_000 || !strings.HasPrefix(text, "长长") {
		t.Errorf("%d bytes", len(text))
	}
}
