// Command scale measures how many bots and groups one Redis can serve: it starts the Redis, or a
// Cluster of six nodes, and a sidecar process for each bot, lets people and bots write in the
// groups, and prints for each rate how long a message takes from bot to bot and the CPU time and
// memory that the sidecars use.
//
//	go run ./internal/test/scale -bots 20 -groups 100 -rate 20,50,100 -seconds 10
//
// docs/scaling.md has the figures and explains them.
//
// # The load
//
// A person writes in a group: all bots of the group get the message and report it to their sidecars,
// and one of them answers. One of the bots that get the answer answers in turn, and so on, until the
// stop policy stops the message at every bot. The seed determines the authors, groups and times.
//
// People write at fixed times, however slow the sidecars are. A bot answers a fixed time after it got
// a message. The time of a hop counts from the time at which the bot's message was due, which may be
// earlier than when it was sent, until another bot of the group reads it from its stream.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "scale:", err)
		}
		os.Exit(1)
	}
}

// settings are the parameters of a measurement.
type settings struct {
	program    string // of the sidecars
	bots       int
	groups     int
	members    int // bots in each group
	cluster    bool
	secret     bool // RELAY_SECRET is set
	users      bool // RELAY_USER_MESSAGES
	rates      []float64
	warm       time.Duration // time at the beginning of each rate, not counted
	measureFor time.Duration
	think      time.Duration // mean thinking time; it varies between half and one and a half times this
	calm       time.Duration // how long the fleet may take to become idle after its start
	giveUp     time.Duration // after this time without an arrival, missing messages count as lost
	seed       uint64
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var s settings
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.SetOutput(stderr)
	bots := f.String("bots", "20", "comma list of numbers of bots, each with a sidecar of its own")
	rates := f.String("rate", "20,50,100,200", "comma list of messages that the bots send each second, all together")
	seconds := f.Float64("seconds", 10, "how long each rate is measured")
	warm := f.Float64("warm", 3, "seconds before, which are not counted")
	out := f.String("out", "", "file to which a JSON object for each rate is appended; empty: none")
	f.IntVar(&s.groups, "groups", 100, "groups")
	f.IntVar(&s.members, "members", 4, "bots in each group")
	f.BoolVar(&s.cluster, "cluster", false, "a Redis Cluster of three primaries with a replica each, instead of one Redis")
	f.BoolVar(&s.secret, "secret", true, "sign messages, as sidecars of several hosts do (RELAY_SECRET)")
	f.BoolVar(&s.users, "users", true, "sidecars share people's messages (RELAY_USER_MESSAGES)")
	f.DurationVar(&s.think, "think", 500*time.Millisecond, "how long a bot thinks before it answers, on average")
	f.DurationVar(&s.giveUp, "give-up", 15*time.Second, "messages count as missing after this time without an arrival")
	f.DurationVar(&s.calm, "calm", 5*time.Minute,
		"how long to wait for the sidecars to be idle before the first rate, at most")
	f.Uint64Var(&s.seed, "seed", 1, "the same seed gives the same load")
	f.StringVar(&s.program, "program", "", "the program feishu-relay; empty: it is built")
	if err := f.Parse(args); err != nil {
		return err
	}
	sizes, err := numbers(*bots)
	if err != nil {
		return fmt.Errorf("-bots: %w", err)
	}
	if s.rates, err = numbers(*rates); err != nil {
		return fmt.Errorf("-rate: %w", err)
	}
	if f.NArg() > 0 || s.groups < 1 || s.members < 2 || *seconds <= 0 || *warm < 0 || s.think <= 0 {
		return errors.New("-groups is at least 1, -members at least 2, -seconds and -think are more than 0; " +
			"there are no further arguments")
	}
	s.measureFor, s.warm = time.Duration(*seconds*float64(time.Second)), time.Duration(*warm*float64(time.Second))
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if s.program == "" {
		s.program = filepath.Join(dir, "feishu-relay")
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", s.program,
			"feishu-relay/cmd/feishu-relay")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build feishu-relay: %w\n%s", err, text)
		}
	}
	for _, n := range sizes {
		s.bots = int(n)
		if s.bots < s.members {
			return fmt.Errorf("-bots %d is less than -members %d", s.bots, s.members)
		}
		if err := series(ctx, s, filepath.Join(dir, strconv.Itoa(s.bots)), *out, stdout, stderr); err != nil {
			return fmt.Errorf("%d bots: %w", s.bots, err)
		}
	}
	return nil
}

func numbers(list string) (out []float64, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is not a number above 0", text)
		}
		out = append(out, n)
	}
	return out, nil
}

// series starts a fleet and measures the rates in turn. It leaves out the rates after the first that
// was far too high.
func series(ctx context.Context, s settings, dir, out string, stdout, stderr io.Writer) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "starting %d sidecars\n", s.bots)
	fl, err := startFleet(ctx, s, dir)
	if err != nil {
		return err
	}
	defer fl.stop()
	for i, rate := range s.rates {
		r, err := fl.measure(ctx, i, rate)
		if err != nil {
			return fmt.Errorf("%g messages per second: %w", rate, err)
		}
		if out != "" {
			if err := r.appendTo(out); err != nil {
				return err
			}
		}
		if i == 0 {
			fmt.Fprintln(stdout, header(s))
		}
		fmt.Fprintln(stdout, r)
		if r.P99 > tooSlow {
			fmt.Fprintln(stderr, "higher rates are left out")
			break
		}
	}
	return nil
}

// tooSlow is the p99 in milliseconds beyond which higher rates are not measured.
const tooSlow = 1000
