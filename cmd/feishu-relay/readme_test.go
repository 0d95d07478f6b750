package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The READMEs list every variable with its default, in the order of env.
func TestReadmeListsTheEnvironment(t *testing.T) {
	for _, name := range []string{"../../README.md", "../../README.zh.md"} {
		readme, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rest := string(readme)
		for _, v := range variables() {
			def := "–"
			if v.def != "" {
				def = "`" + v.def + "`"
			}
			row := fmt.Sprintf("| `%s` | %s | ", v.name, def)
			_, after, ok := strings.Cut(rest, row)
			if !ok {
				t.Errorf("%s: no row %q behind the rows before it", name, row)
				continue
			}
			rest = after
		}
	}
}
