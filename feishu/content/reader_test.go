package content_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu/content"
	"feishu-relay/relay"
)

func v2(elements ...string) string {
	return `{"schema":"2.0","body":{"elements":[` + strings.Join(elements, ",") + `]}}`
}

func md(text string) string {
	quoted, _ := json.Marshal(text)
	return `{"tag":"markdown","content":` + string(quoted) + `}`
}

func fold(title string, elements ...string) string {
	return fmt.Sprintf(`{"tag":"collapsible_panel","header":{"title":{"tag":"plain_text","content":%q}},"elements":[%s]}`, title,
		strings.Join(elements, ","))
}

const (
	button = `{"tag":"button","text":{"tag":"plain_text","content":"Approve"},"behaviors":[{"type":"open_url","default_url":"https://ci.example/7"}]}`
	reject = `{"tag":"button","text":{"tag":"plain_text","content":"Reject"}}`
	foot   = `{"tag":"note","elements":[{"tag":"plain_text","content":"foot"}]}`
	small  = `{"tag":"markdown","text_size":"notation","content":"small"}`
	image  = `{"tag":"img","img_key":"img_1"}`
	chart  = `{"tag":"chart","chart_spec":{"type":"bar","title":{"text":"Errors per day"},"data":{"values":[{"x":"Mon","y":4},{"x":"Tue","y":9}]}}}`
)

// What a reader of a card sees is its text, and nothing else is.
func TestCardIsWhatAReaderSees(t *testing.T) {
	for _, tt := range []struct{ name, card, want string }{
		{"thoughts beside an answer", v2(fold("Thinking", md("hmm <at id=ou_b></at>")), md("42")), "42"},
		{"a panel of another kind beside an answer", v2(md("42"), fold("Sources", md("a wiki"))), "42"},
		{"thoughts alone", v2(fold("思考过程（已完成·点击展开）", md("hmm"))), ""},
		{"thoughts below a title", `{"header":{"title":{"tag":"plain_text","content":"Agent"}},"elements":[` + fold("Reasoning", md("hmm")) + `]}`, ""},
		{"tools alone", v2(fold("工具调用 (3)", md("search(x)"))), ""},
		{"thoughts within another panel", v2(fold("Details", md("a"), fold("Thoughts", md("b")))), "Details\na"},
		{"a panel alone", v2(fold("Report", md("all is well"))), "Report\nall is well"},
		{"a panel alone names nobody", v2(fold("Report", md("@Ann <at id=ou_b>Bob</at> ＠Tom"))), "Report\n@\u2060Ann @\u2060Bob ＠\u2060Tom"},
		{"panels alone, one with thoughts", v2(fold("Thinking", md("hmm")), fold("Report", md("all is well"))), "Report\nall is well"},
		{"a panel with a footer", v2(fold("Report", md("all is well")), `{"tag":"hr"}`, foot), "Report\nall is well"},
		{"a tooltip is not a tool", v2(fold("Toolbox of the week", md("a saw"))), "Toolbox of the week\na saw"},
		{"thoughts and a button", v2(fold("Thinking", md("hmm")), button), "[Approve] (https://ci.example/7)"},

		{"buttons", v2(button, reject), "[Approve] (https://ci.example/7) [Reject]"},
		{"buttons of schema 1", `{"elements":[{"tag":"div","text":{"tag":"lark_md","content":"Please review"},"extra":` + reject + `},{"tag":"action","actions":[{"tag":"button","text":{"tag":"plain_text","content":"Open"},"url":"https://a.example"},{"tag":"button","text":{"tag":"plain_text","content":"On a phone"},"multi_url":{"url":"https://b.example"}}]}]}`,
			"Please review\n[Reject] [Open] (https://a.example) [On a phone] (https://b.example)"},
		{"a received button", `{"elements":[[{"tag":"text","text":"ok?"},{"tag":"button","text":"Yes"}]]}`, "ok?\n[Yes]"},
		{"a button without a label", v2(`{"tag":"button"}`), "[卡片]"},
		{"nobody is named on a button", v2(`{"tag":"button","text":{"tag":"plain_text","content":"Ask @Ann"}}`), "[Ask @\u2060Ann]"},
		{"a form", v2(`{"tag":"form","elements":[{"tag":"input","label":{"tag":"plain_text","content":"Reason"},"placeholder":{"tag":"plain_text","content":"why?"}},{"tag":"select_static","placeholder":{"tag":"plain_text","content":"Host"},"options":[{"text":{"tag":"plain_text","content":"db1"},"value":"1"},{"text":{"tag":"plain_text","content":"db2"},"value":"2"}]},{"tag":"checker","text":{"tag":"plain_text","content":"I am sure"}}]}`),
			"[Reason: why?] [Host: db1 / db2] [I am sure]"},

		{"a chart", v2(chart), "Errors per day\nMon | 4\nTue | 9"},
		{"a chart of series", v2(`{"tag":"chart","chart_spec":{"data":[{"id":"a","values":[{"x":1}]},{"values":[{"x":2}]}]}}`), "1\n2"},
		{"a chart without words", v2(`{"tag":"chart","chart_spec":{"type":"pie"}}`), "[卡片]"},
		{"an unknown element", v2(`{"tag":"hologram"}`), "[卡片]"},
		{"an unknown element with text", v2(`{"tag":"tabs","elements":[` + md("a") + `]}`), "a"},
		{"only an image", v2(image), "[图片]"},
		{"a long table", v2(`{"tag":"table","columns":[{"name":"a"}],"rows":[` + strings.Repeat(`{"a":1},`, 150) + `{"a":2}]}`), "a" + strings.Repeat("\n1", 100) + "\n…"},

		{"a template", `{"type":"template","data":{"template_variable":{"summary":"3 alerts are open","owner":"ou_x","count":3,"rows":[{"name":"a","picture":"img_v3_1"},{"name":"b"}],"TITLE":"Nightly"}}}`,
			"Nightly\na\nb\n3 alerts are open"},
		{"a template without words", `{"type":"template","data":{"template_variable":{"count":3}}}`, "[卡片]"},

		{"a note above the text", v2(foot, md("a")), "foot\na"},
		{"small print above the text", v2(md("a"), small, md("b")), "a\nsmall\nb"},
		{"small print at the end", v2(md("a"), `{"tag":"hr"}`, small, foot), "a"},
		{"small print above buttons", v2(md("a"), small, button), "a\n[Approve] (https://ci.example/7)"},
		{"nothing yet", v2(md(""), `{"tag":"hr","element_id":"hr"}`, `{"tag":"markdown","element_id":"note","content":"Agent: x"}`), ""},
		{"a broken copy of the sender's card", `{"elements":[[{"tag":"text","text":"a"}]],"user_dsl":"{"}`, "a"},
		{"code", `{"elements":[[{"tag":"text","text":"see"},{"tag":"code_block","language":"go","text":"x()"}]]}`, "see\n```go\nx()\n```"},
		{"columns", v2(`{"tag":"column_set","columns":[{"tag":"column","elements":[` + md("1") + `,` + image + `]},{"tag":"column","elements":[` + md("2") + `]}]}`), "1\n2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(text("interactive", tt.card, nil), tt.want); diff != "" {
				t.Errorf("text (-got +want):\n%s", diff)
			}
		})
	}
}

func TestMentionsThatCount(t *testing.T) {
	d := content.Parse("interactive", v2(fold("Thinking", md("<at id=ou_1></at>")), md("<at id=ou_2></at>"), button,
		`{"tag":"button","text":{"tag":"plain_text","content":"<at id=ou_3></at>"}}`, `{"tag":"hr"}`,
		`{"tag":"markdown","text_size":"notation","content":"<at id=ou_4></at>"}`), nil)
	if diff := cmp.Diff(d.Mentions(), []content.Mention{{OpenID: "ou_2"}}); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(d.Parts(), []string{"<at id=ou_2></at>"}); diff != "" {
		t.Error(diff)
	}
	alone := content.Parse("interactive", v2(fold("Report", md("<at id=ou_1></at>"))), nil)
	if alone.Mentions() != nil || alone.Parts() != nil {
		t.Errorf("a panel mentions %v %q", alone.Mentions(), alone.Parts())
	}
}

func TestOtherContents(t *testing.T) {
	for _, tt := range []struct{ name, msgType, raw, want string }{
		{"what was said in a voice message", "audio", `{"file_key":"f","duration":2000,"speech_to_text":"call\nme"}`, "[语音] call me"},
		{"its recognition", "audio", `{"file_key":"f","recognition":"call me"}`, "[语音] call me"},
		{"the name of a video", "media", `{"file_key":"f","file_name":"a.mp4"}`, "[视频] a.mp4"},
		{"files in the flat form of a post", "post", `{"content":[[{"tag":"img","image_key":"img_1"}]],"content_v2":[[{"tag":"md","text":"a"}]]}`, "a"},
	} {
		if got := text(tt.msgType, tt.raw, nil); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := keys("post", `{"content":[[{"tag":"img","image_key":"img_1"}]],"content_v2":[[{"tag":"md","text":"a"}]]}`); len(got) != 1 {
		t.Errorf("keys %q", got)
	}
}

func TestSum(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		same       bool
	}{
		{"a clock and an elapsed time", v2(md("Build 7 is running on ci-3"), md("updated 12:00 · 已用时 3s")), v2(md("Build 7 is running on ci-3"), md("updated 12:01 · 已用时 63s")), true},
		{"a bare clock", v2(md("Build"), md("⏱ 12:00:07")), v2(md("Build"), md("⏱ 12:01:09")), true},
		{"a bare time", v2(md("Build"), md("(3.2s)")), v2(md("Build"), md("(14s)")), true},
		{"a counter", v2(md("Processed 3 of 10 files")), v2(md("Processed 4 of 10 files")), true},
		{"steps in Chinese", v2(md("进度：第 3 步 / 共 9 步")), v2(md("进度：第 4 步 / 共 9 步")), true},
		{"a spinner", v2(md("⠋ Deploying")), v2(md("⠙ Deploying")), true},
		{"a bar", v2(md("progress ███░░ 60%")), v2(md("progress ████░ 80%")), true},
		{"a footer", v2(md("a"), foot), v2(md("a")), true},
		{"thoughts", v2(fold("Thinking", md("a")), md("x")), v2(fold("Done thinking", md("b")), md("x")), true},
		{"a state", v2(md("Build 7 is running")), v2(md("Build 7 failed")), false},
		{"a number in an answer", v2(md("The answer is 41.")), v2(md("The answer is 42.")), false},
		{"an answer that is a number", v2(md("41")), v2(md("42")), false},
		{"a number beside a step", v2(md("Step 2: open port 80")), v2(md("Step 2: open port 8080")), false},
		{"a step", v2(md("Step 2: open port 80")), v2(md("Step 3: open port 80")), true},
		{"a price", v2(md("价格更新为 500")), v2(md("价格更新为 900")), false},
		{"tokens", v2(md("tokens used: 1,204 · took 1m 5s")), v2(md("tokens used: 1,300 · took 2m 7s")), true},
		{"the time of a meeting", v2(md("We meet at 12:30")), v2(md("We meet at 13:30")), false},
		{"a mention", v2(md("look")), v2(md("look <at id=ou_b></at>")), false},
		{"a button", v2(md("deploy?")), v2(md("deploy?"), button), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, b := content.Parse("interactive", tt.a, nil), content.Parse("interactive", tt.b, nil)
			if (a.Sum() == b.Sum()) != tt.same {
				t.Errorf("same: %v", !tt.same)
			}
		})
	}
	if content.Parse("text", `{"text":"updated 12:00"}`, nil).Sum() == content.Parse("text", `{"text":"updated 12:01"}`, nil).Sum() {
		t.Error("in a text each character counts")
	}
}

func TestPlaceholderBesideAButton(t *testing.T) {
	stop := `{"tag":"button","text":{"tag":"plain_text","content":"停止"}}`
	for card, want := range map[string]bool{
		v2(md("Thinking…"), stop): true, v2(fold("Thinking", md("hmm"))): true, v2(md("done"), stop): false, v2(button): false,
	} {
		if d := content.Parse("interactive", card, nil); d.Placeholder() != want {
			t.Errorf("%s: %v", card, !want)
		}
	}
}

var update = flag.Bool("update", false, "write the golden file")

// golden is a content as tests, the simulator and frameworks send it, with what is read from it.
type golden struct {
	Type     string            `json:"type"`
	Content  string            `json:"content"`
	Names    []content.Mention `json:"names,omitempty"`
	Text     string            `json:"text"`
	Mentions []string          `json:"mentions,omitempty"`
	Parts    []string          `json:"parts,omitempty"`
	Keys     []string          `json:"keys,omitempty"`
	Waits    bool              `json:"waits,omitempty"`
}

func TestGolden(t *testing.T) {
	path := filepath.Join("testdata", "contents.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		var was golden
		if err := json.Unmarshal([]byte(line), &was); err != nil {
			t.Fatal(err)
		}
		d := content.Parse(was.Type, was.Content, was.Names)
		now := golden{Type: was.Type, Content: was.Content, Names: was.Names, Text: d.Text(), Parts: d.Parts(), Keys: d.Keys(), Waits: d.Placeholder()}
		for _, m := range d.Mentions() {
			now.Mentions = append(now.Mentions, m.IDs()[0])
		}
		if diff := cmp.Diff(was, now); diff != "" && !*update {
			t.Errorf("%s %s (-was +now):\n%s", was.Type, was.Content, diff)
		}
		encoded, err := relay.Marshal(now)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(encoded, '\n'))
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, msgType := range []string{"text", "post", "interactive", "file", "", "x"} {
		f.Add(msgType, `{"text":"@_user_1 <at user_id=\"ou_1\">x</at> @_all"}`, "Tom", "@_user_1")
		f.Add(msgType, `{"zh_cn":{"title":"t","content":[[{"tag":"at","user_id":"@_user_1"},{"tag":"code_block","text":"x"}]]}}`, "", "ou_1")
		f.Add(msgType, v2(md("a"), fold("Thinking", md("b")), button, chart, image, foot, `{"tag":"hr"}`), "@", "<at")
		f.Add(msgType, `{"type":"template","data":{"template_variable":{"a":["b",{"tag":"table","columns":[{"name":"x"}],"rows":[{"x":[1,true,{"text":"y"}]}]}]}}}`, "", "")
	}
	f.Fuzz(func(t *testing.T, msgType, raw, name, key string) {
		if len(raw) > 1<<16 {
			t.Skip()
		}
		names := []content.Mention{{Key: key, OpenID: relay.OpenID(key), Name: name}}
		d := content.Parse(msgType, raw, names)
		all := d.Text()
		if d.Sum() != content.Parse(msgType, raw, names).Sum() {
			t.Errorf("%q is not the same as itself", raw)
		}
		for _, m := range d.Mentions() {
			if len(m.IDs()) == 0 {
				t.Errorf("%q mentions nobody", raw)
			}
		}
		if len(d.Files()) > len(d.Keys()) || len(d.Parts()) > len(d.Blocks) {
			t.Errorf("%q: %+v", raw, d)
		}
		if utf8.ValidString(raw) && utf8.ValidString(name) && utf8.ValidString(msgType) && !utf8.ValidString(all) {
			t.Errorf("%q became %q", raw, all)
		}
		content.WithNames(all, names)
		d.Placeholder()
	})
}
