package mention_test

import (
	"strings"
	"testing"

	"feishu-relay/mention"
)

func TestPlain(t *testing.T) {
	d := mention.NewDirectory([]mention.Agent{{ID: "a", Names: []string{"Ann"}}, {ID: "b", Names: []string{"小明"}, IDs: []string{"ou_b"}},
		{ID: "c", Names: []string{"Twin"}}, {ID: "d", Names: []string{"Twin"}}, {ID: "e", Names: []string{"Eve Lee", "@_user_7"}}})
	for _, tt := range []struct{ text, want string }{
		{"@Ann and @ann, 请＠小明看", "@Ann=a @ann=a ＠小明=b"},
		{"@Anna @all @Twin @_user_1 ann@ann.example", ""},
		{"`@Ann` <at user_id=\"ou_b\">@Ann</at> https://x.example/@Ann\n```\n@Ann\n```\n> @Ann\n@小明", "@小明=b"},
		{`{"text":"@Ann"}`, "@Ann=a"},
		{"", ""},
		{"@_user_7 @_user_70 @EVE  LEE", "@_user_7=e @EVE  LEE=e"},
	} {
		var got []string
		for _, h := range d.Plain(tt.text) {
			got = append(got, tt.text[h.From:h.To]+"="+h.Agent)
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: got %s, want %s", tt.text, s, tt.want)
		}
	}
}

func TestPlainTellsTheDirectorysName(t *testing.T) {
	d := mention.NewDirectory([]mention.Agent{{ID: "e", Names: []string{"Eve Lee", "@_user_7"}}})
	for text, want := range map[string]string{"＠eve lee": "Eve Lee", "@_user_7": "_user_7", "@E": "e"} {
		if hits := d.Plain(text); len(hits) != 1 || hits[0].Name != want {
			t.Errorf("%s: got %v, want %s", text, hits, want)
		}
	}
}
