package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// tryLimit bounds one try, longLimit one of several calls to a service. The tries
// run side by side, so that all of them end within 15 s. What does not end by
// itself, such as a look into a folder on a dead network drive, is left behind
// and told as a failure.
const (
	tryLimit  = 5 * time.Second
	longLimit = 12 * time.Second
)

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

// subject is what a check looks at.
type subject struct {
	*config
	running func() (*runningSidecar, error) // the sidecar at LISTEN_ADDR, asked once
	redis   func() error                    // why the Redis that the sidecars meet in is not reached, tried once
}

// check is one try. run returns when ctx is done, as far as the system lets it.
type check struct {
	name  string // of the finding where run itself finds nothing in time
	group string // the heading above its findings
	limit time.Duration
	run   func(context.Context, *subject) []finding
}

// checks are the tries in the order in which they are told: first what the
// others stand on.
func checks(c *config) []check {
	return []check{
		{"relay folder", "Files", tryLimit, checkRelayDir},
		{"transcript folder", "Files", tryLimit, checkTranscriptDir},
		{"disk space", "Files", tryLimit, checkDisks},
		{"files of others", "Files", tryLimit, checkOwners},
		{"groups file", "Files", tryLimit, checkGroups},
		{"backend", "Relay", tryLimit, checkBackend},
		{"this agent", "Relay", tryLimit, checkAgent},
		{"peers", "Relay", tryLimit, checkPeers},
		{"mailbox", "Mailbox", tryLimit, checkMailbox},
		{"Feishu", "Feishu", longLimit, checkFeishu},
		{"gateway", "Bot", tryLimit, checkGateway},
		{"bot webhook", "Bot", tryLimit, checkWebhook},
		{"bot", "Bot", tryLimit, checkInject},
		{"judge", "Judge", min(c.Limits.Timeout+time.Second, longLimit), checkJudge},
		{"local API", "Sidecar", tryLimit, checkListen},
		{"sidecar", "Sidecar", tryLimit, checkRunning},
	}
}

// runCheck tries everything that is configured. It changes nothing that lasts,
// and may be run beside a running sidecar.
func runCheck(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var explained strings.Builder
	f := flags("check", "check [--json]\n\nTries everything that is configured and says how to mend what does not work:\n"+
		"✓ works, ! works and will surprise somebody, ✗ does not work; below it, how to mend it.\n"+
		"Takes 15 seconds at most, changes nothing, and may be run beside the running sidecar. Feishu is\n"+
		"asked who the bot is, the judge one question, and the bot's webhook what Feishu asks to verify\n"+
		"it; nobody is sent a message. Exit status 1: something fails.\n", &explained)
	asJSON := f.Bool("json", false, "print an array of {name, status, detail, mend}; status is ok, warn or fail")
	if err := parse(f, args, 0); err != nil {
		if errors.Is(err, errUsage) {
			fmt.Fprint(stderr, explained.String())
		} else {
			fmt.Fprint(stdout, explained.String())
		}
		return err
	}
	out := newFindings(stdout, *asJSON)
	cfg, err := loadConfig()
	if err != nil {
		out.add("Configuration", append(mistakes(err), checkEnvironment(os.Environ())...)...)
		return out.end()
	}
	out.add("Configuration", append([]finding{well("configuration", "AGENT_NAME is %s, RELAY_BACKEND is %s", cfg.Agent, cfg.Backend)},
		checkEnvironment(os.Environ())...)...)
	s := &subject{&cfg, sync.OnceValues(func() (*runningSidecar, error) { return askSidecar(ctx, &cfg) }),
		sync.OnceValue(func() error { return reachRedis(ctx, &cfg) })}
	all := checks(&cfg)
	results := make([]chan []finding, len(all))
	for i, c := range all {
		results[i] = make(chan []finding, 1)
		go func() { results[i] <- c.try(ctx, s) }() // ends within its limit
	}
	for i, c := range all {
		found := out.await(c.name, results[i])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		out.add(c.group, found...)
	}
	return out.end()
}

// try runs the check within its limit.
func (c check) try(ctx context.Context, s *subject) []finding {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	found := make(chan []finding, 1)
	go func() { found <- c.run(ctx, s) }()
	late := time.NewTimer(c.limit + c.limit/10) // most checks say themselves what was too slow
	defer late.Stop()
	select {
	case f := <-found:
		return f
	case <-late.C:
		return []finding{failure(c.name, "look what its disk or its network is waiting for", "no result within %s", c.limit)}
	}
}

// plainly is what err says, in words for what took too long.
func plainly(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
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
