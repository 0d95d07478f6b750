package mention_test

import (
	"encoding/json"
	"strings"
	"testing"

	"feishu-relay/mention"
)

func TestFindInContent(t *testing.T) {
	const receivedCard = `{"title":null,"elements":[[{"tag":"text","text":"@Ann please upgrade"}]],"user_dsl":` +
		`"{\"schema\":\"2.0\",\"body\":{\"elements\":[{\"tag\":\"markdown\",\"content\":\"<at id=xx mention_key=@_user_1></at> 看\"}]}}"}`
	key := []mention.Ref{{Key: "@_user_1", Name: "BotB", OpenID: "ou_b"}}
	for _, tt := range []struct {
		name, msgType, content string
		refs                   []mention.Ref
		want                   string
	}{
		{"text", "text", `{"text":"@_user_1 hi"}`, key, "agent_b"},
		{"text as it is sent", "text", `{"text":"<at user_id=\"ou_b\">BotB</at> hi"}`, nil, "agent_b"},
		{"text without a type", "", ` {"text":"@Ann\n> @BotB"}`, nil, "ann"},
		{"text that is JSON itself", "text", `{"note":"@Ann"}`, nil, "ann"},
		{"text in a post's form is text", "text", `{"content":[[{"tag":"at","user_id":"ou_b"}]]}`, nil, ""},
		{"plain text with a post's type", "post", "@Ann hi", nil, "ann"},
		{"a broken post", "post", `{"content":[[{"tag":"at","user_name":"@BotB `, nil, "agent_b"},
		{"a file's name", "file", `{"file_key":"x","file_name":"@Ann.txt @Ann"}`, nil, ""},

		{"post at by id", "post", `{"content":[[{"tag":"at","user_id":"ou_b"}]]}`, nil, "agent_b"},
		{"post at by key", "post", `{"title":"","content":[[{"tag":"at","user_id":"@_user_1","user_name":""}]]}`, key, "agent_b"},
		{"post at by name", "post", `{"content":[[{"tag":"at","user_id":"ou_x","user_name":"BotB"}]]}`, nil, "agent_b"},
		{"post at with an odd name", "post", `{"content":[[{"tag":"at","user_id":"ou_x","user_name":"</at>@Ann\">"}]]}`, nil, ""},
		{"post at with a name over two lines", "post", `{"content":[[{"tag":"at","user_id":"ou_x","user_name":"Code\n Bot"}]]}`, nil, "coder"},
		{"post at with an endless name", "post", `{"content":[[{"tag":"at","user_id":"ou_b","user_name":"` + strings.Repeat("x", 600) + `"}]]}`, nil, "agent_b"},
		{"post at with an endless id", "post", `{"content":[[{"tag":"at","user_id":"` + strings.Repeat("x", 1100) + `","user_name":"BotB"}]]}`, nil, ""},
		{"post at everybody", "post", `{"content":[[{"tag":"at","user_id":"all"}]]}`, nil, all},
		{"post with a locale", "post", `{"zh_cn":{"title":"t","content":[[{"tag":"text","text":"请 "},{"tag":"at","user_id":"ou_ann"}]]}}`, nil, "ann"},
		{"post with a wrapper", "post", `{"post":{"en_us":{"content":[[{"tag":"text","text":"@Ann"}]]}}}`, nil, "ann"},
		{"post in another language", "post", `{"ja_jp":{"content":[[{"tag":"text","text":"@Ann"}]]}}`, nil, "ann"},
		{"post without a type", "", `{"title":"x","content":[[{"tag":"text","text":"@Ann"}]]}`, nil, "ann"},
		{"post title", "post", `{"title":"@Ann","content":[]}`, nil, "ann"},
		{"post name over two nodes", "post", `{"content":[[{"tag":"text","text":"@Bot"},{"tag":"text","text":"B hi"}]]}`, nil, "agent_b"},
		{"post name not over two lines", "post", `{"content":[[{"tag":"text","text":"@Code "}],[{"tag":"text","text":"Bot"}]]}`, nil, ""},
		{"post link text", "post", `{"content":[[{"tag":"a","text":"@Ann","href":"https://example.com/@BotB"}]]}`, nil, "ann"},
		{"post md", "post", `{"zh_cn":{"content":[[{"tag":"md","text":"> @Ann\n\n<at user_id=\"ou_b\">B</at>"}]]}}`, nil, "agent_b"},
		{"post md with an open fence", "post", "{\"content\":[[{\"tag\":\"md\",\"text\":\"```\\n@Ann\"}],[{\"tag\":\"text\",\"text\":\"@BotB\"}]]}", nil, "agent_b"},
		{"post code block", "post", `{"content":[[{"tag":"code_block","language":"go","text":"@Ann"}]]}`, nil, ""},
		{"post code style", "post", `{"content":[[{"tag":"text","text":"@Ann","style":["codeInline"]},{"tag":"text","text":" @BotB","style":["bold"]}]]}`, nil, "agent_b"},
		{"post quote", "post", `{"content":[[{"tag":"text","text":"> "},{"tag":"at","user_id":"ou_ann"}],[{"tag":"text","text":"@BotB"}]]}`, nil, "agent_b"},
		{"post of odd nodes", "post", `{"content":[[1,null,{"tag":7,"text":[]},[[]],{"tag":"at","user_id":{"a":1}},{"tag":"text","text":"@Ann"}]]}`, nil, "ann"},

		{"card markdown", "interactive", `{"elements":[{"tag":"markdown","content":"<at id=ou_b></at> hi"}]}`, nil, "agent_b"},
		{"card lark_md", "interactive", `{"elements":[{"tag":"div","text":{"tag":"lark_md","content":"@Ann"}}]}`, nil, "ann"},
		{"card fields", "interactive", `{"elements":[{"tag":"div","fields":[{"is_short":true,"text":{"tag":"lark_md","content":"@Ann"}}]}]}`, nil, "ann"},
		{"card header", "interactive", `{"header":{"title":{"tag":"plain_text","content":"@Ann"}},"elements":[]}`, nil, "ann"},
		{"card note", "interactive", `{"elements":[{"tag":"note","elements":[{"tag":"lark_md","content":"@Ann"}]},{"tag":"markdown","content":"@BotB"}]}`, nil, "ann agent_b"},
		{"card note at the end", "interactive", `{"elements":[{"tag":"markdown","content":"@BotB"},{"tag":"note","elements":[{"tag":"lark_md","content":"@Ann"}]}]}`, nil, "agent_b"},
		{"card note of schema 2", "interactive", `{"body":{"elements":[{"tag":"markdown","text_size":"notation","content":"@Ann"}]}}`, nil, ""},
		{"card button", "interactive", `{"elements":[{"tag":"action","actions":[{"tag":"button","text":{"tag":"plain_text","content":"@Ann"}}]},{"tag":"button","text":{"tag":"plain_text","content":"@Ann"}}]}`, nil, ""},
		{"card schema 2", "interactive", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"@Ann"}]}}`, nil, "ann"},
		{"card columns", "interactive", `{"body":{"elements":[{"tag":"column_set","columns":[{"tag":"column","elements":[{"tag":"markdown","content":"@Ann"}]},{"tag":"column","elements":[{"tag":"markdown","content":"@BotB"}]}]}]}}`, nil, "ann agent_b"},
		{"card panel", "interactive", `{"body":{"elements":[{"tag":"collapsible_panel","header":{"title":{"tag":"plain_text","content":"@BotB"}},"elements":[{"tag":"markdown","content":"@Ann"}]}]}}`, nil, ""},
		{"card at", "interactive", `{"elements":[[{"tag":"text","text":"hi "},{"tag":"at","user_id":"ou_b","user_name":""}]]}`, nil, "agent_b"},
		{"card at with id", "interactive", `{"elements":[{"tag":"at","id":"ou_b"}]}`, nil, "agent_b"},
		{"card at with ids", "interactive", `{"elements":[{"tag":"at","ids":["ou_b","ou_ann",3]}]}`, nil, "agent_b ann"},
		{"card at with a key", "interactive", `{"elements":[{"tag":"at","id":"zz","mention_key":"@_user_1"}]}`, key, "agent_b"},
		{"card languages", "interactive", `{"i18n_elements":{"zh_cn":[{"tag":"markdown","content":"@Ann"}],"en_us":[{"tag":"markdown","content":"@BotB"}]}}`, nil, "ann"},
		{"card as received", "interactive", receivedCard, key, "agent_b"},
		{"card with a broken copy", "interactive", `{"elements":[[{"tag":"text","text":"@Ann"}]],"user_dsl":"{"}`, nil, "ann"},
		{"card without a type", "", receivedCard, key, "agent_b"},
		{"card by id", "interactive", `{"type":"card","data":{"card_id":"@Ann"}}`, nil, ""},
		{"card by id with records", "interactive", `{"type":"card","data":{"card_id":"7"}}`, []mention.Ref{{AgentName: "ann"}}, "ann"},
		{"card with an open fence", "interactive", "{\"elements\":[{\"tag\":\"markdown\",\"content\":\"```\\n@Ann\"},{\"tag\":\"markdown\",\"content\":\"@BotB\"}]}", nil, "agent_b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := flat(team().Find(mention.Text{Content: tt.content, MsgType: tt.msgType, Refs: tt.refs}))
			if got != tt.want {
				t.Errorf("Find(%s) = %q, want %q", tt.content, got, tt.want)
			}
		})
	}
}

func TestFindIsBounded(t *testing.T) {
	nested := func(levels int) string {
		return `{"body":{"elements":` + strings.Repeat(`[`, levels) + `{"tag":"markdown","content":"@Ann"}` +
			strings.Repeat(`]`, levels) + `}}`
	}
	pad := strings.Repeat("x ", mention.MaxContent/2)
	big, err := json.Marshal(map[string]string{"text": pad + "@Ann"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, content, want string }{
		{"a few levels", nested(8), "ann"},
		{"too many levels are plain text", nested(33), "ann"},
		{"very many levels", nested(20_000), "ann"},
		{"within the length", pad[6:] + " @Ann", "ann"},
		{"beyond the length", pad + "@Ann", ""},
		{"cut in a name", pad[4:] + "@Anna", ""},
		{"cut in a letter", pad[6:] + "@小明", ""},
		{"JSON beyond the length", string(big), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := flat(team().Find(mention.Text{Content: tt.content})); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
