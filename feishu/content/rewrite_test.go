package content_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"feishu-relay/feishu/content"
	"feishu-relay/relay"
)

var nameRE = regexp.MustCompile(`@(Bob|小明)`)

// whoIs finds Bob and 小明 wherever they are.
func whoIs(text string) (found []content.Named) {
	for _, at := range nameRE.FindAllStringSubmatchIndex(text, -1) {
		name := text[at[2]:at[3]]
		found = append(found, content.Named{From: at[0], To: at[1], Name: name,
			OpenID: relay.OpenID(map[string]string{"Bob": "ou_bob", "小明": "ou_ming"}[name])})
	}
	return found
}

func TestRewrite(t *testing.T) {
	for _, c := range []struct{ name, msgType, in, want string }{
		{"text", "text", `{"x":1.50, "text":"@Bob, <b>look</b> at 请@小明看"}`,
			`{"x":1.50, "text":"<at user_id=\"ou_bob\">Bob</at>, <b>look</b> at 请<at user_id=\"ou_ming\">小明</at>看"}`},
		{"text, escaped", "text", `{"text":"\u0040Bob\n"}`, `{"text":"<at user_id=\"ou_bob\">Bob</at>\n"}`},
		{"text with links", "text", `{"text":"[@Bob](https://x/(a)) <a href='x'>@Bob</a> ![@Bob](img_1) @Bob"}`,
			`{"text":"[@Bob](https://x/(a)) <a href='x'>@Bob</a> ![@Bob](img_1) <at user_id=\"ou_bob\">Bob</at>"}`},
		{"text without names", "text", `{"text":"hello"}`, ""},
		{"text that is none", "text", `{"text":["@Bob"]}`, ""},
		{"no JSON", "text", `@Bob`, ""},
		{"another type", "image", `{"text":"@Bob"}`, ""},

		{"post", "post", `{"zh_cn":{"title":"@Bob","content":[[{"tag":"text","text":"hi @Bob!","style":["bold"],"n":1.0},{"tag":"a","text":"@Bob","href":"x"}],[{"tag":"text","text":"@小明@Bob"}]]}}`,
			`{"zh_cn":{"title":"@Bob","content":[[{"tag":"text","text":"hi ","style":["bold"],"n":1.0},{"tag":"at","user_id":"ou_bob"},{"tag":"text","text":"!","style":["bold"],"n":1.0},{"tag":"a","text":"@Bob","href":"x"}],[{"tag":"at","user_id":"ou_ming"},{"tag":"at","user_id":"ou_bob"}]]}}`},
		{"post in two languages", "post", `{"zh_cn":{"content":[[{"tag":"text","text":"@Bob"}]]},"en_us":{"content":[[{"tag":"text","text":"@Bob"}]]}}`,
			`{"zh_cn":{"content":[[{"tag":"at","user_id":"ou_bob"}]]},"en_us":{"content":[[{"tag":"at","user_id":"ou_bob"}]]}}`},
		{"post in another language, with an empty paragraph", "post", `{"en_us":{"content":[]},"de_de":{"content":[[],[{"tag":"text","text":"@Bob"}]]}}`,
			`{"en_us":{"content":[]},"de_de":{"content":[[],[{"tag":"at","user_id":"ou_bob"}]]}}`},
		{"post of markdown", "post", `{"zh_cn":{"content":[[{"tag":"md","text":"**@Bob** [@Bob](x)"}]]}}`,
			`{"zh_cn":{"content":[[{"tag":"md","text":"**<at user_id=\"ou_bob\">Bob</at>** [@Bob](x)"}]]}}`},
		{"post of code", "post", `{"zh_cn":{"content":[[{"tag":"code_block","text":"@Bob"},{"tag":"text","text":"@Bob","style":["codeInline"]},{"tag":"at","user_id":"ou_x","user_name":"@Bob"}]]}}`, ""},
		{"post of odd nodes", "post", `{"content":[[1,null,[],{"tag":5},{"tag":"text","text":5}],"@Bob"],"zh_cn":null}`, ""},
		{"card", "interactive", `{"elements":[{"tag":"markdown","content":"@Bob hi"}]}`, ""},
		{"too deep", "text", `{"text":"@Bob","x":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, changed := content.Rewrite(c.msgType, c.in, whoIs)
			want := c.want
			if want == "" {
				want = c.in
			}
			if !sameJSON(got, want) || changed != (c.want != "") {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// sameJSON reports whether two texts are equal, or are the same JSON with equal spellings of numbers.
func sameJSON(a, b string) bool {
	var trees [2]any
	for i, text := range []string{a, b} {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if d.Decode(&trees[i]) != nil {
			return a == b
		}
	}
	return reflect.DeepEqual(trees[0], trees[1])
}

// What was written is read as mentions again.
func TestRewriteIsRead(t *testing.T) {
	for msgType, raw := range map[string]string{"text": `{"text":"@Bob hi"}`, "post": `{"zh_cn":{"content":[[{"tag":"text","text":"@Bob hi"}]]}}`} {
		out, _ := content.Rewrite(msgType, raw, whoIs)
		d := content.Parse(msgType, out, nil)
		if m := d.Mentions(); len(m) != 1 || m[0].OpenID != "ou_bob" {
			t.Errorf("%s: %s mentions %+v", msgType, out, m)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add("text", `{"text":"@Bob hi"}`)
	f.Add("post", `{"zh_cn":{"content":[[{"tag":"text","text":"a @Bob"},{"tag":"md","text":"@Bob"}]]}}`)
	f.Fuzz(func(t *testing.T, msgType, raw string) {
		if out, changed := content.Rewrite(msgType, raw, whoIs); changed && !json.Valid([]byte(out)) {
			t.Errorf("%q became %q", raw, out)
		}
	})
}
