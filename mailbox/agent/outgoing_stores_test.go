package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/mailbox/redisbox"
)

// patience is how long a test waits for what must come; then it fails.
const patience = 60 * time.Second

// world is a real store, of which any number are opened at one place.
type world struct {
	open func(*testing.T) mailbox.Store
	away func(*testing.T) (back func()) // breaks the store for mail to "b"
	dir  string                         // of files; "" for Redis
}

// onStores runs a test on each store.
func onStores(t *testing.T, test func(*testing.T, world)) {
	t.Parallel()
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		test(t, world{dir: dir,
			open: func(t *testing.T) mailbox.Store {
				s, err := filebox.Open(dir, nil)
				must(t, err)
				return s
			},
			away: func(t *testing.T) func() { // a folder that cannot be written, for root too
				path := filepath.Join(dir, "b")
				must(t, os.WriteFile(path, nil, 0o600))
				return func() { must(t, os.Remove(path)) }
			}})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		srv := redistest.Start(t)
		test(t, world{
			open: func(t *testing.T) mailbox.Store {
				s, err := redisbox.Open(redisbox.Options{URL: srv.URL()})
				must(t, err)
				return s
			},
			away: func(t *testing.T) func() { srv.Kill(); return func() { must(t, srv.Restart()) } }})
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.After(patience)
	for !ok() {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-end:
			t.Fatalf("never came: %s", what)
		}
	}
}

// sender is a box at work on a store.
type sender struct {
	*outgoing
	store mailbox.Store
	died  chan DeadLetter
}

// sending starts a box that waits 20 ms for an acknowledgement, and retries
// almost at once; change may be nil.
func sending(t *testing.T, w world, change func(*outgoingOptions)) *sender {
	t.Helper()
	s := &sender{store: w.open(t), died: make(chan DeadLetter, 100)}
	opts := outgoingOptions{Store: s.store, Died: func(d DeadLetter) { s.died <- d },
		AckTimeout: 20 * time.Millisecond, RetryBase: time.Millisecond, MaxRetries: 3,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&opts)
	}
	var roots []*os.Root
	for _, name := range []string{"unacked", "dead"} {
		root, err := safefile.OpenDir(filepath.Join(t.TempDir(), name))
		must(t, err)
		t.Cleanup(func() { _ = root.Close() })
		roots = append(roots, root)
	}
	var err error
	s.outgoing, err = openOutgoing(roots[0], roots[1], opts.withDefaults())
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait(); _ = s.store.Close() })
	return s
}

func mailTo(from mailbox.AgentID, i int, ack bool) mailbox.Envelope {
	return mailbox.Envelope{ID: fmt.Sprintf("%s-%d", from, i), From: from, To: "b", Timestamp: time.Now().UTC().Truncate(time.Millisecond),
		Type: mailbox.TypeMessage, Priority: 3, Hops: 3, Trace: []mailbox.AgentID{from},
		Content:  mailbox.Content{Parts: []mailbox.Part{{Type: mailbox.PartText, Text: "hello"}}},
		Metadata: mailbox.Metadata{RequiresAck: ack, TTL: new(0)}}
}

// inbox is what lies in b's inbox now, at least n, read by another process's store.
func inboxOf(t *testing.T, w world, n int) (all []mailbox.Envelope, keys []string) {
	t.Helper()
	s := w.open(t)
	defer s.Close()
	end := mailTo("end", 0, false)
	_, err := s.Put(t.Context(), mailboxtest.Sealed(end)) // when it is seen, what lay before it was
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_ = s.Receive(ctx, "b", func(i mailbox.Item) {
		e, err := mailbox.Decode(i.Raw)
		must(t, err)
		if e.ID == end.ID {
			must(t, s.Settle(t.Context(), "b", i.Key, mailbox.Taken))
			cancel()
			return
		}
		all, keys = append(all, e), append(keys, i.Key)
	}, nil)
	if len(all) < n {
		t.Fatalf("%d messages lie in the inbox, want %d", len(all), n)
	}
	return all, keys
}

func TestAcknowledgedOnStores(t *testing.T) {
	onStores(t, func(t *testing.T, w world) {
		s := sending(t, w, func(o *outgoingOptions) { o.AckTimeout = time.Hour })
		must(t, s.Send(t.Context(), mailTo("a", 1, true)))
		all, keys := inboxOf(t, w, 1)
		must(t, s.store.Settle(t.Context(), "b", keys[0], mailbox.Taken))
		if !s.Acked(all[0].ID, "b") || s.Pending() != 0 {
			t.Errorf("%d wait still", s.Pending())
		}
	})
}

// No acknowledgement: again in place, then a dead letter, which goes away when
// the acknowledgement comes after all.
func TestUnacknowledgedOnStores(t *testing.T) {
	onStores(t, func(t *testing.T, w world) {
		s := sending(t, w, nil)
		must(t, s.Send(t.Context(), mailTo("a", 1, true)))
		if d := <-s.died; d.ID != "a-1" || d.Attempts != 4 || d.Code != mailbox.AgentOffline {
			t.Errorf("died: %+v", d)
		}
		all, keys := inboxOf(t, w, 1)
		if len(all) != 1 || all[0].Metadata.RetryCount != 3 {
			t.Errorf("in the inbox: %+v, want one message, sent again three times", all)
		}
		must(t, s.store.Settle(t.Context(), "b", keys[0], mailbox.Taken))
		if !s.Acked("a-1", "b") {
			t.Error("the late acknowledgement is not known")
		}
		if left, err := s.DeadLetters(); err != nil || len(left) != 0 {
			t.Errorf("dead letters %v, %v", left, err)
		}
	})
}

// A program that moves the file and says nothing has taken the message.
func TestForeignReader(t *testing.T) {
	dir := t.TempDir()
	w := world{dir: dir, open: func(t *testing.T) mailbox.Store {
		s, err := filebox.Open(dir, nil)
		must(t, err)
		return s
	}}
	s := sending(t, w, func(o *outgoingOptions) { o.AckTimeout = 100 * time.Millisecond })
	must(t, s.Send(t.Context(), mailTo("a", 1, true)))
	_, keys := inboxOf(t, w, 1)
	must(t, os.MkdirAll(filepath.Join(dir, "b", "processed"), 0o700))
	must(t, os.Rename(filepath.Join(dir, "b", "inbox", keys[0]), filepath.Join(dir, "b", "processed", keys[0])))
	eventually(t, "taken as acknowledged", func() bool { return s.Pending() == 0 })
	if left, err := s.DeadLetters(); err != nil || len(left) != 0 {
		t.Errorf("dead letters %v, %v", left, err)
	}
}

// The clock stands still while the registry says that the receiver is away.
func TestOfflineOnStores(t *testing.T) {
	onStores(t, func(t *testing.T, w world) {
		card := mailbox.Card{AgentID: "b", Status: mailbox.Offline, MaxTasks: 1, RegisteredAt: time.Now(), LastHeartbeat: time.Now()}
		looked, online := make(chan struct{}, 1000), make(chan time.Time, 1000)
		s := sending(t, w, func(o *outgoingOptions) {
			o.Online = func(ctx context.Context, id mailbox.AgentID) bool {
				defer func() { looked <- struct{}{} }()
				cards, err := o.Store.Cards(ctx)
				i := slices.IndexFunc(cards, func(c mailbox.Card) bool { return c.AgentID == id })
				there := err == nil && i >= 0 && cards[i].At(time.Now(), time.Minute) != mailbox.Offline
				if there {
					online <- time.Now()
				}
				return there
			}
		})
		must(t, s.store.SetCard(t.Context(), card))
		must(t, s.Send(t.Context(), mailTo("a", 1, true)))
		<-looked
		if all, _ := inboxOf(t, w, 1); len(all) != 1 {
			t.Errorf("in the inbox: %+v", all)
		}
		card.Status, card.LastHeartbeat = mailbox.Idle, time.Now().Add(time.Second)
		must(t, s.store.SetCard(t.Context(), card))
		back := <-online // seconds later: the time-out is long over, and did not run
		if d := <-s.died; d.Attempts != 4 || d.DeadAt.Before(back) {
			t.Errorf("back at %s, died: %+v", back, d)
		}
	})
}

// What is sent while the store is away, or was lost with it, lies in the inbox
// afterwards in the order of its sending.
func TestStoresAway(t *testing.T) {
	onStores(t, func(t *testing.T, w world) {
		s := sending(t, w, func(o *outgoingOptions) { o.AckTimeout = time.Hour })
		back := w.away(t)
		var want []string
		for i := range 30 {
			e := mailTo("a", i, i%2 == 0)
			must(t, s.Send(t.Context(), e))
			want = append(want, e.ID)
		}
		if s.Pending() != len(want) {
			t.Errorf("%d wait, want %d", s.Pending(), len(want))
		}
		back()
		e := mailTo("a", 30, true)
		must(t, s.Send(t.Context(), e))
		want = append(want, e.ID)
		eventually(t, "all sent", func() bool { return s.Pending() == 16 }) // those that ask for an acknowledgement
		eventually(t, "the last one", func() bool { all, _ := inboxOf(t, w, 0); return len(all) > 0 && all[len(all)-1].ID == e.ID })
		all, _ := inboxOf(t, w, len(want))
		var got []string
		for _, e := range all {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("in the inbox: %v\nwant %v", got, want)
		}
	})
}

// Redis without persistence forgets an inbox; what nobody acknowledged comes again.
func TestStoreForgets(t *testing.T) {
	srv := redistest.Start(t)
	w := world{open: func(t *testing.T) mailbox.Store {
		s, err := redisbox.Open(redisbox.Options{URL: srv.URL()})
		must(t, err)
		return s
	}}
	s := sending(t, w, func(o *outgoingOptions) { o.AckTimeout, o.MaxRetries = 300*time.Millisecond, 10 })
	for i := range 5 {
		must(t, s.Send(t.Context(), mailTo("a", i, true)))
	}
	srv.Kill()
	must(t, srv.Restart())
	eventually(t, "all of them again", func() bool {
		all, _ := inboxOf(t, w, 0)
		ids := map[string]bool{}
		for _, e := range all {
			ids[e.ID] = true
		}
		return len(ids) == 5 && len(all) == 5
	})
}

// Agents whose clocks show the same do not take each other's place.
func TestTwoSendersAtOnce(t *testing.T) {
	onStores(t, func(t *testing.T, w world) {
		const each = 60
		var both sync.WaitGroup
		for _, from := range []mailbox.AgentID{"a", "c"} {
			s := sending(t, w, func(o *outgoingOptions) { o.AckTimeout = time.Hour })
			both.Go(func() {
				for i := range each {
					if err := s.Send(t.Context(), mailTo(from, i, true)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		both.Wait()
		all, keys := inboxOf(t, w, 2*each)
		next := map[mailbox.AgentID]int{}
		for _, e := range all {
			if want := mailTo(e.From, next[e.From], true).ID; e.ID != want {
				t.Fatalf("got %s, want %s", e.ID, want)
			}
			next[e.From]++
		}
		if slices.Sort(keys); len(slices.Compact(keys)) != 2*each || len(all) != 2*each {
			t.Errorf("%d messages under %d keys", len(all), len(keys))
		}
	})
}
