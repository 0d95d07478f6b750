package judge_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/policy/judge"
)

func TestLLMBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		e := &endpoint{reply: func(int, asked) (int, string) {
			if broken.Load() {
				return 403, refusal("x")
			}
			return 200, completion("YES", "stop")
		}}
		l := newLLM(t, e)
		asks := 0
		judgeNow := func() error {
			asks++
			_, err := l.Judge(t.Context(), ask(fmt.Sprint(asks)))
			return err
		}
		for range 5 {
			if err := judgeNow(); errors.Is(err, judge.ErrOpen) {
				t.Fatal("open too early")
			}
		}
		// Each probe that fails opens it again.
		for range 3 {
			calls := e.count()
			state := l.State()
			if state.Breaker != judge.BreakerOpen || time.Until(state.RetryAt) != time.Minute {
				t.Fatalf("state %+v, want open for a minute", state)
			}
			time.Sleep(time.Minute - time.Second)
			if err := judgeNow(); !errors.Is(err, judge.ErrOpen) || e.count() != calls {
				t.Errorf("asked while open: %v", err)
			}
			time.Sleep(time.Second + 1)
			if err := judgeNow(); errors.Is(err, judge.ErrOpen) || e.count() != calls+1 {
				t.Errorf("no probe after a minute: %v", err)
			}
		}
		broken.Store(false)
		time.Sleep(time.Minute + 1)
		for range 3 {
			if err := judgeNow(); err != nil {
				t.Errorf("after it was fixed: %v", err)
			}
		}
		if got := l.State(); got.Breaker != judge.BreakerClosed || got.Failures != 0 {
			t.Errorf("state %+v, want closed", got)
		}
		broken.Store(true) // and it counts from the beginning again
		for range 5 {
			judgeNow()
		}
		if got := time.Until(l.State().RetryAt); got != time.Minute {
			t.Errorf("open for %v, want a minute", got)
		}
	})
}

func TestLLMBreakerLetsOneProbeThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(int, asked) (int, string) { time.Sleep(time.Second); return 403, refusal("x") }}
		l := newLLM(t, e)
		for i := range 5 {
			l.Judge(t.Context(), ask(fmt.Sprint("first", i)))
		}
		time.Sleep(time.Minute + 1)
		var wg sync.WaitGroup
		var refused atomic.Int64
		for i := range 10 {
			wg.Go(func() {
				if _, err := l.Judge(t.Context(), ask(fmt.Sprint(i))); errors.Is(err, judge.ErrOpen) {
					refused.Add(1)
				}
			})
		}
		synctest.Wait()
		if got := l.State().Breaker; got != judge.BreakerProbe {
			t.Errorf("breaker %q during the probe", got)
		}
		wg.Wait()
		if e.count() != 6 || refused.Load() != 9 {
			t.Errorf("%d calls and %d refused, want 6 and 9", e.count(), refused.Load())
		}
	})
}

// What began before the breaker opened neither closes it nor makes it wait longer, and
// what waited for its turn meanwhile is refused at once.
func TestLLMBreakerAndCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(n int, _ asked) (int, string) {
			time.Sleep(time.Duration(n) * time.Second)
			if n == 7 {
				return 200, completion("YES", "stop")
			}
			return 403, refusal("x")
		}}
		l := newLLM(t, e)
		var wg sync.WaitGroup
		for i := range judge.MaxCalls {
			wg.Go(func() { l.Judge(t.Context(), ask(fmt.Sprint(i))) })
		}
		time.Sleep(5500 * time.Millisecond) // five have failed, the seventh will not
		opened := l.State()
		wg.Wait()
		if got := l.State(); opened.Breaker != judge.BreakerOpen || got.Breaker != judge.BreakerOpen || got.RetryAt != opened.RetryAt {
			t.Errorf("state %+v, then %+v", opened, got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(int, asked) (int, string) { time.Sleep(time.Second); return 403, refusal("x") }}
		l := newLLM(t, e)
		var wg sync.WaitGroup
		var refused atomic.Int64
		for i := range 3 * judge.MaxCalls {
			wg.Go(func() {
				if _, err := l.Judge(t.Context(), ask(fmt.Sprint(i))); errors.Is(err, judge.ErrOpen) {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		// The first eight fail in the same instant; the next may have begun between them.
		if calls := e.count(); calls > 2*judge.MaxCalls || int(refused.Load())+calls != 3*judge.MaxCalls {
			t.Errorf("%d calls and %d refused", calls, refused.Load())
		}
	})
}

// A message that makes the model babble, or that the endpoint's filter refuses,
// must not take the judge away from all others.
func TestLLMBreakerIgnoresWhatTextsCanCause(t *testing.T) {
	for _, reply := range []func(int, asked) (int, string){
		func(int, asked) (int, string) { return 200, completion("I would rather not say", "stop") },
		func(int, asked) (int, string) { return 200, completion("", "length") },
		func(int, asked) (int, string) { return 400, refusal("content management policy") },
		func(int, asked) (int, string) { return 413, refusal("too large") },
	} {
		e := &endpoint{reply: reply}
		l := newLLM(t, e)
		for i := range 12 {
			if _, err := l.Judge(t.Context(), ask(fmt.Sprint(i))); err == nil || errors.Is(err, judge.ErrOpen) {
				t.Errorf("question %d: %v", i, err)
			}
		}
		if got := l.State().Breaker; got != judge.BreakerClosed {
			t.Errorf("breaker %q", got)
		}
	}
}
