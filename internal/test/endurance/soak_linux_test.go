package endurance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/wait"
)

// soakEnv is how long the soak test runs, such as 10m or 2h.
const soakEnv = "SOAK"

// Bots on webhooks and behind gateways talk in groups and by mail, on files and on a Redis, while
// sidecars are killed and the Redis is restarted. In the end each message was delivered once, or was
// stopped for a reason; a repeat needs a kill. In the sidecars that are never killed, memory,
// goroutines and descriptors are the same at half-time and in the end.
func TestSoak(t *testing.T) {
	if os.Getenv(soakEnv) == "" {
		t.Skip("it runs for minutes or hours by `make soak`")
	}
	length, err := time.ParseDuration(os.Getenv(soakEnv))
	must(t, err)
	program := presentProgram(t)
	for _, backend := range []string{"file", "redis"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := &soak{team: newTeam(t, teamSetup{redis: backend == "redis", webhooks: []string{"agent_a", "agent_b"},
				gateways: []string{"agent_g", "agent_h"}, env: map[string]string{"RELAY_SECRET": secret,
					"MAX_BOT_REPLY_DEPTH": "100", "BOT_REPLY_LLM_THRESHOLD": "100", "STOP_NOTICE": "off",
					"RELAY_MAX_AGE": "2m", "ACK_TIMEOUT": "1m", "MAX_RETRIES": "10"}})}
			s.steady = []*bot{s.bot("agent_a"), s.bot("agent_g")}
			s.mortal = []*bot{s.bot("agent_b"), s.bot("agent_h")}
			for _, b := range s.bots {
				b.as(program)
			}
			s.start(limited(t), s.bots...)
			s.half(t, length/2)
			middle := s.measure(t, "half-time")
			s.half(t, length/2)
			s.flat(t, middle, s.measure(t, "the end"))
			s.account(t)
		})
	}
}

// soak is a team under load.
type soak struct {
	*team
	steady, mortal       []*bot
	kills, restarts      atomic.Int64
	persons, mails, said atomic.Int64
}

// open is how many deliveries may be due before the bots wait.
const open = 40

// half lets everything happen for a while, and waits until all is delivered.
func (s *soak) half(t *testing.T, length time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length+2*patience) // for what was begun to end
	defer cancel()
	over, end := context.WithTimeout(t.Context(), length)
	defer end()
	watching, watched := context.WithCancel(ctx)
	var working, looking sync.WaitGroup
	defer looking.Wait()
	defer watched()
	loop := func(what string, pause time.Duration, f func(context.Context) error) {
		working.Go(func() {
			for wait.Sleep(over, time.Duration(rand.Int64N(int64(2*pause)))) == nil {
				if err := f(ctx); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	for _, b := range s.bots {
		loop(b.name, 100*time.Millisecond, func(ctx context.Context) error { return s.speak(ctx, b) })
	}
	loop("person", 2*time.Second, func(context.Context) error {
		s.persons.Add(1)
		_, err := s.sim.Say(s.chat, s.user.ID, fmt.Sprintf("words %d of a person", s.persons.Load()))
		return err
	})
	a, b := s.bot("agent_a"), s.bot("agent_b")
	for _, pair := range [][2]*bot{{a, b}, {b, a}} {
		loop("mail", time.Second, func(ctx context.Context) error {
			s.mails.Add(1)
			_, err := pair[0].mail(ctx, pair[1], fmt.Sprintf("mail %d", s.mails.Load()))
			return err
		})
	}
	for _, b := range s.mortal {
		loop("kill", 10*time.Second, func(ctx context.Context) error { return s.kill(ctx, b) })
	}
	if s.redis != nil {
		loop("redis", 30*time.Second, func(ctx context.Context) error {
			s.restarts.Add(1)
			s.redis.Kill()
			_ = wait.Sleep(ctx, time.Duration(rand.Int64N(int64(3*time.Second))))
			return s.redis.Restart()
		})
	}
	looking.Go(func() { s.collect(watching) })
	looking.Go(func() {
		for wait.Sleep(watching, 30*time.Second) == nil {
			t.Log(s.progress())
		}
	})
	working.Wait()
	for _, b := range s.bots {
		b.ready(ctx)
	}
	s.book.complete(ctx, t)
	for _, b := range s.bots {
		eventually(ctx, t, b.name+" is idle", func() bool { return b.idle(ctx) })
	}
}

// speak lets a bot say something to the group, now and then something long.
func (s *soak) speak(ctx context.Context, b *bot) error {
	if err := s.book.await(ctx, func() bool { return len(s.book.due) < open }); err != nil {
		return fmt.Errorf("wait for deliveries: %w", err)
	}
	text := fmt.Sprintf("words %d of %s. ", s.said.Add(1), b.name)
	if b.sdk == nil && rand.IntN(5) == 0 {
		text += strings.Repeat("and so on ", 10<<10)
	}
	_, err := b.say(ctx, text)
	return err
}

// kill ends a sidecar and starts it again a little later.
func (s *soak) kill(ctx context.Context, b *bot) error {
	s.kills.Add(1)
	b.kill()
	if err := wait.Sleep(ctx, time.Duration(rand.Int64N(int64(2*time.Second)))); err != nil {
		return err
	}
	return b.side.start()
}

// collect reads from the outcomes what was stopped, until ctx is done.
func (s *soak) collect(ctx context.Context) {
	for wait.Sleep(ctx, time.Second) == nil {
		s.team.collect(ctx, s.steady[0])
	}
}

// collect reads from the outcomes what was stopped, as the sidecar of a bot knows them.
func (n *team) collect(ctx context.Context, by *bot) {
	var shown struct {
		Outcomes []struct {
			Agent      string
			RelayMsgID string `json:"relay_msg_id"`
			Stopped    string
		}
	}
	route := "/v1/outcomes?limit=1000&chat_id=" + n.chat
	if status, _, err := by.call(ctx, http.MethodGet, route, nil, &shown); err != nil || status != http.StatusOK {
		return
	}
	for _, o := range shown.Outcomes {
		if o.Stopped != "" {
			n.book.stop(o.Agent, o.RelayMsgID, o.Stopped)
		}
	}
}

func (s *soak) progress() string {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	came := 0
	for _, ids := range s.book.came {
		came += len(ids)
	}
	return fmt.Sprintf("%d messages and mails of bots, %d of a person; %d deliveries, %d stopped, %d due; "+
		"%d kills, %d restarts of Redis",
		len(s.book.sent), s.persons.Load(), came, len(s.book.stopped), len(s.book.due), s.kills.Load(), s.restarts.Load())
}

// usage is what a process takes.
type usage struct{ heap, goroutines, descriptors, rss float64 }

// measure measures the sidecars that are never killed when they are at rest.
func (s *soak) measure(t *testing.T, when string) map[string]usage {
	t.Helper()
	ctx := limited(t)
	out := map[string]usage{}
	for _, b := range s.steady {
		// The heap's goal is twice what was alive at the last collection. Reading the transcript allocates,
		// and so leads to the next ones.
		var m map[string]float64
		first := b.metrics(ctx, t)["go_gc_duration_seconds_count"]
		eventually(ctx, t, "collections of "+b.name, func() bool {
			b.do(ctx, http.MethodGet, "/v1/transcripts/feishu/"+s.chat+"?limit=500", nil, nil)
			m = b.metrics(ctx, t)
			return m["go_gc_duration_seconds_count"] >= first+3
		})
		u := usage{heap: m["go_memstats_next_gc_bytes"] / 2, goroutines: m["go_goroutines"],
			descriptors: m["process_open_fds"], rss: m["process_resident_memory_bytes"]}
		out[b.name] = u
		t.Logf("%s, %s: live heap %.1f MiB, %.0f goroutines, %.0f descriptors, RSS %.1f MiB", when, b.name,
			u.heap/(1<<20), u.goroutines, u.descriptors, u.rss/(1<<20))
	}
	return out
}

// metrics are a sidecar's series that have no other label than the agent.
func (s *side) metrics(ctx context.Context, t *testing.T) map[string]float64 {
	t.Helper()
	_, text, err := s.call(ctx, http.MethodGet, "/metrics", nil, nil)
	must(t, err)
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), `{agent="`+s.name+`"} `); ok {
			out[name], err = strconv.ParseFloat(value, 64)
			must(t, err)
		}
	}
	return out
}

// flat fails where something has grown since half-time: by more than half and 4 MiB, 20 goroutines,
// or 10 descriptors.
func (s *soak) flat(t *testing.T, middle, end map[string]usage) {
	t.Helper()
	for name, e := range end {
		m := middle[name]
		if e.heap > 1.5*m.heap+4<<20 || e.goroutines > m.goroutines+20 || e.descriptors > m.descriptors+10 {
			t.Errorf("%s has grown: %+v at half-time, %+v in the end", name, m, e)
		}
	}
}

// account checks that nothing came twice without a kill, and that the transcript has everything once.
func (s *soak) account(t *testing.T) {
	t.Helper()
	found, repeats := s.book.faults(func(name string, life int) bool {
		b := s.bot(name)
		// What an SDK had read before the kill it may hand over when the next life has begun.
		return b.wasKilled(life) || b.sdk != nil && b.wasKilled(life-1)
	})
	for _, f := range found {
		t.Error(f)
	}
	s.recorded(limited(t), t)
	rotated, err := filepath.Glob(filepath.Join(s.dir, "relay", "outbound.*.jsonl"))
	must(t, err)
	reasons := map[string]int{}
	s.book.mu.Lock()
	for _, reason := range s.book.stopped {
		reasons[reason]++
	}
	s.book.mu.Unlock()
	t.Logf("%s; stop reasons %v; %d repeats after kills; %d rotated files of the queue", s.progress(),
		reasons, repeats, len(rotated))
}
