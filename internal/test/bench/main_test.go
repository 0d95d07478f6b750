package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const printed = `goos: linux
BenchmarkWake/ours-2   	   12345	     20000 ns/op	        12.5 p50-us	        57.0 p99-us
BenchmarkWake/bare-2   	   12345	     10000 ns/op	        10.0 p50-us	        40.0 p99-us
BenchmarkBroken-2      	--- FAIL
Benchmark of nothing: 12 x 13
PASS
`

func TestFiguresAreReadFromWhatBenchmarksPrint(t *testing.T) {
	f := figures{}
	f.add("relay/filerelay", []byte(printed), 2)
	f.add("relay/filerelay", []byte(strings.ReplaceAll(printed, "12.5", "14.5")), 2)
	got := map[string][]float64{}
	for fig, values := range f {
		got[fig.bench+" "+fig.unit] = values
	}
	want := map[string][]float64{
		"Wake/ours ns/op": {20000, 20000}, "Wake/ours p50-us": {12.5, 14.5}, "Wake/ours p99-us": {57, 57},
		"Wake/bare ns/op": {10000, 10000}, "Wake/bare p50-us": {10, 10}, "Wake/bare p99-us": {40, 40},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if got, want := f.rounds(perSecond("relay/filerelay", "Wake/ours", 2)), []float64{1e5, 1e5}; !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
}

func TestNamesWithoutASuffix(t *testing.T) {
	f := figures{}
	f.add("x", []byte("BenchmarkOpen-5000  10  20 ns/op\n"), 1)
	if got := f.rounds(of("x", "Open-5000", "ns/op")); len(got) != 1 {
		t.Errorf("%v is not named Open-5000", f)
	}
}

func TestTheTable(t *testing.T) {
	x := func(unit string) figure { return of("p", "X", unit) }
	bars := []bar{
		{"1", "rate reached", x("msg/s"), x("bare-msg/s"), 0.5, true},
		{"2", "rate short", x("msg/s"), x("bare-msg/s"), 0.9, true},
		{"3", "time reached", x("ns/op"), figure{fixed: 2e6}, 1.5, false},
		{"4", "time short", x("ns/op"), figure{fixed: 1e6}, 1.5, false},
		{"5", "no aim", x("MiB"), x("MiB"), 0, false},
		{"6", "skipped", of("q", "Y", "us"), x("us"), 1, false},
		{"7", "missing", x("none"), x("none"), 1, false},
	}
	f := figures{x("msg/s"): {1000, 9, 2e6}, x("bare-msg/s"): {2000, 18, 2e6}, x("ns/op"): {1e6, 2e6, 3e6}, x("MiB"): {9.87}}
	var out bytes.Buffer
	printTable(&out, bars, f, map[string]string{"q": "no room"})
	want := `| bar | what         | ours     | baseline | ratio | aim   |                  |
|-----|--------------|----------|----------|-------|-------|------------------|
| 1   | rate reached | 1,000 /s | 2,000 /s | 0.50  | ≥ 0.5 | ok               |
| 2   | rate short   | 1,000 /s | 2,000 /s | 0.50  | ≥ 0.9 | short            |
| 3   | time reached | 2.00 ms  | 2.00 ms  | 1.00  | ≤ 1.5 | ok               |
| 4   | time short   | 2.00 ms  | 1.00 ms  | 2.00  | ≤ 1.5 | short            |
| 5   | no aim       | 9.87 MiB | 9.87 MiB | 1.00  | –     | –                |
| 6   | skipped      | –        | –        | –     | ≤ 1   | skipped: no room |
| 7   | missing      | –        | –        | –     | ≤ 1   | not measured     |
`
	if diff := cmp.Diff(out.String(), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

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
	if got := chosen(allBars, "7, 9"); len(got) != 4 {
		t.Errorf("%d rows of bars 7 and 9, want 4", len(got))
	}
}
