package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// variableRow is a row of a table of settings; a new one has only the name.
var variableRow = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|.*$")

// docs/configuration.md has each variable once, in a table of its choice, with the default and the description of the
// field's tags, which -update writes.
func TestVariablesAreInConfigurationPage(t *testing.T) {
	const name = "docs/configuration.md"
	known, text := variables(), read(t, name).text
	listed := map[string]int{}
	want := variableRow.ReplaceAllStringFunc(text, func(row string) string {
		variable := variableRow.FindStringSubmatch(row)[1]
		listed[variable]++
		i := slices.IndexFunc(known, func(s setting) bool { return s.name == variable })
		if i < 0 {
			t.Errorf("%s: %s is no variable; remove its row", name, variable)
			return row
		}
		return known[i].row()
	})
	for _, s := range known {
		if listed[s.name] != 1 {
			t.Errorf("%s has %d rows for %s; put `| `%s` |` into the table where it belongs, and run -update",
				name, listed[s.name], s.name, s.name)
		}
		if (s.def == "") == (s.unset == "") {
			t.Errorf("%s: one of the tags default and unset says what holds without the variable", s.name)
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("%s, whose tables -update writes (-want +got):\n%s", name, diff)
	}
}

func (s setting) row() string {
	initial := "`" + s.def + "`"
	if s.def == "" {
		initial = markdown(s.unset)
	}
	return fmt.Sprintf("| `%s` | %s | %s%s |", s.name, initial, markdown(s.desc), s.values())
}

// values says what the variable may be set to, where its default and its description do not.
func (s setting) values() string {
	if words := s.words(); words != nil {
		return " (" + choice(words) + ")"
	}
	if s.field.Type() == reflect.TypeFor[slog.Level]() {
		return " (" + choice([]string{"debug", "info", "warn", "error"}) + ")"
	}
	if from, to, ok := strings.Cut(s.tag.Get("range"), ".."); ok {
		return " (" + from + "–" + to + ")"
	}
	return ""
}

func choice(words []string) string {
	return "`" + strings.Join(words, "`, `") + "`"
}

var (
	// literal is what stands in a description as code: a path, a variable with its value, an address, a pattern.
	literal = regexp.MustCompile(`\$?[A-Z]+(?:_[A-Z]+)+(?:=\w+|[/\w.]+)?|\$?\b[A-Z]{5,}=\w+|\w+://(?:[\w.:/@[\]]*\w)?|\w*\*` +
		`|<\w+>:\w+|@\w+|(?:POST )?/(?:v1|webhook)/\w+|\bgpt-[\w-]+|\b\d+(?:\.\d+){3}:\d+|\b[a-z]+_[a-z_]+\b|\bhost:port\b`)
	pageName = regexp.MustCompile(`\bdocs/(\w+\.md)`)
)

func markdown(text string) string {
	return pageName.ReplaceAllString(literal.ReplaceAllString(text, "`$0`"), "[$1]($1)")
}
