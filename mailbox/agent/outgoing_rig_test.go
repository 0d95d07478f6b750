package agent

import (
	"cmp"
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

	"feishu-relay/mailbox"
)

var errAway = errors.New("the store is away")

// store is a mailbox.Store of functions; those left nil do well.
type store struct {
	mailbox.Store
	put   func(context.Context, mailbox.Envelope) (string, error)
	again func(context.Context, string, mailbox.Envelope) (string, error)
	where func(context.Context, mailbox.AgentID, string) (mailbox.Place, error)
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

// rig is a box at work on the clock of a bubble.
type rig struct {
	*outgoing
	t     *testing.T
	dir   string
	opts  outgoingOptions
	start time.Time
	stop  func()

	mu     sync.Mutex
	calls  []string // of Put and Again: when, what, the message, its retryCount, the key
	keys   int
	err    error // what Put and Again say
	wheres error // what Where says
	place  mailbox.Place
	away   map[mailbox.AgentID]bool
	looks  int // how often it was asked who is online
	died   []DeadLetter
}

// story runs fn with a box at work: acknowledgements are awaited for 30 s, the
// first pause is 1 s, without chance, and there are 3 retries.
func story(t *testing.T, fn func(*rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, dir: dir, start: time.Now(), place: mailbox.Waiting, away: map[mailbox.AgentID]bool{}}
		r.opts = outgoingOptions{MaxRetries: 3, Online: r.online, Died: r.dies, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			Store: &store{
				put: func(_ context.Context, e mailbox.Envelope) (string, error) { return r.call("put", "", e) },
				again: func(_ context.Context, key string, e mailbox.Envelope) (string, error) {
					return r.call("again", key, e)
				},
				where: r.whereIs,
			}}
		r.open()
		defer func() { r.stop() }()
		fn(r)
	})
}

// open opens the box, as a process that starts does.
func (r *rig) open() {
	r.t.Helper()
	r.outgoing = openBox(r.t, r.dir, r.opts)
	r.outgoing.random = func() float64 { return 0 }
	r.run()
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	r.stop = func() { cancel(); running.Wait(); _ = r.state.close() }
	synctest.Wait()
}

func openBox(tb testing.TB, dir string, opts outgoingOptions) *outgoing {
	tb.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	defer root.Close()
	opts = opts.withDefaults()
	book, err := openState(root, opts.Logger)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = book.close() })
	b := openOutgoing(book, opts)
	if err := book.each(opts.Logger, b.restore); err != nil {
		tb.Fatal(err)
	}
	return b
}

// withDefaults fills in what a test leaves out.
func (o outgoingOptions) withDefaults() outgoingOptions {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.AckTimeout, o.RetryBase = cmp.Or(o.AckTimeout, 30*time.Second), cmp.Or(o.RetryBase, time.Second)
	if o.Online == nil {
		o.Online = func(context.Context, mailbox.AgentID) bool { return true }
	}
	if o.Acknowledges == nil {
		o.Acknowledges = func(context.Context, mailbox.AgentID) bool { return false }
	}
	if o.Died == nil {
		o.Died = func(DeadLetter) {}
	}
	return o
}

// Send is Post of an envelope.
func (b *outgoing) Send(ctx context.Context, e mailbox.Envelope) error {
	m, err := b.opts.Signing.Seal(e)
	if err != nil {
		return err
	}
	return cmp.Or(ctx.Err(), b.Post(m))
}

// reopen stops the box and opens it again.
func (r *rig) reopen() {
	r.t.Helper()
	r.stop()
	r.open()
}

func (r *rig) call(what, key string, e mailbox.Envelope) (string, error) {
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

func (r *rig) online(_ context.Context, agent mailbox.AgentID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	return !r.away[agent]
}

func (r *rig) dies(d DeadLetter) {
	if !slices.ContainsFunc(r.DeadLetters(), func(x DeadLetter) bool { return x.ID == d.ID }) {
		r.t.Errorf("told of %s before it was on disk", d.ID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.died = append(r.died, d)
}

// set changes what the world says, and lets the box go on.
func (r *rig) set(fn func()) {
	r.mu.Lock()
	fn()
	r.mu.Unlock()
}

// gone makes coder go away, or come back, which the box sees at once.
func (r *rig) gone(away bool) {
	r.set(func() { r.away["coder"] = away })
	r.outgoing.mu.Lock()
	if coder := r.receivers["coder"]; coder != nil {
		r.noteLook(coder, !away)
		r.plan(time.Now())
	}
	r.outgoing.mu.Unlock()
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
	if err := r.Send(r.t.Context(), e); err != nil {
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
	got := []int{r.Pending(), len(r.DeadLetters())}
	if want := []int{waiting, dead}; !slices.Equal(got, want) {
		r.t.Errorf("waiting, dead letters: got %v, want %v", got, want)
	}
}

// wantDied fails where no message, or another one, has died last.
func (r *rig) wantDied(id string, code mailbox.Code, attempts int, reason string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.died) == 0 {
		r.t.Errorf("%s has not died", id)
		return
	}
	d := r.died[len(r.died)-1]
	if d.ID != id || d.Code != code || d.Attempts != attempts || !strings.Contains(d.Reason, reason) || d.Envelope.ID != id {
		r.t.Errorf("died: %s, %s, %d attempts, %q; want %s, %s, %d, %q", d.ID, d.Code, d.Attempts, d.Reason, id, code, attempts, reason)
	}
}
