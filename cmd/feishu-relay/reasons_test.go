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

var reasonRows = regexp.MustCompile("(?m)^\\| reason \\| meaning \\| what to do \\|\n\\|---\\|---\\|---\\|\n((?:\\| .*\n)+)")

// docs/troubleshooting.md says of each reason what `why` says, by -update.
func TestStopReasonsAreThoseOfWhy(t *testing.T) {
	var reasons []relay.Reason
	var rows strings.Builder
	for _, a := range outcome.Advices {
		reasons = append(reasons, a.Reason)
		do := a.Do.EN
		if a.More != "" {
			do += fmt.Sprintf("; [more](%s)", cmp.Or(strings.TrimPrefix(a.More, "troubleshooting.md"), a.More))
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", a.Reason, a.Means.EN, do)
		if a.Means.ZH == "" || a.Do.ZH == "" {
			t.Errorf("%s is not said in Chinese", a.Reason)
		}
	}
	if slices.Sort(reasons); !slices.Equal(reasons, slices.Sorted(slices.Values(relay.Reasons()))) {
		t.Errorf("there is advice on %v", reasons)
	}
	const name = "docs/troubleshooting.md"
	text := read(t, name).text
	at := reasonRows.FindStringSubmatchIndex(text)
	if at == nil {
		t.Fatal("there is no table of reasons")
	}
	want := text[:at[2]] + rows.String() + text[at[3]:]
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := diffs.Diff(want, text); diff != "" {
		t.Errorf("the table of %s, which -update writes (-want +got):\n%s", name, diff)
	}
}
