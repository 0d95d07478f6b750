package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	diffs "github.com/google/go-cmp/cmp"

	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

// reasonTables are the pages with a table of all reasons.
var reasonTables = []struct {
	page, head string
	chinese    bool
}{
	{"docs/troubleshooting.md", "| reason | meaning | what to do |", false},
	{"docs/troubleshooting.zh.md", "| 原因 | 含义 | 怎么办 |", true},
}

// The pages explain each reason in the words of `why`; -update writes the tables.
func TestStopReasonsAreThoseOfWhy(t *testing.T) {
	for _, table := range reasonTables {
		var rows strings.Builder
		rows.WriteString("\n" + strings.Repeat("|---", strings.Count(table.head, "|")-1) + "|\n")
		w, link := words.Words{Chinese: table.chinese}, map[bool]string{true: "；[详见](%s)", false: "; [more](%s)"}[table.chinese]
		for _, why := range relay.Reasons() {
			key := "reason/" + string(why)
			if !words.Has(key) || !words.Has(key+"/do") {
				t.Errorf("%s is not explained", why)
			}
			fmt.Fprintf(&rows, "| `%s` | %s | %s", why, w.Say(key), w.Say(key+"/do"))
			if words.Has(key + "/more") {
				more := w.Say(key + "/more")
				fmt.Fprintf(&rows, link, cmp.Or(strings.TrimPrefix(more, filepath.Base(table.page)), more))
			}
			rows.WriteString(" |\n")
		}
		text := read(t, table.page).text
		at := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(table.head) + "$((?:\n\\|.*)*\n)").FindStringSubmatchIndex(text)
		if at == nil {
			t.Errorf("%s has no table of reasons", table.page)
			continue
		}
		want := text[:at[2]] + rows.String() + text[at[3]:]
		if *update {
			if err := os.WriteFile(filepath.Join(root, table.page), []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if diff := diffs.Diff(want, text); diff != "" {
			t.Errorf("the table of %s, which -update writes (-want +got):\n%s", table.page, diff)
		}
	}
}
