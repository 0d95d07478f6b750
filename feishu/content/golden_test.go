package content_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"feishu-relay/feishu/content"
)

// tomAndBot are the mentions of each content in testdata.
var tomAndBot = []content.Mention{
	{Key: "@_user_1", OpenID: "ou_tom", UserID: "tom1", Name: "Tom"},
	{Key: "@_user_12", OpenID: "ou_b", AppID: "cli_b", UnionID: "on_b", Name: "小明", Type: "bot"},
	{Key: "@_user_3", OpenID: "ou_nameless"},
}

// Each content of testdata, by its message type, and below it what is read in it: its text behind bars, then the rest.
// -rewrite writes that anew.
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata/contents", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return shown(content.Parse(strings.TrimPrefix(d.Cmd, "-"), d.Input, tomAndBot))
		})
	})
}

// shown is what a Doc says.
func shown(d content.Doc) string {
	var lines []string
	say := func(words ...string) {
		lines = append(lines, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
	}
	text := d.Text()
	for line := range strings.Lines(text) {
		say("|", strings.TrimSuffix(strings.ReplaceAll(line, "\u2060", "<U+2060>"), "\n"))
	}
	for _, m := range d.Mentions() {
		say(append([]string{"mentions"}, append(m.IDs(), m.Key, m.Name)...)...)
	}
	if parts := d.Parts(); strings.Join(parts, "\n") != text {
		say("names count in", fmt.Sprintf("%q", parts))
	}
	for _, f := range d.Files() {
		say(f.Type, f.Key, f.Name)
	}
	if keys := d.Keys(); len(keys) > len(d.Files()) {
		say("keys", fmt.Sprintf("%q", keys))
	}
	if d.Streaming {
		say("streaming")
	}
	if d.Placeholder() {
		say("no turn")
	}
	return strings.Join(lines, "\n")
}
