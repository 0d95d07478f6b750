package agent

import (
	"math"
	"testing"
	"testing/quick"
	"time"
)

func TestBackoff(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		n      int
		base   time.Duration
		random float64
		want   time.Duration
	}{
		{0, s, 0, s},
		{1, s, 0, 2 * s},
		{2, s, 0, 4 * s},
		{5, s, 0, 32 * s},
		{6, s, 0, 60 * s},
		{1000, s, 0, 60 * s},
		{math.MaxInt, s, 1, 60 * s},
		{math.MaxInt, 0, 1, 0},
		{0, s, 1, 1250 * time.Millisecond},
		{2, s, 0.5, 4500 * time.Millisecond},
		{5, s, 1, 40 * s},
		{6, s, 1, 60 * s},
		{-3, s, 0, s},
		{0, -s, 1, 0},
		{3, math.MaxInt64, 1, 60 * s},
		{0, s, math.NaN(), s},
		{0, s, math.Inf(1), 1250 * time.Millisecond},
		{0, s, -1, s},
	} {
		if got := backoff(tt.n, tt.base, maxPause, tt.random); got != tt.want {
			t.Errorf("backoff(%d, %s, %g): got %s, want %s", tt.n, tt.base, tt.random, got, tt.want)
		}
	}
}

// It grows with n and with chance, is at most a quarter longer by chance, and
// never over a minute.
func TestBackoffBounds(t *testing.T) {
	holds := func(n int, base time.Duration, random float64) bool {
		random, _ = math.Modf(math.Abs(random))
		pause, least, most := backoff(n, base, maxPause, random), backoff(n, base, maxPause, 0), backoff(n, base, maxPause, 1)
		next := backoff(n, base, maxPause, 0)
		if n < math.MaxInt {
			next = backoff(n+1, base, maxPause, 0)
		}
		return 0 <= least && least <= pause && pause <= most && most <= time.Minute && least <= next &&
			most <= least+least/4 && (base <= 0) == (most == 0)
	}
	small := func(n uint8, base uint32, random float64) bool { return holds(int(n), time.Duration(base), random) }
	for _, property := range []any{holds, small} {
		if err := quick.Check(property, &quick.Config{MaxCount: 5000}); err != nil {
			t.Error(err)
		}
	}
}
