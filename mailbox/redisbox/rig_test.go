package redisbox

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

// patience is how long a test waits for what must come; then it fails.
const patience = 60 * time.Second

// open makes a store that is closed with the test; change may be nil.
func open(t testing.TB, url string, self mailbox.AgentID, change func(*Options)) *Store {
	t.Helper()
	opts := Options{URL: url, Self: self}
	if tt, ok := t.(*testing.T); ok {
		opts.Logger = slog.New(slog.NewTextHandler(tt.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&opts)
	}
	s, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// rawClient is the library as it comes, on a server.
func rawClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ear runs one Receive at a time.
type ear struct {
	t      testing.TB
	s      *Store
	agent  mailbox.AgentID
	items  chan mailbox.Item
	cancel context.CancelFunc
	ended  chan error
}

// hearing starts receiving, and stops with the test.
func hearing(t testing.TB, s *Store, agent mailbox.AgentID) *ear {
	t.Helper()
	e := &ear{t: t, s: s, agent: agent, items: make(chan mailbox.Item, 1<<15)}
	e.start()
	t.Cleanup(e.stop)
	return e
}

func (e *ear) start() {
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel, e.ended = cancel, make(chan error, 1)
	go func() { e.ended <- e.s.Receive(ctx, e.agent, func(i mailbox.Item) { e.items <- i }, nil) }()
}

func (e *ear) stop() {
	e.cancel()
	err := <-e.ended
	e.ended <- err
}

// fault waits until Receive returns by itself.
func (e *ear) fault() error {
	e.t.Helper()
	select {
	case err := <-e.ended:
		e.ended <- err
		if err == nil || errors.Is(err, context.Canceled) {
			e.t.Fatalf("Receive returned %v", err)
		}
		return err
	case <-time.After(patience):
		e.t.Fatal("Receive did not notice that Redis is gone")
		panic("not reached")
	}
}

func (e *ear) next() mailbox.Item {
	e.t.Helper()
	select {
	case i := <-e.items:
		return i
	case err := <-e.ended:
		e.ended <- err // for stop
		e.t.Fatalf("Receive returned %v", err)
	case <-time.After(patience):
		e.t.Fatal("no mail came")
	}
	panic("not reached")
}

// want takes exactly these envelopes, and returns their keys.
func (e *ear) want(ids ...string) []string {
	e.t.Helper()
	keys := make([]string, len(ids))
	for i, id := range ids {
		item := e.next()
		keys[i] = item.Key
		if got := decode(e.t, item).ID; got != id {
			e.t.Fatalf("got the message %s, want %s", got, id)
		}
	}
	return keys
}

func decode(t testing.TB, i mailbox.Item) mailbox.Envelope {
	t.Helper()
	e, err := mailbox.Decode(i.Raw)
	if err != nil {
		t.Fatalf("%s holds %.80q: %v", i.Key, i.Raw, err)
	}
	return e
}

// hearingGoals is hearing for an agent with these goals, on whose channels it listens then.
func hearingGoals(t testing.TB, raw *redis.Client, s *Store, agent mailbox.AgentID, goals ...string) *ear {
	t.Helper()
	c := mailboxtest.Card(agent, 1)
	c.Goals = goals
	if err := s.SetCard(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	e := hearing(t, s, agent)
	listening(t, raw, goals...)
	return e
}

// listening waits until somebody listens for each goal.
func listening(t testing.TB, raw *redis.Client, goals ...string) {
	t.Helper()
	for _, goal := range goals {
		channel := peerPrefix + goal
		relaytest.Eventually(t, "listening for "+goal, func() bool {
			return raw.PubSubNumSub(t.Context(), channel).Val()[channel] == 1
		})
	}
}

func put(t testing.TB, s *Store, list ...mailbox.Envelope) []string {
	t.Helper()
	keys := make([]string, len(list))
	for i, e := range list {
		var err error
		if keys[i], err = s.Put(t.Context(), mailboxtest.Sealed(e)); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

func ids(list []mailbox.Envelope) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.ID
	}
	return out
}

func mails(first, last int) []mailbox.Envelope {
	return mailboxtest.Envelopes("alice", "bob", first, last)
}

// toGoal makes the i-th message for a goal.
func toGoal(i int, goal string) mailbox.Envelope {
	e := mailboxtest.Envelope("alice", "bob", i)
	e.Metadata.Goal = goal
	return e
}

func TestConformance(t *testing.T) {
	t.Parallel()
	conforms(t, redistest.Start(t))
}

// A server without HELLO speaks RESP2 alone.
func TestConformanceWithoutHello(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	conforms(t, redistest.Start(t, "--rename-command", "HELLO", ""))
}

func conforms(t *testing.T, srv *redistest.Server) {
	raw := rawClient(t, srv.URL())
	var at string // the case that the server is empty for
	mailboxtest.Run(t, func(t *testing.T) mailbox.Store {
		if t.Name() != at {
			at = t.Name()
			if err := raw.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(Options{URL: srv.URL(), Self: "suite", Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
