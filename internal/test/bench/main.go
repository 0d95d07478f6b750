// Command bench runs the benchmarks of this module and shows each figure beside
// its baseline: a bare loop over the same library, file or server, measured in
// the same run. Figures differ from machine to machine and from hour to hour;
// their ratios do much less, and the aims are ratios.
//
//	go run ./internal/test/bench            # everything, in less than 10 minutes on 2 cores
//	go run ./internal/test/bench -rounds 1  # a quick look
//	go run ./internal/test/bench -only 4,5  # some bars
//
// # How it measures
//
// The benchmarks are those of the packages, named for what they measure. Each
// package's are compiled once and run in turns, one round after the other, so that
// both sides of a ratio and all rounds of it share the machine's good and bad
// times. A row shows the medians of the rounds, and the median of their ratios,
// which is what is held against the aim.
//
// The exit status tells whether everything ran, not whether the aims were
// reached: on a busy machine they say little.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	rounds := f.Int("rounds", 5, "how often each benchmark runs")
	only := f.String("only", "", "comma list of bars; empty: all of them")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || f.NArg() > 0 {
		return errors.New("usage: bench [-rounds N] [-only BAR,...], N at least 1")
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	bars := chosen(allBars, *only)
	if len(bars) == 0 {
		return fmt.Errorf("no bar %s", *only)
	}
	r := &runner{dir: dir, log: stderr, figures: figures{}}
	ran := r.run(ctx, needed(suites, bars), *rounds)
	printTable(stdout, bars, r.figures)
	return ran
}

func chosen(bars []bar, only string) []bar {
	if only == "" {
		return bars
	}
	var out []bar
	for _, b := range bars {
		for number := range strings.SplitSeq(only, ",") {
			if b.number == strings.TrimSpace(number) {
				out = append(out, b)
			}
		}
	}
	return out
}
