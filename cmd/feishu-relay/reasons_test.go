package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	diffs "github.com/google/go-cmp/cmp"

	"feishu-relay/outcome"
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
	var reasons []relay.Reason
	for _, a := range outcome.Advices {
		reasons = append(reasons, a.Reason)
		if a.Means.ZH == "" || a.Do.ZH == "" {
			t.Errorf("%s is not explained in Chinese", a.Reason)
		}
	}
	if slices.Sort(reasons); !slices.Equal(reasons, slices.Sorted(slices.Values(relay.Reasons()))) {
		t.Errorf("there is advice on %v", reasons)
	}
	for _, table := range reasonTables {
		var rows strings.Builder
		rows.WriteString("\n" + strings.Repeat("|---", strings.Count(table.head, "|")-1) + "|\n")
		for _, a := range outcome.Advices {
			fmt.Fprintf(&rows, "| `%s` | %s | %s", a.Reason, a.Means.In(table.chinese), a.Do.In(table.chinese))
			if more := a.More.In(table.chinese); more != "" {
				format := outcome.Text{EN: "; [more](%s)", ZH: "；[详见](%s)"}.In(table.chinese)
				fmt.Fprintf(&rows, format, cmp.Or(strings.TrimPrefix(more, filepath.Base(table.page)), more))
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
