package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

var errAway = errors.New("the store is away")

// store is a mailbox.Store of functions; those left nil do well.
type store struct {
	mailbox.Store
	put   func(context.Context, mailbox.Envelope) (string, error)
	again func(context.Context, string, mailbox.Envelope) (string, error)
	where func(context.Context, mailbox.AgentID, string) (mailbox.Place, error)
	cards func(context.Context) ([]mailbox.Card, error)
}

func (s *store) Put(ctx context.Context, m mailbox.Sealed) (string, error) {
	return s.put(ctx, m.Envelope)
}

func (s *store) Again(ctx context.Context, key string, m mailbox.Sealed) (string, error) {
	return s.again(ctx, key, m.Envelope)
}

func (s *store) Where(ctx context.Context, to mailbox.AgentID, key string) (mailbox.Place, error) {
	return s.where(ctx, to, key)
}

func (s *store) Cards(ctx context.Context) ([]mailbox.Card, error) { return s.cards(ctx) }

func (s *store) SetCard(context.Context, mailbox.Card) error { return nil }

// rig is an agent that sends, on the clock of a bubble. Nothing comes for it.
type rig struct {
	*Agent
	t     *testing.T
	dir   string
	store *store
	start time.Time
	stop  func()

	mu     sync.Mutex
	calls  []string // of Put and Again: when, what, the message, its retryCount, the key
	keys   int
	err    error // what Put and Again say
	wheres error // what Where says
	place  mailbox.Place
	away   map[mailbox.AgentID]bool
}

// story runs fn with an agent at work: acknowledgements are awaited for 30 s, the
// first pause is 1 s, without chance, and there are 3 retries.
func story(t *testing.T, fn func(*rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, dir: dir, start: time.Now(), place: mailbox.Waiting, away: map[mailbox.AgentID]bool{}}
		r.store = &store{
			put: func(_ context.Context, e mailbox.Envelope) (string, error) { return r.call("put", "", e) },
			again: func(_ context.Context, key string, e mailbox.Envelope) (string, error) {
				return r.call("again", key, e)
			},
			where: r.whereIs, cards: r.cards,
		}
		r.open()
		defer func() { r.stop() }()
		fn(r)
	})
}

// open opens the agent, as a process that starts does.
func (r *rig) open() {
	r.t.Helper()
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	defer root.Close()
	r.Agent, err = New(Options{Self: "me", Store: r.store, State: root, AckTimeout: 30 * time.Second, RetryBase: time.Second,
		MaxRetries: 3, HeartbeatTimeout: 90 * time.Second, Logger: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
		Trace: func(string) {}, Observe: func(Event) {}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.random = func() float64 { return 0 }
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.watchTimes(ctx) })
	r.stop = func() { cancel(); running.Wait(); _ = r.Close() }
	synctest.Wait()
}

// Send posts an envelope.
func (r *rig) Send(e mailbox.Envelope) error {
	m, err := r.opts.Signing.Seal(e)
	if err != nil {
		return err
	}
	r.Agent.mu.Lock()
	defer r.Agent.mu.Unlock()
	return r.post(m)
}

func (r *rig) Acked(id string, from mailbox.AgentID) bool {
	r.Agent.mu.Lock()
	defer r.Agent.mu.Unlock()
	return r.acked(id, from)
}

func (r *rig) Nacked(id string, from mailbox.AgentID, code mailbox.Code, message string) bool {
	r.Agent.mu.Lock()
	defer r.Agent.mu.Unlock()
	return r.nacked(id, from, code, message)
}

// change changes a letter, as nothing outside can.
func (r *rig) change(id string, f func(*letter)) {
	r.Agent.mu.Lock()
	defer r.Agent.mu.Unlock()
	for n := range r.all() {
		if n.Head.ID == id {
			f(n)
			r.save(n)
		}
	}
}

// reopen stops the agent and opens it again.
func (r *rig) reopen() {
	r.t.Helper()
	r.stop()
	r.open()
}

func (r *rig) call(what, key string, e mailbox.Envelope) (string, error) {
	if e.To == "me" { // a notice for the bot
		return "notice", nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("%gs %s %s %d", time.Since(r.start).Seconds(), what, e.ID, e.Metadata.RetryCount)
	if r.err != nil {
		r.calls = append(r.calls, line+" failed")
		return "", r.err
	}
	if key == "" || r.place != mailbox.Waiting { // as filebox does: in its place, else a new file
		r.keys++
		key = fmt.Sprintf("k%d", r.keys)
	}
	r.calls = append(r.calls, line+" "+key)
	return key, nil
}

func (r *rig) whereIs(context.Context, mailbox.AgentID, string) (mailbox.Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place, r.wheres
}

func (r *rig) cards(context.Context) (list []mailbox.Card, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range []mailbox.AgentID{"coder", "tester"} {
		c := mailbox.Card{AgentID: id, Status: mailbox.Idle, Present: true}
		if r.away[id] {
			c.Status = mailbox.Offline
		}
		list = append(list, c)
	}
	return list, nil
}

// set changes what the world says, and lets the agent go on.
func (r *rig) set(fn func()) {
	r.mu.Lock()
	fn()
	r.mu.Unlock()
}

// gone makes coder go away, or come back, which the agent sees at once.
func (r *rig) gone(away bool) {
	r.set(func() { r.away["coder"] = away })
	r.forgetCards()
	r.Agent.mu.Lock()
	if coder := r.receivers["coder"]; coder != nil {
		coder.looked = time.Time{}
	}
	r.Agent.mu.Unlock()
	wait.Wake(r.wake)
	synctest.Wait()
}

// after lets time pass.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// message is one that asks for an acknowledgement and lives for ever.
func message(id string) mailbox.Envelope {
	return mailbox.Envelope{ID: id, From: "me", To: "coder", Timestamp: time.Now().UTC().Truncate(time.Millisecond),
		Type: mailbox.TypeMessage, Priority: 3, Hops: 3, Trace: []mailbox.AgentID{"me"},
		Content:  mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: "hello <b>"}}},
		Metadata: mailbox.Metadata{RequiresAck: true, TTL: new(0)}}
}

func (r *rig) send(e mailbox.Envelope) {
	r.t.Helper()
	if err := r.Send(e); err != nil {
		r.t.Fatalf("send %s: %v", e.ID, err)
	}
	synctest.Wait()
}

func (r *rig) wantCalls(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.calls, want) {
		r.t.Errorf("the store was called\n\t%s\nwant\n\t%s", strings.Join(r.calls, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// wantLeft fails where not so many messages wait.
func (r *rig) wantLeft(waiting, dead int) {
	r.t.Helper()
	if w, d := r.Counts().Unacknowledged, len(r.DeadLetters()); w != waiting || d != dead {
		r.t.Errorf("waiting, dead letters: got %d, %d, want %d, %d", w, d, waiting, dead)
	}
}

// wantDied fails where no message, or another one, has died last.
func (r *rig) wantDied(id string, code mailbox.Code, attempts int, reason string) {
	r.t.Helper()
	list := r.DeadLetters()
	if len(list) == 0 {
		r.t.Errorf("%s has not died", id)
		return
	}
	d := list[0]
	if d.ID != id || d.Code != code || d.Attempts != attempts || !strings.Contains(d.Reason, reason) || d.Envelope.ID != id {
		r.t.Errorf("died: %s, %s, %d attempts, %q; want %s, %s, %d, %q", d.ID, d.Code, d.Attempts, d.Reason, id, code,
			attempts, reason)
	}
}
