package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A figure that no suite makes would always be missing.
func TestEveryFigureHasItsSuite(t *testing.T) {
	makes := func(fig figure) bool {
		return slices.ContainsFunc(needed(suites, allBars), func(s suite) bool {
			first, _, _ := strings.Cut(s.bench, "/")
			top, _, _ := strings.Cut(fig.bench, "/")
			return s.pkg == fig.pkg && regexp.MustCompile(first).MatchString("Benchmark"+top)
		})
	}
	for _, b := range allBars {
		for _, fig := range []figure{b.ours, b.bare} {
			if fig.fixed == 0 && !makes(fig) {
				t.Errorf("bar %s, %s: no suite has %s %s", b.number, b.what, fig.pkg, fig.bench)
			}
		}
	}
	if got := chosen(allBars, "7, 10"); len(got) != 5 {
		t.Errorf("%d rows of bars 7 and 10, want 5", len(got))
	}
}
