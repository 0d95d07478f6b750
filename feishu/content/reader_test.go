package content_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

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
	foot   = `{"tag":"note","elements":[{"tag":"plain_text","content":"foot"}]}`
	image  = `{"tag":"img","img_key":"img_1"}`
	chart  = `{"tag":"chart","chart_spec":{"type":"bar","title":{"text":"Errors per day"},"data":{"values":[{"x":"Mon","y":4},{"x":"Tue","y":9}]}}}`
)

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

func TestAnother(t *testing.T) {
	for _, tt := range []struct {
		before, text string
		another      bool
	}{
		{"Build running", "Build failed", true},
		{"构建成功", "构建失败", true},
		{"Let me", "Let me look: it is 42.", true},
		{"The port is 8080", "The port is 8081", true},
		{"look", "@BotB look", true},
		{"ha", "ha ha", true},
		{"deploy ❌", "deploy ✅", true},
		{"I can do it", "I can't do it", true},
		{"我去", "我不去", true},
		{"I meen tomorrow", "I mean tomorrow", true},
		{"it works", "It works!", false},
		{"updated 12:00", "updated 12:01", false},
		{"⠋ Deploying", "⠙ Deploying", false},
		{"Processed 3 of 10 files", "Processed 4 of 10 files", false},
		{"", "", false},
	} {
		if got := content.Another(tt.before, tt.text); got != tt.another {
			t.Errorf("%q, then %q: %v", tt.before, tt.text, got)
		}
	}
}

func TestBegins(t *testing.T) {
	for _, tt := range []struct {
		text, part string
		want       bool
	}{
		{"Let me look.\nIt is 42.", "let me **look**…", true},
		{"Let me look", "Let me lo", true},
		{"我来看看：四十二", "我来看", true},
		{"It is 42", "Let me", false},
		{"Let", "Let me", false},
		{"Let me", "…", false},
	} {
		if got := content.Begins(tt.text, tt.part); got != tt.want {
			t.Errorf("%q begins with %q: %v", tt.text, tt.part, got)
		}
	}
	if !content.Unfinished("Let me …\n") || !content.Unfinished("**so** ▌") || content.Unfinished("done.") {
		t.Error("an ellipsis or a cursor at the end shows that more is to come")
	}
	for text, want := range map[string]bool{"Let me": true, "I look:\n": true, "我来看": true, "**so": true, "": false,
		"Done.": false, "好的。": false, "It is 42": false, "```\nls\n```": false, "👍": false, "(see above)": false} {
		if content.BreaksOff(text) != want {
			t.Errorf("%q breaks off: %v", text, !want)
		}
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
