package feishu_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

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

// calls are those of CardKit, by their names in testdata.
var calls = map[string]string{"content": "PUT /elements/{element}/content", "replace": "PUT /elements/{element}",
	"patch": "PATCH /elements/{element}", "add": "POST /elements", "delete": "DELETE /elements/{element}",
	"batch": "POST /batch_update", "settings": "PATCH /settings", "card": "PUT "}

func TestCardEdits(t *testing.T) {
	datadriven.RunTest(t, "testdata/cards/edits.txt", func(t *testing.T, d *datadriven.TestData) string {
		c := newCard(t, threeElements)
		element := ""
		d.MaybeScanArgs(t, "element", &element)
		err := c.Apply(calls[d.Cmd], element, []byte(d.Input))
		roundTrip(t, c)
		if err != nil {
			return "error\n" + shown(c)
		}
		return shown(c)
	})
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
