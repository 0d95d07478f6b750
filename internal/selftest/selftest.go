// Package selftest tries everything that a sidecar is configured with: folders, Redis, Feishu, the bot, the judge. Each
// [Finding] says what was found, and how to fix it. It changes nothing that lasts.
//
// A running sidecar tests itself (GET /v1/selftest). `feishu-relay check` shows that, or runs the tests where no sidecar
// of the agent runs yet.
package selftest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/words"
	"feishu-relay/sidecar"
)

const (
	tryLimit  = 5 * time.Second  // for one thing, such as a connection
	longLimit = 12 * time.Second // for all tests together
)

// Status is how a test went.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Warn    Status = "warn"    // works, but perhaps not as expected
	Fail    Status = "fail"    // does not work
	Unknown Status = "unknown" // cannot be seen from here, or not yet
)

// Finding is one result of a test. Mend says how to fix it, or where to look; it is empty where nothing is to be done.
type Finding struct {
	Area   string `json:"area"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Mend   string `json:"mend"`
}

// Options say what is tested.
type Options struct {
	Config  sidecar.Config
	Version string
	Running *sidecar.Status // the sidecar that runs with this configuration; nil: none
	Words   words.Words
	Only    []string // areas; nil: all
}

// sides of tests run side by side, each with its areas in order.
var sides = []struct {
	areas []string
	run   func(*results, context.Context)
}{
	{[]string{"Files"}, (*results).files},
	{[]string{"Relay", "Mailbox"}, (*results).relay},
	{[]string{"Feishu"}, (*results).tenant},
	{[]string{"Bot"}, (*results).bot},
	{[]string{"Judge"}, (*results).judge},
	{[]string{"Sidecar"}, (*results).sidecar},
}

// Run tests, and calls show with the findings of some areas at a time, in the order of the areas. It takes less than 15
// seconds. A test that hangs, such as a look into a folder on a dead network drive, is left behind.
func Run(ctx context.Context, o Options, show func(...Finding)) {
	ctx, end := context.WithTimeout(ctx, longLimit)
	defer end()
	var running []*results
	for _, g := range sides {
		r := &results{Options: o, cfg: &o.Config, done: make(chan struct{})}
		if o.Only != nil && !slices.ContainsFunc(g.areas, r.wanted) {
			continue
		}
		running = append(running, r)
		go func() {
			defer close(r.done)
			g.run(r, ctx)
		}()
	}
	late := time.NewTimer(longLimit + time.Second) // most tests report by themselves what was too slow
	defer late.Stop()
	for _, r := range running {
		select {
		case <-r.done:
		case <-late.C:
			late.Reset(0)
		}
		show(slices.DeleteFunc(r.close(), func(f Finding) bool { return !r.wanted(f.Area) })...)
	}
}

// results are the findings of a group of areas.
type results struct {
	Options
	cfg  *sidecar.Config
	done chan struct{}

	mu         sync.Mutex
	area, name string    // of the current test; guarded by mu
	found      []Finding // guarded by mu
	closed     bool      // guarded by mu
}

func (r *results) wanted(area string) bool { return r.Only == nil || slices.Contains(r.Only, area) }

// test begins the test with a name.
func (r *results) test(area, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.area, r.name = area, name
}

func (r *results) add(s Status, detail, fix string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.found = append(r.found, Finding{r.area, r.name, s, detail, fix})
	}
}

// close returns what was found, and that the current test has no result if it is not done.
func (r *results) close() []Finding {
	select {
	case <-r.done:
	default:
		r.fail("no result in time", longLimit)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.found
}

func (r *results) say(key string, args ...any) string { return r.Words.Say(key, args...) }

// ok, warn, fail and unknown add a finding. Its fix is the text "KEY.fix", with the same args.
func (r *results) ok(key string, args ...any)   { r.add(OK, r.say(key, args...), "") }
func (r *results) warn(key string, args ...any) { r.as(Warn, key, args...) }
func (r *results) fail(key string, args ...any) { r.as(Fail, key, args...) }
func (r *results) unknown(key string, args ...any) {
	r.as(Unknown, key, args...)
}

func (r *results) as(s Status, key string, args ...any) {
	r.add(s, r.say(key, args...), r.say(key+".fix", args...))
}

// plainly is the text of err, in words for what took too long.
func (r *results) plainly(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return r.say("no answer in time")
	}
	return err.Error()
}

// is reports whether an error of type E is in err's tree.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// Bound returns why nobody can listen at addr, or nil.
func Bound(ctx context.Context, addr string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// Size is a number of bytes as people say it.
func Size(bytes int64) string {
	value, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for value >= 1024 && len(units) > 1 {
		value, units = value/1024, units[1:]
	}
	if value < 10 && value != float64(int(value)) {
		return fmt.Sprintf("%.1f %s", value, units[0])
	}
	return fmt.Sprintf("%.0f %s", value, units[0])
}
