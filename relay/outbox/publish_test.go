package outbox

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/relay"
)

// running runs b until the test ends or stop is called.
func running(t *testing.T, b *Box, to relay.Publisher, grace time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { b.Run(ctx, to, grace); close(done) }()
	return func() { cancel(); <-done }
}

func TestRunRetriesWithBackoffAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures = 12
		q := &backend{}
		q.before = func(lines int) (int, error) {
			switch {
			case lines > 0 && len(q.calls) == 3:
				return 1, errAway // accepted, but the call fails
			case len(q.calls) <= failures:
				return 0, errAway
			}
			return lines, nil
		}
		b := openBox(t, t.TempDir(), Options{})
		put(t, b, "1", "2")
		stop := running(t, b, q, 0)
		synctest.Wait()
		if s := b.Stats(); s.Error == "" || s.Failed != 1 || s.Pending != 2 {
			t.Errorf("while the backend is away: %+v", s)
		}
		put(t, b, "3")
		time.Sleep(2 * time.Minute)
		stop()
		wantIDs(t, "published", firsts(q.saw(t)), numbers(1, 3))
		if s := b.Stats(); s.Error != "" || s.Failed != failures || s.Published != 3 {
			t.Errorf("afterwards: %+v", s)
		}
		base := retryFirst
		for i := 1; i <= failures; i++ {
			pause := q.calls[i].Sub(q.calls[i-1])
			if pause < base/2 || pause > base*3/2 {
				t.Errorf("pause %d: got %v, want %v give or take a half", i, pause, base)
			}
			base = min(2*base, retryMax)
		}
	})
}

func TestWhatTheBackendStillHasIsNotPublishedAgain(t *testing.T) {
	for _, tt := range []struct {
		name  string
		said  int           // messages
		pause time.Duration // after each but the last
		lost  int           // of the newest
	}{
		{"busy", 50, relay.PointEvery, 3},
		{"idle in between", 4, 2 * relay.PointsFor, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &backend{}
				b := openBox(t, t.TempDir(), Options{})
				stop := running(t, b, q, 0)
				for _, id := range numbers(1, tt.said-1) {
					put(t, b, id)
					time.Sleep(tt.pause)
				}
				put(t, b, strconv.Itoa(tt.said))
				synctest.Wait()
				q.lose(tt.lost)
				put(t, b, strconv.Itoa(tt.said+1))
				synctest.Wait()
				stop()
				wantIDs(t, "held", q.holds(t), numbers(1, tt.said+1))
				s := b.Stats()
				if s.Published != int64(tt.said+1) || s.Republished != int64(tt.lost) {
					t.Errorf("published %d, again %d; want %d, %d", s.Published, s.Republished, tt.said+1, tt.lost)
				}
			})
		})
	}
}

// What is old is left out. A card's age counts from when its text was final.
func TestWhatNobodyWouldActOnIsNotGivenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &backend{}
		b := openBox(t, t.TempDir(), Options{KeepFor: time.Minute})
		stop := running(t, b, q, 0)
		put(t, b, "old")
		time.Sleep(2 * time.Minute)
		put(t, b, "new")
		card := message("card")
		card.Metadata = relay.Metadata{"final_ts": fmt.Appendf(nil, "%d", card.TS)}
		card.TS -= relay.Millis((9 * time.Minute).Milliseconds()) // when it was made
		if _, err := b.Put(card); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		q.forget()
		time.Sleep(verifyEvery + time.Millisecond)
		stop()
		wantIDs(t, "held", q.holds(t), []string{"new", "card"})
	})
}

func TestShutdown(t *testing.T) {
	t.Run("makes a last try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir, q := t.TempDir(), &backend{}
			q.before = func(int) (int, error) { return 0, errAway }
			b := openBox(t, dir, Options{})
			put(t, b, "1", "2")
			stop := running(t, b, q, time.Second)
			synctest.Wait()
			q.before = nil
			stop()
			wantIDs(t, "published", q.saw(t), numbers(1, 2))
			b = openBox(t, dir, Options{}) // without Close: the place is saved
			wantEmpty(t, b)
		})
	})
	t.Run("ends in time and loses nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			b := openBox(t, dir, Options{})
			put(t, b, "1")
			began := time.Now()
			stop := running(t, b, hanging{}, 3*time.Second)
			synctest.Wait()
			stop()
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("took %v, want at most the grace", took)
			}
			q := &backend{}
			drain(t, openBox(t, dir, Options{}), q)
			wantIDs(t, "published", q.saw(t), []string{"1"})
		})
	})
}

// hanging is a backend that answers nothing until the call's time is over.
type hanging struct{}

func (hanging) Publish(ctx context.Context, _ [][]byte, _ relay.Receipt) (relay.Receipt, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// narrow is a backend behind a network that passes so many bytes a second.
type narrow struct {
	backend
	rate int // guarded by mu of backend
}

func (n *narrow) Publish(ctx context.Context, lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	n.mu.Lock()
	takes := time.Duration(float64(bytes)/float64(n.rate)*float64(time.Second)) + 30*time.Millisecond
	n.mu.Unlock()
	select {
	case <-time.After(takes):
		return n.backend.Publish(ctx, lines, after)
	case <-ctx.Done():
		return "", fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// A network that is too narrow for a whole batch within the limit of a call gets smaller ones: a backlog gets through,
// whatever its lines, from memory or from the disk, also one that the backend has lost.
func TestNarrowNetwork(t *testing.T) {
	const n = 27
	for name, length := range map[string]func(i int) int{
		"lines of one length":          func(int) int { return 50_000 },
		"a long line among short ones": func(i int) int { return map[bool]int{true: 250_000, false: 20_000}[i%9 == 8] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				b := openBox(t, dir, Options{KeepFor: time.Hour})
				q := &narrow{rate: 30_000}
				for i := range n {
					m := message(fmt.Sprint(i + 1))
					m.Content = strings.Repeat("x", length(i))
					if _, err := b.Put(m); err != nil {
						t.Fatal(err)
					}
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				b = openBox(t, dir, Options{KeepFor: time.Hour})
				stop := running(t, b, q, 0)
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				wantIDs(t, "published", q.saw(t), numbers(1, n))
				q.forget()
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				wantIDs(t, "held", q.holds(t), numbers(1, n))
				stop()
			})
		})
	}
}

// A backlog that is longer than what is kept in memory comes from the disk, and what is put
// meanwhile after it, each line once.
func TestABacklogThatMemoryDoesNotHold(t *testing.T) {
	b, q := openBox(t, t.TempDir(), Options{}), &backend{}
	const half = 40
	long := strings.Repeat("x", maxFresh/half*3/2)
	for i := range 2 * half {
		m := message(strconv.Itoa(i + 1))
		m.Content = long
		if _, err := b.Put(m); err != nil {
			t.Fatal(err)
		}
		if b.held > maxFresh {
			t.Fatalf("%d bytes are kept in memory", b.held)
		}
		if i%16 == 15 {
			if _, err := b.step(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
	}
	drain(t, b, q)
	wantIDs(t, "published", q.saw(t), numbers(1, 2*half))
	wantEmpty(t, b)
	if len(b.fresh) != 0 || b.held != 0 {
		t.Errorf("%d lines of %d bytes are still in memory", len(b.fresh), b.held)
	}
}
