package feishu_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/relay"
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

// write streams a text into an element.
func write(t *testing.T, c *feishu.Card, element, text string) {
	t.Helper()
	body, err := relay.Marshal(map[string]string{"content": text})
	if err == nil {
		err = c.Apply("PUT /elements/{element}/content", element, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The calls as OpenClaw makes them (docs/feishu.md 7.2).
func TestCardAsOpenClawStreamsIt(t *testing.T) {
	c := newCard(t, `{"schema":"2.0","config":{"streaming_mode":true,"summary":{"content":"[Generating...]"}},"body":{"elements":[{"tag":"markdown","content":"⏳ Thinking...","element_id":"content"},{"tag":"hr","element_id":"hr"},{"tag":"markdown","content":"<font color='grey'>Agent: main</font>","element_id":"note"}]}}`)
	if !c.Streaming() || !content.Placeholder(shown(c)) {
		t.Errorf("at first: streaming %v, %q", c.Streaming(), shown(c))
	}
	for _, text := range []string{"Hello", "Hello <at id=ou_b></at>", "Hello <at id=ou_b></at>, please look."} {
		write(t, c, "content", text)
		if shown(c) != text {
			t.Fatalf("%q, want %q", shown(c), text)
		}
		roundTrip(t, c)
	}
	write(t, c, "note", "<font color='grey'>Agent: main | Model: x</font>")
	if err := c.Apply("PATCH /settings", "", []byte(`{"settings":"{\"config\":{\"streaming_mode\":false,\"summary\":{\"content\":\"Hello\"}}}"}`)); err != nil {
		t.Fatal(err)
	}
	if c.Streaming() || shown(c) != "Hello <at id=ou_b></at>, please look." {
		t.Errorf("at the end: streaming %v, %q", c.Streaming(), shown(c))
	}
}

// openclaw-lark: settings without config, then the whole card.
func TestCardAsOpenClawLarkStreamsIt(t *testing.T) {
	c := newCard(t, `{"schema":"2.0","config":{"streaming_mode":true},"body":{"elements":[{"tag":"markdown","content":"","element_id":"streaming_content"}]}}`)
	if err := c.Apply("PATCH /settings", "", []byte(`{"settings":"{\"streaming_mode\":false}"}`)); err != nil || c.Streaming() {
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
		name, call, element, body string
		want                      string // lines, or what they are after an error if it begins with "!"
	}{
		{"content of a div", "PUT /elements/{element}/content", "b", `{"content":"B"}`, "a\nB\nt"},
		{"content of a title", "PUT /elements/{element}/content", "t", `{"content":"T"}`, "a\nb\nT"},
		{"content of an unknown element", "PUT /elements/{element}/content", "new", `{"content":"n"}`, "a\nb\nt\nn"},
		{"content of an element without an id", "PUT /elements/{element}/content", "",
			`{"content":"n"}`, "a\nb\nt\nn"},
		{"replace", "PUT /elements/{element}", "b",
			`{"element":"{\"tag\":\"markdown\",\"content\":\"R\"}"}`, "a\nR\nt"},
		{"replace a title", "PUT /elements/{element}", "t",
			`{"element":"{\"tag\":\"plain_text\",\"content\":\"R\"}"}`, "a\nb\nR"},
		{"replace an unknown element", "PUT /elements/{element}", "new",
			`{"element":{"tag":"markdown","content":"R"}}`, "a\nb\nt\nR"},
		{"replace by a list", "PUT /elements/{element}", "a", `{"element":"[]"}`, "!a\nb\nt"},
		{"patch", "PATCH /elements/{element}", "a", `{"partial_element":"{\"content\":\"P\"}"}`, "P\nb\nt"},
		{"patch what lies deeper", "PATCH /elements/{element}", "b",
			`{"partial_element":"{\"text\":{\"content\":\"P\"}}"}`, "a\nP\nt"},
		{"patch an unknown element", "PATCH /elements/{element}", "new",
			`{"partial_element":"{\"content\":\"P\"}"}`, "a\nb\nt\nP"},
		{"patch with nonsense", "PATCH /elements/{element}", "a", `{"partial_element":"7"}`, "!a\nb\nt"},
		{"before", "POST /elements", "",
			`{"type":"insert_before","target_element_id":"a","elements":"[{\"tag\":\"markdown\",\"content\":\"1\"},{\"tag\":\"markdown\",\"content\":\"2\"}]"}`, "1\n2\na\nb\nt"},
		{"after", "POST /elements", "",
			`{"type":"insert_after","target_element_id":"b","elements":"[{\"tag\":\"markdown\",\"content\":\"1\"}]"}`, "a\nb\n1\nt"},
		{"append", "POST /elements", "",
			`{"type":"append","elements":"{\"tag\":\"markdown\",\"content\":\"1\"}"}`, "a\nb\nt\n1"},
		{"append inside", "POST /elements", "",
			`{"type":"append","target_element_id":"c","elements":[{"tag":"markdown","content":"1"}]}`, "a\nb\nt\n1"},
		{"append a column", "POST /elements", "",
			`{"type":"append","target_element_id":"set","elements":[{"tag":"column","elements":[{"tag":"markdown","content":"1"}]}]}`, "a\nb\n1\nt"},
		{"beside an unknown element", "POST /elements", "",
			`{"type":"insert_before","target_element_id":"gone","elements":[{"tag":"markdown","content":"1"}]}`, "a\nb\nt\n1"},
		{"beside a title", "POST /elements", "",
			`{"type":"insert_before","target_element_id":"t","elements":[{"tag":"markdown","content":"1"}]}`, "a\nb\nt\n1"},
		{"add nonsense", "POST /elements", "", `{"type":"append","elements":"7"}`, "!a\nb\nt"},
		{"add torn", "POST /elements", "", `{"type":"append","elements":"[{"}`, "!a\nb\nt"},
		{"delete", "DELETE /elements/{element}", "a", `{}`, "b\nt"},
		{"delete, without a body", "DELETE /elements/{element}", "a", ``, "b\nt"},
		{"delete a title", "DELETE /elements/{element}", "t", `{}`, "a\nb"},
		{"delete a container", "DELETE /elements/{element}", "set", `{}`, "a\nt"},
		{"delete nothing", "DELETE /elements/{element}", "", `{}`, "a\nb\nt"},
		{"batch", "POST /batch_update", "",
			`{"actions":[{"action":"partial_update_setting","params":{"settings":{"config":{"streaming_mode":true}}}},
				{"action":"add_elements","params":{"type":"insert_before","target_element_id":"b","elements":[{"tag":"markdown","element_id":"n","content":"n"}]}},
				{"action":"delete_elements","params":{"element_ids":["a"]}},
				{"action":"partial_update_element","params":{"element_id":"b","partial_element":{"text":{"content":"P"}}}},
				{"action":"update_element","params":{"element_id":"c","element":{"tag":"markdown","content":"U"}}}]}`, "n\nP\nU"},
		{"batch of JSON strings", "POST /batch_update", "",
			`{"actions":"[{\"action\":\"update_element\",\"params\":\"{\\\"element_id\\\":\\\"a\\\",\\\"element\\\":{\\\"tag\\\":\\\"markdown\\\",\\\"content\\\":\\\"U\\\"}}\"}]"}`, "U\nb\nt"},
		{"batch with the reference's other names", "POST /batch_update", "",
			`{"actions":[{"action":"partial_update_setting","params":{"config":{"streaming_mode":true}}},
				{"action":"add_elements","params":{"type":"append","element_list":[{"tag":"markdown","content":"n"}]}},
				{"action":"delete_elements","params":{"element_id_list":["a","b"]}}]}`, "t\nn"},
		{"batch with an unknown action", "POST /batch_update", "",
			`{"actions":[7,{"action":"paint"},{"action":"update_element","params":{"element":7}},{"action":"partial_update_element"},{"action":"add_elements"},{"action":"delete_elements","params":{"element_id":"a"}}]}`, "!b\nt"},
		{"batch of nonsense", "POST /batch_update", "", `{"actions":"{}"}`, "!a\nb\nt"},
		{"settings of nonsense", "PATCH /settings", "", `{"settings":"[]"}`, "!a\nb\nt"},
		{"settings leave the text", "PATCH /settings", "",
			`{"settings":"{\"config\":{\"x\":1},\"card_link\":{\"url\":\"u\"}}"}`, "a\nb\nt"},
		{"the whole card", "PUT ", "",
			`{"card":{"type":"card_json","data":"{\"elements\":[{\"tag\":\"markdown\",\"content\":\"new\"}]}"}}`, "new"},
		{"no JSON", "PUT ", "", `x`, "!a\nb\nt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCard(t, threeElements)
			err := c.Apply(tt.call, tt.element, []byte(tt.body))
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

// An element keeps its id when it is replaced.
func TestReplacedElementsKeepTheirID(t *testing.T) {
	c := newCard(t, threeElements)
	err := c.Apply("PUT /elements/{element}", "a", []byte(`{"element":{"tag":"markdown","content":"R"}}`))
	if write(t, c, "a", "S"); err != nil || shown(c) != "S\nb\nt" {
		t.Errorf("got %q, %v", shown(c), err)
	}
}

func TestCardOfSchema1IsEditedToo(t *testing.T) {
	const text = `[{"tag":"markdown","element_id":"a","content":"a"}]`
	for _, card := range []string{`{"elements":` + text + `}`, `{"i18n_elements":{"zh_cn":` + text + `}}`} {
		c := newCard(t, card)
		write(t, c, "a", "A")
		write(t, c, "b", "B")
		if shown(c) != "A\nB" {
			t.Errorf("%s: text %q", card, shown(c))
		}
	}
}

func TestCardTakesOnlySoMuchText(t *testing.T) {
	var c feishu.Card
	write(t, &c, "x", strings.Repeat("长", 300_000))
	if text := shown(&c); len(text) > 400_000 || !strings.HasPrefix(text, "长长") {
		t.Errorf("%d bytes", len(text))
	}
}
