//go:build unix

package redisrelay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/test/netfault"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

// sends is what a publisher did: number n was handed to Publish calls[n] times, and all up to accepted
// were accepted at last.
type sends struct {
	mu       sync.Mutex
	calls    map[int]int // guarded by mu
	accepted int         // guarded by mu

	forgotten atomic.Int64 // times that Redis had lost some
}

func numberedLine(i int) string { return fmt.Sprintf(`{"seq":%d}`, i) }

func (s *sends) upTo() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// publishAll publishes numbers from 1 on until stop, as an outbox does.
func (s *sends) publishAll(q *Queue, stop *atomic.Bool) {
	var receipt relay.Receipt
	for next := 1; !stop.Load() || next <= s.upTo(); {
		const batch = 3
		var lines [][]byte
		s.mu.Lock()
		for i := next; i < next+batch; i++ {
			s.calls[i]++
			lines = append(lines, []byte(numberedLine(i)))
		}
		s.mu.Unlock()
		r, err := q.Publish(context.Background(), lines, receipt)
		switch {
		case err == nil:
			receipt = r
			next += batch
			s.mu.Lock()
			s.accepted = max(s.accepted, next-1)
			s.mu.Unlock()
		case errors.Is(err, relay.ErrForgotten):
			receipt, next = "", 1
			s.forgotten.Add(1)
		}
		<-time.After(10 * time.Millisecond) // the rate, and the pause before a repeat
	}
}

// reads is what a reader was given, over its lives.
type reads struct {
	mu       sync.Mutex
	lives    [][]int // numbers; guarded by mu
	restarts int64   // of the stream, as this reader saw it; guarded by mu
}

// live reads until ctx is done.
func (r *reads) live(ctx context.Context, t *testing.T, q *Queue) {
	r.mu.Lock()
	r.lives = append(r.lives, nil)
	r.mu.Unlock()
	err := q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
		defer d.Settle()
		var m struct{ Seq int }
		if err := json.Unmarshal(d.Line, &m); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lives[len(r.lives)-1] = append(r.lives[len(r.lives)-1], m.Seq)
	})
	if err != nil {
		t.Error(err)
	}
	r.mu.Lock()
	r.restarts += q.Stats().Restarts
	r.mu.Unlock()
}

// has reports whether n has come.
func (r *reads) has(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.lives, func(life []int) bool { return slices.Contains(life, n) })
}

// broken counts the promises that were not kept. A message that was published again, as after an error, may
// come again; and all may once more where the stream was replaced.
func (r *reads) broken(s *sends) map[string]int {
	found := map[string]int{}
	last, seen := 0, map[int]int{}
	for _, life := range r.lives {
		here := map[int]int{}
		for _, n := range life {
			may := s.calls[n] * int(1+r.restarts)
			here[n]++
			seen[n]++
			switch {
			case here[n] > may:
				found["twice"]++ // more often than it was published
			case seen[n] > may:
				found["back"]++ // it was settled, and came again after an orderly restart
			case seen[n] == 1 && n < last:
				found["order"]++
			}
			last = max(last, n)
		}
	}
	for n := 1; n <= s.accepted; n++ {
		if seen[n] == 0 {
			found["lost"]++
		}
	}
	return found
}

func TestBrokenPromisesAreFound(t *testing.T) {
	s := &sends{calls: map[int]int{1: 1, 2: 1, 3: 1}, accepted: 3}
	for want, lives := range map[string][][]int{
		"": {{1, 2}, {3}}, "lost": {{1}, {3}}, "order": {{1, 3}, {2}}, "twice": {{1, 2, 2, 3}}, "back": {{1, 2}, {2, 3}},
	} {
		found := (&reads{lives: lives}).broken(s)
		if want == "" && len(found) > 0 || want != "" && (found[want] == 0 || len(found) > 1) {
			t.Errorf("%v: found %v, want %q", lives, found, want)
		}
	}
}

// traffic is a publisher and a reader at work, and what they saw.
type traffic struct {
	t    *testing.T
	open func(name string) *Queue
	sent *sends
	read *reads

	stopped atomic.Bool
	working sync.WaitGroup
	end     func() // of the reader's life
}

// startTraffic begins, at a stream that keeps all that is sent.
func startTraffic(t *testing.T, url, channel string) *traffic {
	t.Helper()
	dir := t.TempDir()
	tr := &traffic{t: t, sent: &sends{calls: map[int]int{}}, read: &reads{}, open: func(name string) *Queue {
		return open(t, url, name, dir, func(o *Options) { o.Channel, o.MaxLen = channel, 1_000_000 })
	}}
	tr.live()
	publisher := tr.open("publisher")
	tr.working.Go(func() { tr.sent.publishAll(publisher, &tr.stopped) })
	t.Cleanup(func() {
		tr.stopped.Store(true)
		_ = publisher.Close()
		tr.end()
	})
	return tr
}

// live begins a life of the reader.
func (tr *traffic) live() {
	tr.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	q := tr.open("reader")
	reading.Go(func() { tr.read.live(ctx, tr.t, q) })
	tr.end = sync.OnceFunc(func() {
		cancel()
		reading.Wait()
		_ = q.Close()
	})
	relaytest.Eventually(tr.t, "reading", func() bool { return q.Status().Reading })
}

// more waits until n more messages are accepted and read.
func (tr *traffic) more(n int) {
	tr.t.Helper()
	n += tr.sent.upTo()
	relaytest.Eventually(tr.t, fmt.Sprintf("message %d is accepted and read", n), func() bool {
		return tr.sent.upTo() >= n && tr.read.has(n)
	})
}

// finish waits for all that was sent, and looks whether all promises were kept.
func (tr *traffic) finish() {
	tr.t.Helper()
	tr.stopped.Store(true)
	tr.working.Wait()
	relaytest.Eventually(tr.t, "the last message", func() bool { return tr.read.has(tr.sent.accepted) })
	tr.end()
	if found := tr.read.broken(tr.sent); len(found) > 0 {
		tr.t.Errorf("promises that were broken: %v", found)
	}
	tr.t.Logf("%d messages", tr.sent.accepted)
}

// Messages and positions on Redis keep their promises under each network fault.
func TestHistoryOfAQueue(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	for _, f := range netfault.Faults {
		if os.Getenv("FAULT_ROUNDS") == "" && f.Name != "half-open" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			path := netfault.Start(t, redistest.Start(t).Addr())
			url := "redis://" + path.Addr()
			probe := open(t, url, "probe", t.TempDir(), nil)
			listenTo(t, probe, true)
			tr := startTraffic(t, url, testChannel)
			tr.more(20)
			must(t, path.Begin(f))
			if f.Stops {
				relaytest.Eventually(t, "the fault is noticed", func() bool { return !probe.Status().Connected })
			} else {
				tr.more(20)
			}
			path.End()
			tr.more(20)
			tr.end() // in order
			tr.live()
			tr.more(20)
			tr.finish()
		})
	}
}
