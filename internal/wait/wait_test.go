package wait

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		if err := Sleep(ctx, time.Hour); err != nil || time.Since(start) != time.Hour {
			t.Errorf("slept %v: %v", time.Since(start), err)
		}
		time.AfterFunc(time.Minute, cancel)
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) || time.Since(start) != time.Hour+time.Minute {
			t.Errorf("slept %v in all: %v", time.Since(start), err)
		}
	})
}

func TestBackoff(t *testing.T) {
	b := NewBackoff(time.Second, 5*time.Second)
	for range 3 {
		for i, want := range []time.Duration{1, 2, 4, 5, 5} {
			want *= time.Second
			if got := b.Next(); got < want/2 || got > want*3/2 {
				t.Errorf("pause %d is %v, want about %v", i, got, want)
			}
		}
		b.Reset()
	}
}

func TestBoundedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var g sync.WaitGroup
		g.Go(func() { time.Sleep(time.Minute) })
		if Group(&g, time.Second) || time.Since(start) != time.Second {
			t.Errorf("too short a wait ended after %v", time.Since(start))
		}
		if !Group(&g, time.Hour) || time.Since(start) != time.Minute {
			t.Errorf("the group was done after %v", time.Since(start))
		}
		never, closed := make(chan struct{}), make(chan struct{})
		close(closed)
		if !Closed(closed, time.Hour) || Closed(never, time.Second) || time.Since(start) != time.Minute+time.Second {
			t.Errorf("the channels were waited for until %v", time.Since(start))
		}
	})
}

func TestDoubled(t *testing.T) {
	for n, want := range map[int]time.Duration{-1: 1, 0: 1, 1: 2, 2: 4, 3: 5, 1 << 40: 5} {
		if got := Doubled(time.Second, 5*time.Second, n); got != want*time.Second {
			t.Errorf("after %d failures: got %v, want %v s", n, got, int(want))
		}
	}
	if got := Doubled(0, time.Second, 1<<40); got != 0 {
		t.Errorf("nothing doubled is %v", got)
	}
	if got := Doubled(time.Minute, time.Second, 0); got != time.Second {
		t.Errorf("got %v, more than the longest", got)
	}
}
