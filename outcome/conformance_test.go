package outcome

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redistest"
	"feishu-relay/relay"
)

// place is where a suite's stores share.
type place struct {
	open func(t *testing.T, agent string) Store
	lose func(t *testing.T)                  // all that is shared, beneath its readers
	away func(t *testing.T) (back func())    // it cannot be reached
	junk func(t *testing.T, lines ...[]byte) // of a foreign program
}

const testKey = "test:outcomes"

// places are the kinds of stores; each call is an empty one.
var places = map[string]func(t *testing.T) place{
	"files": func(t *testing.T) place {
		dir := filepath.Join(t.TempDir(), "outcomes")
		open := func(t *testing.T, agent string) Store {
			s, err := OpenFiles(dir, agent, logger(t))
			must(t, err)
			t.Cleanup(func() { must(t, s.Close()) })
			return s
		}
		return place{
			open: open,
			lose: func(t *testing.T) { must(t, os.RemoveAll(dir)) },
			away: func(t *testing.T) func() {
				must(t, os.Rename(dir, dir+".away"))
				must(t, os.WriteFile(dir, nil, 0o600))
				return func() {
					must(t, os.Remove(dir))
					must(t, os.Rename(dir+".away", dir))
				}
			},
			junk: func(t *testing.T, lines ...[]byte) { must(t, open(t, "stranger").Append(t.Context(), lines)) },
		}
	},
	"redis": func(t *testing.T) place {
		srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		return place{
			open: func(t *testing.T, _ string) Store { return openRedis(t, srv.URL()) },
			lose: func(t *testing.T) { must(t, rawRedis(t, srv.URL()).FlushAll(t.Context()).Err()) },
			away: func(t *testing.T) func() {
				srv.Kill()
				return func() { must(t, srv.Restart()) }
			},
			junk: func(t *testing.T, lines ...[]byte) {
				for _, line := range lines {
					must(t, rawRedis(t, srv.URL()).XAdd(t.Context(), &redis.XAddArgs{Stream: testKey, Values: []any{field, line}}).Err())
				}
			},
		}
	},
}

// conforms runs a case over every kind of store.
func conforms(t *testing.T, test func(t *testing.T, p place)) {
	for kind, at := range places {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, at(t))
		})
	}
}

func TestNobodyHasSharedAnything(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		s := p.open(t, "a")
		must(t, s.Append(t.Context(), nil))
		e := follow(t, s)
		if !e.caughtUp() {
			t.Error("nothing is not all there ever was")
		}
		must(t, s.Append(t.Context(), lines("a", 1, 2)))
		e.want(lines("a", 1, 2))
	})
}

func TestHistoryThenNews(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		const each, batch = 5000, 250
		agents := []string{"a", "b", "小丙"}
		for first := 0; first < each; first += batch {
			for _, agent := range agents {
				must(t, p.open(t, agent).Append(t.Context(), lines(agent, first, batch)))
			}
		}
		e := follow(t, p.open(t, "a"))
		if !e.caughtUp() {
			t.Error("what stood there was all")
		}
		if len(e.lines) != len(agents)*each {
			t.Errorf("caught up after %d lines, want %d", len(e.lines), len(agents)*each)
		}
		next := map[string]int{}
		for range len(agents) * each {
			line := e.next()
			agent, _, _ := strings.Cut(strings.TrimPrefix(line, `{"agent":"`), `"`)
			if want := string(lines(agent, next[agent], 1)[0]); line != want {
				t.Fatalf("got %s, want %s", line, want)
			}
			next[agent]++
		}
		for i, agent := range append(agents, "late") {
			must(t, p.open(t, agent).Append(t.Context(), lines(agent, each, 1+i)))
			e.want(lines(agent, each, 1+i))
		}
		e.stop()
		if len(e.caught) > 0 {
			t.Error("caught up twice")
		}
	})
}

func TestTooLongLinesAreNil(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		good := lines("stranger", 1, 2)
		longest := []byte(strings.Repeat("x", maxLine))
		long := []byte(strings.Repeat("x", maxLine+1))
		longer := []byte(strings.Repeat("x", 5*chunk))
		history := [][]byte{good[0], longest, long, longer, good[1]}
		want := [][]byte{good[0], longest, nil, nil, good[1]}
		p.junk(t, history...)
		e := follow(t, p.open(t, "a"))
		e.want(want)
		p.junk(t, history...)
		e.want(want)
	})
}

// What was shared is lost beneath a reader, who goes on with what comes.
func TestLost(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		a := p.open(t, "a")
		must(t, a.Append(t.Context(), lines("a", 1, 10)))
		e := follow(t, a)
		e.want(lines("a", 1, 10))
		for round := range 3 {
			p.lose(t)
			news := lines("a", 100*round, 3)
			must(t, a.Append(t.Context(), news))
			e.want(news)
		}
	})
}

// The place is away for a while, and a line that it had is there again.
func TestAway(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		a, b := p.open(t, "a"), p.open(t, "b")
		must(t, a.Append(t.Context(), lines("a", 1, 3)))
		e := follow(t, a)
		e.want(lines("a", 1, 3))
		back := p.away(t)
		if err := b.Append(t.Context(), lines("b", 1, 1)); err == nil {
			t.Error("Append: no error")
		}
		early := follow(t, b) // begins while the place is away
		back()
		early.want(lines("a", 1, 3))
		early.caughtUp()
		eventually(t, "appending", func() bool { return b.Append(t.Context(), lines("b", 1, 1)) == nil })
		e.until(lines("b", 1, 1)[0])
		early.until(lines("b", 1, 1)[0])
	})
}

func TestEndings(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		s := p.open(t, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Append(ctx, lines("a", 1, 1)); err == nil {
			t.Error("Append with an ended ctx: no error")
		}
		if err := s.Follow(ctx, func([]byte) { t.Error("a line came") }, func(bool) {}); err != nil {
			t.Errorf("Follow with an ended ctx: got %v", err)
		}
		must(t, s.Close())
		must(t, s.Close())
		if err := s.Append(t.Context(), lines("a", 1, 1)); err == nil || !strings.Contains(err.Error(), errClosed.Error()) {
			t.Errorf("Append after Close: got %v", err)
		}
	})
}

// Three sidecars of one group: whoever is asked knows what became of a message
// at each of them.
func TestOnePictureOfAGroup(t *testing.T) {
	for _, secret := range []string{"", "s3cret"} {
		t.Run("secret "+secret, func(t *testing.T) {
			conforms(t, func(t *testing.T, p place) {
				p.junk(t, []byte("no JSON"), []byte(`{"agent":"stranger"}`), []byte(strings.Repeat("x", maxLine+1)))
				logs := map[relay.AgentName]*Log{}
				for _, agent := range []relay.AgentName{"a", "b", "c"} {
					logs[agent] = run(t, p.open(t, string(agent)), agent, secret)
				}
				news := make(chan Outcome, 100)
				defer logs["c"].Watch(func(o Outcome) { news <- o })()
				for i := range 3 {
					logs["a"].Note(about(i, func(o *Outcome) { o.Decision = allow }))
					logs["a"].Note(about(i, func(o *Outcome) { o.Delivered, o.Door = relay.MillisOf(time.Now()), "gateway" }))
					logs["b"].Note(about(i, func(o *Outcome) { o.Decision, o.Stopped = refuse, relay.MaxDepth }))
				}
				logs["b"].Note(about(9, func(o *Outcome) { o.ChatID = "oc_other" }))
				for agent, l := range logs {
					eventually(t, "all outcomes at "+string(agent), func() bool {
						list, complete, err := l.Recent(t.Context(), "feishu", "oc_1", 100)
						must(t, err)
						if len(list) < 6 || !complete {
							return false
						}
						for i, o := range list {
							wantAgent := []relay.AgentName{"a", "b"}[i%2]
							if list[0].Agent == "b" { // noted within one millisecond, or read in another order
								wantAgent = o.Agent
							}
							switch {
							case o.RelayMsgID != about(i/2, nil).RelayMsgID, o.Sender != "someone", o.Agent != wantAgent,
								o.Agent == "a" && (*o.Decision != *allow || o.Door != "gateway" || o.Stopped != ""),
								o.Agent == "b" && (*o.Decision != *refuse || o.Stopped != relay.MaxDepth || o.Delivered != 0):
								t.Fatalf("outcome %d at %s is %+v", i, agent, o)
							}
						}
						return true
					})
				}
				seen := map[key]Outcome{}
				eventually(t, "the news", func() bool {
					select {
					case o := <-news:
						seen[o.key()] = o
					default:
					}
					return len(seen) == 7
				})
				logs["a"].Note(about(1, func(o *Outcome) { o.Acknowledged = relay.MillisOf(time.Now()) }))
				for o := range news { // what came in two lines is shown twice
					if o.Acknowledged == 0 {
						continue
					}
					if o.RelayMsgID != about(1, nil).RelayMsgID || o.Door != "gateway" || *o.Decision != *allow {
						t.Errorf("a receipt is shown as %+v", o)
					}
					break
				}
				eventually(t, "all is written", func() bool { return logs["a"].Stats().Pending == 0 && logs["a"].Stats().Written >= 4 })
				if got := logs["c"].Stats().Skipped; got != 3 {
					t.Errorf("skipped %d lines, want 3", got)
				}
				if got := logs["a"].Stats(); got.Dropped != 0 || got.Failed != 0 {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

// A sidecar of another secret is not believed, and does not believe.
func TestOtherSecrets(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		a, b := run(t, p.open(t, "a"), "a", "one"), run(t, p.open(t, "b"), "b", "two")
		a.Note(about(1, nil))
		b.Note(about(2, nil))
		eventually(t, "both lines", func() bool {
			_, _, err := a.Recent(t.Context(), "feishu", "oc_1", 10)
			must(t, err)
			return a.Stats().Skipped == 1 && a.Stats().Written == 1
		})
		list, _, err := a.Recent(t.Context(), "feishu", "oc_1", 10)
		must(t, err)
		if len(list) != 1 || list[0].Agent != "a" {
			t.Errorf("got %+v", list)
		}
	})
}

func TestBadArguments(t *testing.T) {
	_, noFolder := OpenFiles("", "a", nil)
	_, noAgent := OpenFiles("x", "", nil)
	_, noURL := OpenRedis("http://hunter2", "k", nil)
	_, noKey := OpenRedis("redis://localhost", "", nil)
	for i, err := range []error{noFolder, noAgent, noURL, noKey} {
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%d: got %v", i, err)
		}
	}
}

// Sidecars write at once, from many goroutines.
func TestManyNotesAtOnce(t *testing.T) {
	conforms(t, func(t *testing.T, p place) {
		const each = 300
		agents := []relay.AgentName{"a", "b", "c"}
		logs := make([]*Log, len(agents))
		for i, agent := range agents {
			logs[i] = run(t, p.open(t, string(agent)), agent, "")
		}
		for i := range each {
			for _, l := range logs {
				go l.Note(about(i, func(o *Outcome) { o.Decision = allow }))
				go l.Note(about(i, func(o *Outcome) { o.Delivered = relay.MillisOf(time.Now()) }))
			}
		}
		for _, l := range logs {
			eventually(t, "every outcome in full", func() bool {
				list, _, err := l.Recent(t.Context(), "feishu", "oc_1", 10*each)
				must(t, err)
				full := 0
				for _, o := range list {
					if o.Decision != nil && o.Delivered != 0 {
						full++
					}
				}
				return full == each*len(agents)
			})
		}
	})
}
