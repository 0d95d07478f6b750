package content_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu/content"
)

func TestCardText(t *testing.T) {
	v2 := func(elements string) string { return `{"schema":"2.0","body":{"elements":[` + elements + `]}}` }
	md := func(text string) string {
		quoted, _ := json.Marshal(text)
		return `{"tag":"markdown","content":` + string(quoted) + `}`
	}
	const footer = "<font color='grey'>Agent: main | Model: x/y</font>"
	for _, tt := range []struct{ name, card, want string }{
		{"header, then the body", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"b"}]},"header":{"title":{"tag":"plain_text","content":"T"},"subtitle":{"tag":"plain_text","content":"S"},"template":"blue"}}`, "T\nS\nb"},
		{"schema 1", `{"config":{"update_multi":true},"header":{"title":{"tag":"plain_text","content":"T"}},"elements":[{"tag":"markdown","content":"**a**"},{"tag":"div","text":{"tag":"lark_md","content":"b"},"fields":[{"is_short":true,"text":{"tag":"lark_md","content":"c"}}]},{"tag":"hr"},{"tag":"div","text":{"tag":"plain_text","content":"d"}},{"tag":"note","elements":[{"tag":"plain_text","content":"foot"}]},{"tag":"action","actions":[{"tag":"button","text":{"tag":"plain_text","content":"Press"}}]}]}`, "T\n**a**\nb\nc\n---\nd\n[Press]"},
		{"translations of schema 1", `{"i18n_header":{"en_us":{"title":{"tag":"plain_text","content":"T"}}},"i18n_elements":{"en_us":[{"tag":"markdown","content":"en"}],"zh_cn":[{"tag":"markdown","content":"中"}]}}`, "T\n中"},
		{"translations of schema 2", v2(`{"tag":"markdown","i18n_content":{"en_us":"en","zh_cn":"中"}},{"tag":"markdown","i18n_content":{"fr_fr":"fr","de_de":"de"}}`), "中\nde"},
		{"containers in document order", v2(`{"tag":"column_set","columns":[{"tag":"column","elements":[` + md("1") + `]},{"tag":"column","elements":[` + md("2") + `,{"tag":"form","elements":[` + md("3") + `,{"tag":"input"}]}]}]},{"tag":"collapsible_panel","header":{"title":{"tag":"plain_text","content":"4"}},"elements":[` + md("5") + `]},{"tag":"interactive_container","elements":[` + md("6") + `]}`), "1\n2\n3\n6"},
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
			if diff := cmp.Diff(text("interactive", tt.card, nil), tt.want); diff != "" {
				t.Errorf("text (-got +want):\n%s", diff)
			}
		})
	}
}

func TestCardMentions(t *testing.T) {
	c := content.Parse("interactive", `{"schema":"2.0","body":{"elements":[
		{"tag":"markdown","content":"<at id=ou_1></at> <at ids=ou_2,cli_3></at> <at user_id=\"ou_4\">Ann</at> <at id=all></at> <at email=a@b></at> <at id=ou_1></at> `+"`<at id=ou_code></at>` ```\\n<at id=ou_block></at>\\n```"+`"},
		{"tag":"person","user_id":"ou_5"},{"tag":"person_list","persons":[{"id":"on_6"}]},
		{"tag":"markdown","element_id":"note","content":"<at id=ou_foot></at>"}]}}`, nil)
	want := []content.Mention{{OpenID: "ou_1"}, {OpenID: "ou_2"}, {AppID: "cli_3", Type: "bot"}, {OpenID: "ou_4", Name: "Ann"}, {OpenID: "ou_5"}, {UnionID: "on_6"}}
	if diff := cmp.Diff(c.Mentions(), want); diff != "" {
		t.Errorf("mentions (-got +want):\n%s", diff)
	}
	named := content.WithNames(c.Text(), []content.Mention{{OpenID: "ou_1", Name: "Bot1"}})
	if !strings.HasPrefix(named, "@Bot1 <at ids=ou_2,cli_3></at> @Ann @所有人 @a@b @Bot1 ") {
		t.Errorf("named %q", named)
	}
	legacy := content.Parse("interactive", `{"title":"","elements":[[{"tag":"at","user_id":"@_user_1","user_name":"x"},{"tag":"at","user_id":"ou_1","user_name":"y"}]]}`, nil)
	if diff := cmp.Diff(legacy.Mentions(), []content.Mention{{OpenID: "ou_1", Name: "y"}}); diff != "" {
		t.Errorf("legacy (-got +want):\n%s", diff)
	}
}
