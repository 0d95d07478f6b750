package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// tryLimit bounds one try. What does not end by itself, such as a look into a
// folder on a dead network drive, is left behind and told as a failure.
const tryLimit = 5 * time.Second

// status is how a try went.
type status string

const (
	statusOK   status = "ok"
	statusWarn status = "warn" // works, and will surprise somebody
	statusFail status = "fail" // does not work
)

// finding is what one try found out; Mend says what to do about it, and is
// empty where all is well.
type finding struct {
	Name   string `json:"name"`
	Status status `json:"status"`
	Detail string `json:"detail"`
	Mend   string `json:"mend"`
}

func well(name, format string, args ...any) finding {
	return finding{name, statusOK, fmt.Sprintf(format, args...), ""}
}

func warning(name, mend, format string, args ...any) finding {
	return finding{name, statusWarn, fmt.Sprintf(format, args...), mend}
}

func failure(name, mend, format string, args ...any) finding {
	return finding{name, statusFail, fmt.Sprintf(format, args...), mend}
}

// check is one try. run returns when ctx is done, as far as the system lets it.
type check struct {
	name  string
	limit func(*config) time.Duration
	run   func(context.Context, *config) []finding
}

// checks are the tries in their order: first what the others stand on.
func checks() []check {
	short := func(*config) time.Duration { return tryLimit }
	return []check{
		{"relay folder", short, checkRelayDir},
		{"transcript folder", short, checkTranscriptDir},
		{"this agent", short, checkAgent},
		{"groups file", short, checkGroups},
		{"backend", short, checkBackend},
		{"mailbox", short, checkMailbox},
		{"Feishu", func(*config) time.Duration { return 12 * time.Second }, checkFeishu},
		{"gateway", short, checkGateway},
		{"bot", short, checkInject},
		{"judge", func(c *config) time.Duration { return c.Limits.Timeout + time.Second }, checkJudge},
		{"local API", short, checkListen},
	}
}

// runCheck tries everything that is configured. It changes nothing that lasts,
// and may be run beside a running sidecar.
func runCheck(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var explained strings.Builder
	f := flags("check", "check [--json]\n\nTries everything that is configured and says how to mend what does not work.\n"+
		"Changes nothing, may be run beside the running sidecar. Exit status 1: something fails.\n", &explained)
	asJSON := f.Bool("json", false, "print an array of {name, status, detail, mend}; status is ok, warn or fail")
	if err := parse(f, args, 0); err != nil {
		if errors.Is(err, errUsage) {
			fmt.Fprint(stderr, explained.String())
		} else {
			fmt.Fprint(stdout, explained.String())
		}
		return err
	}
	show := newShow(stdout)
	if *asJSON {
		show = func(finding) {} // all at once, below
	}
	all := []finding{}
	add := func(found ...finding) {
		for _, f := range found {
			all = append(all, f)
			show(f)
		}
	}

	cfg, err := loadConfig()
	if err != nil {
		add(mistakes(err)...)
	} else {
		add(well("configuration", "AGENT_NAME is %s, RELAY_BACKEND is %s", cfg.Agent, cfg.Backend))
		for _, c := range checks() {
			add(c.try(ctx, &cfg)...)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	if *asJSON {
		return reportJSON(stdout, all)
	}
	return report(stdout, all)
}

// try runs the check within its limit.
func (c check) try(ctx context.Context, cfg *config) []finding {
	limit := c.limit(cfg)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := make(chan []finding, 1)
	go func() { found <- c.run(ctx, cfg) }()
	late := time.NewTimer(limit + limit/10) // most checks say themselves what was too slow
	defer late.Stop()
	select {
	case f := <-found:
		return f
	case <-late.C:
		return []finding{failure(c.name, "look what its disk or its network is waiting for", "no result within %s", limit)}
	}
}

// mistakes are those of the configuration, each of which begins with the name
// of its variable.
func mistakes(err error) []finding {
	desc := map[string]string{}
	for _, v := range variables() {
		desc[v.name] = v.desc
	}
	var out []finding
	for line := range strings.SplitSeq(err.Error(), "\n") {
		name, detail, ok := strings.Cut(line, ": ")
		first, _, _ := strings.Cut(name, ",")
		what, known := desc[first]
		switch {
		case !ok || !known:
			out = append(out, failure("configuration", "`feishu-relay run --help` lists all variables", "%s", line))
		default:
			out = append(out, failure(name, fmt.Sprintf("set %s: %s", name, what), "%s", detail))
		}
	}
	return append(out, warning("everything else", "mend the configuration and check again", "not tried yet"))
}

// newShow returns a function that prints a finding for people.
func newShow(w io.Writer) func(finding) {
	p := newPaint(w)
	marks := map[status]string{
		statusOK: p.text(green, "✓"), statusWarn: p.text(yellow, "!"), statusFail: p.text(red, "✗"),
	}
	return func(f finding) {
		fmt.Fprintf(w, "%s %s: %s\n", marks[f.Status], neutral(f.Name), neutral(f.Detail))
		if f.Mend != "" {
			fmt.Fprintf(w, "    %s\n", neutral(f.Mend))
		}
	}
}

// report ends what was shown, and decides the exit status.
func report(w io.Writer, all []finding) error {
	switch fails, warns := count(all, statusFail), count(all, statusWarn); {
	case fails > 0:
		fmt.Fprintf(w, "\n%d to mend, %d to know of\n", fails, warns)
		return errFailed
	case warns > 0:
		fmt.Fprintf(w, "\nworks; %d to know of\n", warns)
	default:
		fmt.Fprint(w, "\nall is well\n")
	}
	return nil
}

func reportJSON(w io.Writer, all []finding) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if _, err := w.Write(append(neutralJSON(data), '\n')); err != nil {
		return err
	}
	if count(all, statusFail) > 0 {
		return errFailed
	}
	return nil
}

func count(all []finding, s status) int {
	n := 0
	for _, f := range all {
		if f.Status == s {
			n++
		}
	}
	return n
}
