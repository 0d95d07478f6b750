package main

import (
	"io"
	"regexp"
	"testing"
)

// The help of each command shows how it is used.
func TestHelpHasAnExample(t *testing.T) {
	clearEnvironment(t, nil)
	for _, c := range newCLI(t.Context(), io.Discard, io.Discard).parser.Commands() {
		if c.Name == "version" { // its usage is the example
			continue
		}
		code, stdout, stderr := program(t, c.Name, "--help")
		example := regexp.MustCompile(`(?m)^.*\bfeishu-relay ` + c.Name + `\b.*$`)
		if code != 0 || stderr != "" || !example.MatchString(stdout) {
			t.Errorf("%s --help: status %d, %q, %s", c.Name, code, stderr, stdout)
		}
	}
}
