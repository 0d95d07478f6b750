// Package simtest runs simulations: a seed makes a run, and one that fails is run again alone, with a trace, by the
// test's flag -seed.
package simtest

import (
	"cmp"
	"flag"
	"strings"
	"testing"
)

var (
	seeds = flag.Int("seeds", 0, "how many runs of a simulation; 0: as many as it says")
	seed  = flag.Uint64("seed", 0, "run this one alone, with a trace")
)

// faultRuns is in how many runs a planted mistake has to be found.
const faultRuns = 300

// Trace prints a line of a run; nil: there is no trace.
type Trace func(format string, args ...any)

// Print prints a line, if there is a trace.
func (t Trace) Print(format string, args ...any) {
	if t != nil {
		t(format, args...)
	}
}

// Run runs a simulation n times, by the seeds from 1 on, and fails with the first error.
func Run(t *testing.T, n int, simulate func(seed uint64, trace Trace) error) {
	t.Helper()
	if *seed > 0 {
		if err := simulate(*seed, t.Logf); err != nil {
			t.Fatal(err)
		}
		return
	}
	for n := range cmp.Or(*seeds, n) {
		if err := simulate(uint64(n+1), nil); err != nil {
			t.Fatalf("-seed %d: %v", n+1, err)
		}
	}
}

// Finds fails unless a simulation in which a mistake is planted soon ends with an error that has a text in it.
func Finds(t *testing.T, mistake, want string, simulate func(seed uint64) error) {
	t.Helper()
	found := ""
	for n := range faultRuns {
		if err := simulate(uint64(n + 1)); err != nil {
			if found = err.Error(); strings.Contains(found, want) {
				t.Logf("%s: -seed %d: %.150s", mistake, n+1, found)
				return
			}
		}
	}
	t.Errorf("%s: found %.200q, want %q", mistake, found, want)
}
