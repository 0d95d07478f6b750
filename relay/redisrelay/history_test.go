//go:build unix

package redisrelay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"feishu-relay/internal/test/netfault"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
)

// breach names a promise of the queue that was not kept.
type breach string

const (
	breachLost  breach = "lost"    // a message that was accepted was not handed over
	breachOrder breach = "order"   // one of a sender came before an earlier one
	breachTwice breach = "twice"   // one came more often than it was published and the stream replaced
	breachBack  breach = "back"    // one that was settled came again after an orderly restart
	breachClaim breach = "claimed" // two hold one claim
)

// sends is what a publisher did: number n was handed to Publish calls[n] times, and all up to accepted
// were accepted at last.
type sends struct {
	mu       sync.Mutex
	calls    map[int]int // guarded by mu
	accepted int         // guarded by mu
}

// publishAll publishes numbers from 1 on until stop, as an outbox does.
func (s *sends) publishAll(q *Queue, stop *atomic.Bool) {
	var receipt relay.Receipt
	for next := 1; ; {
		s.mu.Lock()
		if stop.Load() && s.accepted >= next-1 && next > s.accepted {
			s.mu.Unlock()
			return
		}
		const batch = 3
		var lines [][]byte
		for i := next; i < next+batch; i++ {
			s.calls[i]++
			lines = append(lines, fmt.Appendf(nil, `{"seq":%d}`, i))
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
		}
		<-time.After(10 * time.Millisecond) // the rate, and the pause before a repeat
	}
}

// reads is what a reader was given, over its lives. It lies to its history once when it is armed.
type reads struct {
	lie   breach // "": it is honest
	armed *atomic.Bool

	mu       sync.Mutex
	got      [][]int // numbers, by life; guarded by mu
	restarts int64   // of the stream, as this reader saw it; guarded by mu
	lied     bool    // guarded by mu
	held     int     // given after the next one; guarded by mu
	dropped  int     // never given; guarded by mu
}

// live reads until ctx is done.
func (r *reads) live(ctx context.Context, t *testing.T, q *Queue) {
	r.mu.Lock()
	var settled []int // the earlier lives'
	for _, life := range r.got {
		settled = append(settled, life...)
	}
	r.got = append(r.got, nil)
	if r.lie == breachBack && len(settled) > 0 {
		r.note(slices.Repeat(settled, 20)...) // more often than it was published
	}
	r.mu.Unlock()
	err := q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
		defer d.Settle()
		text, _ := cutByte(string(d.Line), '{')
		n, err := strconv.Atoi(text[len(`"seq":`) : len(text)-1])
		if err != nil {
			t.Error(err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		now := r.lie != "" && !r.lied && r.armed.Load()
		switch {
		case now && r.lie == breachLost && !r.came(n): // a repeat is not lost
			r.lied, r.dropped = true, n
		case r.dropped == n: // the stream was replaced, and all comes again
		case now && r.lie == breachTwice:
			r.lied = true
			r.note(slices.Repeat([]int{n}, 100_000)...)
		case now && r.lie == breachOrder && !slices.Contains(r.got[len(r.got)-1], n):
			r.lied, r.held = true, n
		case r.held > 0:
			r.note(n, r.held)
			r.held = 0
		default:
			r.note(n)
		}
	})
	if err != nil {
		t.Error(err)
	}
	r.mu.Lock()
	r.restarts += q.Stats().Restarts
	r.mu.Unlock()
}

// note adds to the present life; r.mu is held.
func (r *reads) note(numbers ...int) {
	life := len(r.got) - 1
	r.got[life] = append(r.got[life], numbers...)
}

// has reports whether n has come.
func (r *reads) has(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.came(n)
}

// came is has; r.mu is held.
func (r *reads) came(n int) bool {
	return slices.ContainsFunc(r.got, func(life []int) bool { return slices.Contains(life, n) })
}

// hasLied reports whether the lie is done that is for the present life.
func (r *reads) hasLied() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lied || r.lie == breachBack
}

// check compares what was read with what was sent. A message that was published again, as after an error, may
// come again; and all may once more where the stream was replaced.
func (r *reads) check(s *sends) map[breach]int {
	found := map[breach]int{}
	last, seen := 0, map[int]int{}
	for _, life := range r.got {
		here := map[int]int{}
		for _, n := range life {
			may := s.calls[n] * int(1+r.restarts)
			if here[n]++; here[n] > may {
				found[breachTwice]++
			}
			if seen[n]++; seen[n] == 1 {
				if n < last {
					found[breachOrder]++
				}
				last = max(last, n)
			} else if seen[n] > may && here[n] <= may {
				found[breachBack]++
			}
		}
	}
	for n := 1; n <= s.accepted; n++ {
		if seen[n] == 0 {
			found[breachLost]++
		}
	}
	return found
}

// claims is what several saw who claimed the same keys.
type claims struct {
	mu  sync.Mutex
	ops map[string][]porcupine.Operation // by key; guarded by mu
}

type claimInput struct{ owner string }

// claimModel is a key that belongs to who claims it first.
var claimModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		holder := cmp.Or(state.(string), input.(claimInput).owner)
		return output == "" || output == holder, holder // "": no answer came
	},
}

var claimClock atomic.Int64

// claim claims a key for owner; lies says that it lies and is answered with itself.
func (c *claims) claim(q *Queue, key, owner string, lies bool) {
	called := claimClock.Add(1)
	holder, err := q.Claim(context.Background(), key, owner, time.Hour)
	returned := claimClock.Add(1)
	if err != nil {
		holder, returned = "", math.MaxInt64 // it may yet take effect
	} else if lies {
		holder = owner
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops[key] = append(c.ops[key], porcupine.Operation{Input: claimInput{owner}, Output: holder, Call: called, Return: returned})
}

func (c *claims) check() map[breach]int {
	found := map[breach]int{}
	for _, ops := range c.ops {
		if !porcupine.CheckOperations(claimModel, ops) {
			found[breachClaim]++
		}
	}
	return found
}

// trial is a Redis and what is done to it while the histories are made.
type trial struct {
	url    string
	begin  func() error // the fault
	end    func() error
	passes bool // while the fault is there
	claims bool // they hold: no server is lost, with what its replica did not get
}

// run makes the histories, with a fault on the way: those of honest clients keep all promises, and in those of
// each liar, who lied while the fault was there, the checker finds the lie.
func (tr trial) run(t *testing.T) {
	dir := t.TempDir()
	opened := func(name string) *Queue {
		return open(t, tr.url, name, dir, func(o *Options) { o.MaxLen = 1_000_000 })
	}
	var armed, stop atomic.Bool
	all := []*reads{{}}
	for _, lie := range []breach{breachLost, breachOrder, breachTwice, breachBack} {
		all = append(all, &reads{lie: lie, armed: &armed})
	}
	life := func() (end func()) {
		ctx, cancel := context.WithCancel(context.Background())
		var reading sync.WaitGroup
		for i, r := range all {
			q := opened(fmt.Sprint("reader", i))
			reading.Go(func() {
				r.live(ctx, t, q)
				_ = q.Close()
			})
			eventually(t, "reading", func() bool { return q.Status().Reading })
		}
		return sync.OnceFunc(func() {
			cancel()
			reading.Wait()
		})
	}
	end := life()
	defer func() { end() }()
	sent := &sends{calls: map[int]int{}}
	accepted := func() int {
		sent.mu.Lock()
		defer sent.mu.Unlock()
		return sent.accepted
	}
	var working sync.WaitGroup
	defer working.Wait()
	defer stop.Store(true)
	publisher := opened("publisher")
	working.Go(func() { sent.publishAll(publisher, &stop) })
	honest, lying := &claims{ops: map[string][]porcupine.Operation{}}, &claims{ops: map[string][]porcupine.Operation{}}
	for i := range 3 {
		q := opened(fmt.Sprint("claimer", i))
		working.Go(func() {
			for n := 0; !stop.Load(); n++ {
				owner := fmt.Sprint("owner", i)
				honest.claim(q, fmt.Sprint("key", n/3), owner, false)
				lying.claim(q, fmt.Sprint("other", n/3), owner, armed.Load())
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	reach := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("message %d", n), func() bool { return accepted() >= n })
		eventually(t, fmt.Sprintf("message %d is read", n), func() bool { return all[0].has(n) })
	}
	reach(20)
	must(t, tr.begin())
	armed.Store(true)
	if tr.passes {
		reach(accepted() + 20)
	}
	must(t, tr.end())
	reach(accepted() + 20)
	for _, r := range all[1:] {
		eventually(t, "the lie", func() bool { return r.hasLied() })
	}
	armed.Store(false)
	end() // in order
	end = life()
	reach(accepted() + 20)
	stop.Store(true)
	working.Wait()
	for _, r := range all {
		eventually(t, "the last message", func() bool { return r.has(sent.accepted) || r.lie == breachLost })
	}
	end()
	for _, r := range all {
		found := r.check(sent)
		if r.lie != "" && found[r.lie] == 0 || r.lie == "" && len(found) > 0 {
			t.Errorf("a reader that lies with %q: the checker found %v", r.lie, found)
		}
	}
	if found := honest.check(); tr.claims && len(found) > 0 {
		t.Errorf("claims: the checker found %v", found)
	}
	if len(lying.check()) == 0 {
		t.Error("the checker did not find that a claim was granted twice")
	}
	t.Logf("%d messages, claims of %d keys", sent.accepted, len(honest.ops))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Messages, positions and claims on Redis keep their promises under each network fault, and where another server
// takes the place of a primary.
func TestHistoryOfAQueue(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	long := os.Getenv("FAULT_ROUNDS") != ""
	for _, f := range netfault.Faults {
		if !long && f.Name != "half-open" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			path := netfault.Start(t, redistest.Start(t).Addr())
			probe := open(t, "redis://"+path.Addr(), "probe", t.TempDir(), nil)
			listenTo(t, probe, true)
			trial{url: "redis://" + path.Addr(), claims: true, passes: !f.Stops,
				begin: func() error { return path.Begin(f) },
				end: func() error {
					if f.Stops {
						eventually(t, "the fault is noticed", func() bool { return !probe.Status().Connected })
					}
					path.End()
					return nil
				}}.run(t)
		})
	}
	if !long {
		return
	}
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		w := redistest.StartWatched(t)
		trial{url: w.URL(), begin: func() error { w.Primary.Kill(); return nil }, end: func() error {
			eventually(t, "another primary", func() bool { return w.Serving() == w.Replica.Addr() })
			return nil
		}}.run(t)
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t)
		slot := c.Slot(testChannel + ":log")
		lost, _ := c.Owner(slot)
		trial{url: c.URL(), begin: func() error { lost.Kill(); return nil }, end: func() error {
			eventually(t, "another primary", func() bool {
				now, _ := c.Owner(slot)
				return now != nil && now != lost
			})
			return nil
		}}.run(t)
	})
}
