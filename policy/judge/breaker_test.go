package judge_test

import (
	"errors"
	"fmt"
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
