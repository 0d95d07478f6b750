package outcome

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/redisrelay"
)

// place is a queue that sidecars share.
type place struct {
	open func(t *testing.T, agent string) relay.Backend
}

// junk shares lines of a foreign program.
func (p place) junk(t *testing.T, lines ...[]byte) {
	t.Helper()
	_, err := p.open(t, "stranger").Publish(t.Context(), lines, "")
	must(t, err)
}

// places are the kinds of queues; each call is an empty one.
var places = map[string]func(t *testing.T) place{
	"files": func(t *testing.T) place {
		dir := filepath.Join(t.TempDir(), "relay")
		return place{func(t *testing.T, agent string) relay.Backend {
			q, err := filerelay.New(filerelay.Options{Dir: dir, Queue: "outcomes", Agent: agent, Capped: true,
				RotateSize: 4 << 20, Logger: logger(t)})
			must(t, err)
			t.Cleanup(func() { must(t, q.Close()) })
			return q
		}}
	},
	"redis": func(t *testing.T) place {
		srv := redistest.Start(t)
		return place{func(t *testing.T, agent string) relay.Backend {
			q, err := redisrelay.New(redisrelay.Options{URL: srv.URL(), Channel: "test", Stream: "test:outcomes", Agent: agent,
				MaxLen: 20_000, Logger: logger(t)})
			must(t, err)
			t.Cleanup(func() { must(t, q.Close()) })
			return q
		}}
	},
}

// everywhere runs a test over every kind of queue.
func everywhere(t *testing.T, test func(t *testing.T, p place)) {
	for kind, at := range places {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, at(t))
		})
	}
}

// Three sidecars of one group: each of them knows the outcome of a message at
// each of them.
func TestOnePictureOfAGroup(t *testing.T) {
	for _, secret := range []string{"", "s3cret"} {
		t.Run("secret "+secret, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p place) {
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
	everywhere(t, func(t *testing.T, p place) {
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
