package main

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"feishu-relay/relay"
)

const (
	outboxPause = time.Second // between two looks at the outbox, to see whether it grows
	freshError  = time.Hour   // an error is told for so long; it may be mended since
)

// runningSidecar is what a running sidecar says of itself.
type runningSidecar struct {
	Version  string
	Identity struct {
		Agent relay.AgentName `json:"agent_name"`
	}
	Ready    bool
	NotReady string `json:"not_ready"`
	Gateway  struct{ Connected bool }
	Queues   map[string]struct {
		Outbox struct {
			Pending int64
			Error   string
		}
	}
	Errors []struct {
		Part  string
		Error string
		At    time.Time
		Count int
	} `json:"last_errors"`
}

var errNotOurs = errors.New("no sidecar of this agent answers")

// askSidecar asks the sidecar at LISTEN_ADDR, if it is this agent's.
func askSidecar(ctx context.Context, c *config) (*runningSidecar, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit/2)
	defer cancel()
	var st runningSidecar
	code, err := getJSON(ctx, reachable(c.ListenAddr), "/v1/status", string(c.APIToken), &st)
	switch {
	case err != nil:
		return nil, err
	case code != http.StatusOK || st.Identity.Agent != c.Agent:
		return nil, errNotOurs
	}
	return &st, nil
}

// checkRunning tells what the running sidecar knows of itself; without one,
// nothing.
func checkRunning(ctx context.Context, c *subject) []finding {
	const name = "sidecar"
	st, err := c.running()
	if err != nil {
		return nil // told with the local API
	}
	var out []finding
	if st.Ready {
		out = append(out, well(name, "ready, version %s", or(st.Version, "unknown")))
	} else {
		out = append(out, failure(name, "mend what else is found here; a queue that is not read stands in its log", "not ready: %s", st.NotReady))
	}
	if st.Version != versionText() {
		out = append(out, warning("sidecar version", "restart the sidecar, or check with the program that it runs", "the running sidecar is %s, this program is %s", or(st.Version, "unknown"), versionText()))
	}
	out = append(out, checkOutbox(ctx, c.config, st)...)
	out = append(out, checkErrors(st, time.Now())...)
	return append(out, checkDeadLetters(ctx, c.config)...)
}

// checkOutbox looks a second time at what waits there.
func checkOutbox(ctx context.Context, c *config, st *runningSidecar) (out []finding) {
	waits := slices.DeleteFunc(slices.Sorted(maps.Keys(st.Queues)), func(q string) bool { return st.Queues[q].Outbox.Pending == 0 })
	if len(waits) == 0 {
		return nil
	}
	pause := time.NewTimer(outboxPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return nil
	}
	later, err := askSidecar(ctx, c)
	if err != nil {
		return nil // it was ended meanwhile
	}
	for _, q := range waits {
		before, now := st.Queues[q].Outbox, later.Queues[q].Outbox
		if now.Pending < before.Pending {
			continue // it is being sent
		}
		more := ""
		if now.Pending > before.Pending {
			more = ", and they grow"
		}
		if now.Error != "" {
			more += ": " + now.Error
		}
		out = append(out, warning("outbox", "nothing is lost, and it is sent when the backend answers: mend what is found there",
			"the %s queue has %s that the backend has not taken%s", q, counted(int(now.Pending), "message", "messages"), more))
	}
	return out
}

// checkErrors tells of the errors of the last hour.
func checkErrors(st *runningSidecar, now time.Time) (out []finding) {
	for _, e := range st.Errors {
		if since := now.Sub(e.At); since < freshError {
			out = append(out, warning("sidecar errors", "if it goes on: look at its log, near "+e.At.UTC().Format(time.RFC3339),
				"%s: %s (%s, last %s ago)", e.Part, strings.TrimSpace(e.Error), counted(e.Count, "time", "times"), age(since)))
		}
	}
	return out
}

// checkDeadLetters counts the direct messages that could not be delivered.
func checkDeadLetters(ctx context.Context, c *config) []finding {
	var dead struct {
		Letters []struct{} `json:"dead_letters"`
	}
	code, err := getJSON(ctx, reachable(c.ListenAddr), "/v1/mailbox/dead-letters", string(c.APIToken), &dead)
	if err != nil || code != http.StatusOK || len(dead.Letters) == 0 {
		return nil // without a mailbox there is no such route
	}
	return []finding{warning("dead letters", "feishu-relay mailbox dead-letters; then: feishu-relay mailbox dead-letters replay ID",
		"%s could not be delivered", counted(len(dead.Letters), "direct message", "direct messages"))}
}
