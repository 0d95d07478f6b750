// Package talktest runs conversations that are written down in a file: behind "== " and a name, a step a line.
package talktest

import (
	"iter"
	"os"
	"strings"
	"testing"
)

// Run runs each conversation of a file as a test of its name.
func Run(t *testing.T, file string, run func(t *testing.T, talk string)) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, talk := range strings.Split(string(data), "\n== ")[1:] {
		name, talk, _ := strings.Cut(talk, "\n")
		t.Run(name, func(t *testing.T) { run(t, talk) })
	}
}

// Steps are the lines of a conversation but comments, which begin with "#". They end at the first at which t fails.
func Steps(t *testing.T, talk string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.SplitSeq(talk, "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			if !yield(line) {
				return
			}
			if t.Failed() {
				t.Fatalf("at %q", line)
			}
		}
	}
}
