package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// roundLimit ends a suite's round that hangs.
const roundLimit = 6 * time.Minute

// figures are the values reported so far, one for each round, by package,
// benchmark and unit.
type figures map[figure][]float64

// runner compiles and runs suites.
type runner struct {
	dir     string // for what is compiled
	log     io.Writer
	figures figures
}

// run runs all suites, one round after the other. A suite that fails is left out
// from then on, and told in the error.
func (r *runner) run(ctx context.Context, suites []suite, rounds int) error {
	binaries := map[string]string{}
	for _, s := range suites {
		if binaries[s.pkg] != "" {
			continue
		}
		binaries[s.pkg] = filepath.Join(r.dir, strings.ReplaceAll(s.pkg, "/", "_")+".test")
		fmt.Fprintf(r.log, "compiling ./%s\n", s.pkg)
		if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binaries[s.pkg],
			"./"+s.pkg).CombinedOutput(); err != nil {
			return fmt.Errorf("compile %s: %w\n%s", s.pkg, err, out)
		}
	}
	var errs []error
	failed := map[suite]bool{}
	for round := range rounds {
		for _, s := range suites {
			if ctx.Err() != nil {
				return errors.Join(append(errs, context.Cause(ctx))...)
			}
			if failed[s] || s.rounds > 0 && round >= s.rounds {
				continue
			}
			began := time.Now()
			fmt.Fprintf(r.log, "round %d of %d: %s %s ", round+1, rounds, s.pkg, s.bench)
			err := r.round(ctx, s, binaries[s.pkg])
			fmt.Fprintf(r.log, "%.1f s\n", time.Since(began).Seconds())
			if err != nil {
				failed[s] = true
				errs = append(errs, fmt.Errorf("%s %s: %w", s.pkg, s.bench, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (r *runner) round(ctx context.Context, s suite, binary string) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", s.bench, "-test.benchtime", s.time)
	cmd.Dir = s.pkg
	cmd.Env = append(os.Environ(), "TMPDIR="+r.dir)
	cmd.WaitDelay = 5 * time.Second // a child of it may hold the pipe
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	r.figures.add(s.pkg, out, runtime.GOMAXPROCS(0))
	return nil
}

// add takes in what a test binary printed. procs is the suffix that the names
// of benchmarks have.
func (f figures) add(pkg string, out []byte, procs int) {
	for scan := bufio.NewScanner(bytes.NewReader(out)); scan.Scan(); {
		fields := strings.Fields(scan.Text())
		if len(fields) < 4 || len(fields)%2 != 0 {
			continue
		}
		name, ok := strings.CutPrefix(fields[0], "Benchmark")
		if !ok {
			continue
		}
		if procs > 1 {
			name = strings.TrimSuffix(name, "-"+strconv.Itoa(procs))
		}
		for i := 2; i < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				break // no line of results
			}
			key := figure{pkg: pkg, bench: name, unit: fields[i+1]}
			f[key] = append(f[key], value)
		}
	}
}

// rounds are the values of fig, as rates where it says so.
func (f figures) rounds(fig figure) []float64 {
	values := f[figure{pkg: fig.pkg, bench: fig.bench, unit: fig.unit}]
	if fig.rate == 0 {
		return values
	}
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = fig.rate * 1e9 / v
	}
	return out
}
