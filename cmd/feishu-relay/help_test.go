package main

import (
	"regexp"
	"testing"
)

// The help of each command shows how it is used.
func TestHelpHasAnExample(t *testing.T) {
	clearEnvironment(t, nil)
	for _, c := range commands() {
		switch c.name {
		case "run", "version": // their synopsis is the example
			continue
		}
		code, stdout, stderr := program(t, c.name, "--help")
		example := regexp.MustCompile(`(?m)^(?: {2,6}\S|[^U ]).*\bfeishu-relay ` + c.name + `\b|^  feishu-relay ` + c.name + `\b`)
		if code != 0 || stderr != "" || !example.MatchString(stdout) {
			t.Errorf("%s --help: status %d, %q, %s", c.name, code, stderr, stdout)
		}
	}
}
