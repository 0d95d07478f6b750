package mention_test

import (
	"encoding/json"
	"strings"
	"testing"

	"feishu-relay/mention"
)

// Which parts of a content count is the matter of package content.
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
		{"post name over two nodes", "post", `{"content":[[{"tag":"text","text":"@Bot"},{"tag":"text","text":"B hi"}]]}`, nil, "agent_b"},
		{"post name not over two lines", "post", `{"content":[[{"tag":"text","text":"@Code "}],[{"tag":"text","text":"Bot"}]]}`, nil, ""},
		{"post md with an open fence", "post", "{\"content\":[[{\"tag\":\"md\",\"text\":\"```\\n@Ann\"}],[{\"tag\":\"text\",\"text\":\"@BotB\"}]]}", nil, "agent_b"},

		{"card at with ids", "interactive", `{"elements":[{"tag":"at","ids":["ou_b","ou_ann",3]}]}`, nil, "agent_b ann"},
		{"card at with a key", "interactive", `{"elements":[{"tag":"at","id":"zz","mention_key":"@_user_1"}]}`, key, "agent_b"},
		{"card as received", "interactive", receivedCard, key, "agent_b"},
		{"card without a type", "", receivedCard, key, "agent_b"},
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
