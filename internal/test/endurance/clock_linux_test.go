package endurance

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/wait"
)

// offsetEnv names the file of a process's clock, see testdata/walloffset.go.txt.
const offsetEnv = "TEST_CLOCK_OFFSET"

// buildWithClock builds this version of the program with a package time whose wall clock can be wrong. The
// monotonic clock, and with it timers, is that of the machine. A library that replaces the C functions, such
// as libfaketime, does not reach a Go program: it makes the system calls itself.
func buildWithClock(t *testing.T, dir string) (program string) {
	t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	source, err := os.ReadFile(original)
	must(t, err)
	const reads = "\tsec, nsec, mono := runtimeNow()\n"
	if bytes.Count(source, []byte(reads)) != 1 {
		t.Fatalf("%s has not %q once: change this test to fit this version of Go", original, reads)
	}
	added, err := os.ReadFile(filepath.Join("testdata", "walloffset.go.txt"))
	must(t, err)
	wrong, offset := filepath.Join(dir, "time.go"), filepath.Join(dir, "walloffset.go")
	overlay := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(wrong, bytes.Replace(source, []byte(reads), []byte(reads+"\tif mono != 0 {\n\t\tsec += wallOffset()\n\t}\n"), 1), 0o600))
	must(t, os.WriteFile(offset, added, 0o600))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {
		original: wrong, filepath.Join(filepath.Dir(original), filepath.Base(offset)): offset}})
	must(t, err)
	must(t, os.WriteFile(overlay, replace, 0o600))
	program = filepath.Join(dir, "feishu-relay")
	must(t, build(program, "-overlay", overlay))
	return program
}

// wallClock is the wall clock of one or more sidecars.
type wallClock struct {
	t    *testing.T
	file *os.File
}

func newWallClock(t *testing.T) *wallClock {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "clock"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	c := &wallClock{t, f}
	c.set(0)
	return c
}

// set lets the clock be ahead of the machine's, or behind it.
func (c *wallClock) set(ahead time.Duration) {
	c.t.Helper()
	var seconds [8]byte
	binary.NativeEndian.PutUint64(seconds[:], uint64(ahead/time.Second))
	_, err := c.file.WriteAt(seconds[:], 0)
	must(c.t, err)
}

// clockCases are what happens to the clock of one sidecar: how far ahead it is when the sidecar starts, and
// then at each round of traffic, during which it jumps there.
var clockCases = []struct {
	name  string
	start time.Duration
	jumps []time.Duration
}{
	{"ahead", 3 * time.Hour, []time.Duration{3 * time.Hour}},
	{"behind", -3 * time.Hour, []time.Duration{-3 * time.Hour}},
	{"jumps", 0, []time.Duration{3 * time.Hour, -3 * time.Hour, 0}},
	{"jumps by days", 0, []time.Duration{48 * time.Hour, 0, -48 * time.Hour}},
}

// The clock of a sidecar is wrong by hours or days, or jumps, while bots talk, and then it is right again.
// Each message comes once, or is stopped as expired where the clocks differ; mail comes and is acknowledged;
// the sidecars whose clocks are right lose nothing among themselves; a sidecar reports that a clock is wrong.
func TestWrongClocks(t *testing.T) {
	if os.Getenv(faultsEnv) == "" {
		t.Skip("it builds the program with another package time: `make faults` runs it")
	}
	program := buildWithClock(t, t.TempDir())
	for _, backend := range []string{"redis", "file"} {
		for _, c := range clockCases {
			for _, victim := range []string{"agent_b", "agent_g"} {
				if victim == "agent_b" && slices.Max(c.jumps) > 24*time.Hour {
					continue // its tasks would end by their time: this test wants them to be done
				}
				t.Run(backend+" "+c.name+" "+victim, func(t *testing.T) {
					n := newTeam(t, teamSetup{redis: backend == "redis", webhooks: []string{"agent_a", "agent_b"},
						gateways: []string{"agent_g"}, env: map[string]string{"RELAY_SECRET": secret, "RELAY_MAX_AGE": "10m"}})
					w := &clockTest{team: n, victim: n.bot(victim), clock: newWallClock(t)}
					w.victim.env[offsetEnv] = w.clock.file.Name()
					for _, b := range n.bots {
						b.as(program)
					}
					w.run(t, c.start, c.jumps)
				})
			}
		}
	}
}

type clockTest struct {
	*team
	victim *bot
	clock  *wallClock
}

func (w *clockTest) run(t *testing.T, start time.Duration, jumps []time.Duration) {
	collecting, stop := context.WithCancel(t.Context())
	collected := make(chan struct{})
	defer func() {
		stop()
		<-collected
	}()
	w.team.start(limited(t), w.bots...)
	go func() {
		defer close(collected)
		for wait.Sleep(collecting, 200*time.Millisecond) == nil {
			for _, b := range w.bots {
				w.collect(collecting, b)
			}
		}
	}()
	w.talk(limited(t), t) // all know the group
	if start != 0 {
		w.victim.stop()
		w.jump(start)
		w.team.start(limited(t), w.victim)
	}
	for _, ahead := range jumps {
		w.round(limited(t), t, w.victim, func(<-chan struct{}) { w.jump(ahead) })
		w.round(limited(t), t, w.victim, nil)
		limit := map[string]any{"limit": 9}
		must(t, w.victim.insistOn(limited(t), http.MethodPatch, "/v1/groups/"+w.chat, limit))
		if ahead != 0 {
			eventually(limited(t), t, "a sidecar reports that a clock is wrong", func() bool { return w.said(t) })
		}
	}
	w.calm(limited(t), t)
	w.jump(0)
	before := w.stops()
	w.round(limited(t), t, w.victim, nil)
	if after := w.stops(); !maps.Equal(before, after) {
		t.Errorf("with right clocks messages are stopped: %v, before %v", after, before)
	}
	w.agree(limited(t), t)
	w.verify(limited(t), t)
	w.onlyExpired(t)
	t.Logf("stopped: %v", w.stops())
}

func (w *clockTest) jump(ahead time.Duration) {
	w.clock.set(ahead)
	w.victim.ahead.Store(int64(ahead))
}

// said reports whether a sidecar's status reports a wrong clock.
func (w *clockTest) said(t *testing.T) bool {
	for _, b := range w.bots {
		var st status
		b.do(limited(t), http.MethodGet, "/v1/status", nil, &st)
		for _, e := range st.Errors {
			if e.Part == "clock" {
				t.Logf("%s reports: %s", b.name, e.Error)
				return true
			}
		}
	}
	return false
}

// agree lets the APIs of the bots change a setting of the group in turn; all bots come to the last value.
func (w *clockTest) agree(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, b := range w.bots {
		limit := int(w.count.Add(1))%10 + 1
		must(t, b.insistOn(ctx, http.MethodPatch, "/v1/groups/"+w.chat, map[string]any{"limit": limit}))
		for _, reader := range w.bots {
			eventually(ctx, t, fmt.Sprintf("%s has the limit that %s has set", reader.name, b.name), func() bool {
				var g struct{ Settings struct{ Limit int } }
				reader.do(ctx, http.MethodGet, "/v1/groups/"+w.chat, nil, &g)
				return g.Settings.Limit == limit
			})
		}
	}
}

// stops are how many messages were stopped, by "sender to bot: reason".
func (w *clockTest) stops() map[string]int {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	out := map[string]int{}
	for d, reason := range w.book.stopped {
		out[w.book.sent[d.id].from+" to "+d.bot+": "+reason]++
	}
	return out
}

// onlyExpired checks that nothing was stopped but between the wrong clock and the others, as expired.
func (w *clockTest) onlyExpired(t *testing.T) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(w.stops())) {
		if !strings.Contains(what, w.victim.name) || !strings.HasSuffix(what, ": expired") {
			t.Errorf("stopped: %s", what)
		}
	}
}

// calm checks that the sidecar whose clock is wrong computes little when nothing happens.
func (w *clockTest) calm(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, b := range w.bots {
		eventually(ctx, t, b.name+" is idle", func() bool { return b.idle(ctx) })
	}
	began, used := time.Now(), w.victim.cpu(t)
	for time.Since(began) < longFault { // for as long as a loop would have to run to be seen
		time.Sleep(tick)
	}
	if used, passed := w.victim.cpu(t)-used, time.Since(began); used > passed/2 {
		t.Errorf("%s, which has nothing to do, computed for %v of %v", w.victim.name, used, passed)
	}
}

// cpu is how long the process has computed.
func (s *side) cpu(t *testing.T) (used time.Duration) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid()))
	must(t, err)
	_, rest, _ := strings.Cut(string(data), ") ")
	for _, ticks := range strings.Fields(rest)[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(ticks)
		must(t, err)
		used += time.Duration(n) * 10 * time.Millisecond
	}
	return used
}
