package judge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

func TestLLMTakesOnlyYesOrNo(t *testing.T) {
	for _, tt := range []struct {
		answer string
		want   bool
		ok     bool
	}{
		{"YES", true, true}, {"NO", false, true}, {"yes", true, true}, {"No.", false, true},
		{" YES\n", true, true}, {"\"YES\"", true, true}, {"`NO`.", false, true}, {"'Yes.'", true, true},
		{"", false, false}, {"YES YES", false, false}, {"YES, because", false, false}, {"NO!", false, false},
		{"YES..", false, false}, {"Y", false, false}, {"是", false, false}, {"否", false, false}, {"TRUE", false, false},
		{"The answer is NO", false, false}, {"**YES**", false, false}, {"YES\nNO", false, false},
		{"<think>hm</think>YES", false, false}, {"YE\u017f", false, false}, {"ＹＥＳ", false, false},
	} {
		t.Run(tt.answer, func(t *testing.T) {
			got, err := newLLM(t, answers(tt.answer)).Judge(t.Context(), ask("done?"))
			if got != tt.want || (err == nil) != tt.ok || !tt.ok && !errors.Is(err, judge.ErrAnswer) {
				t.Errorf("Judge = %v, %v, want %v, ok %v", got, err, tt.want, tt.ok)
			}
		})
	}
}

func TestLLMRequest(t *testing.T) {
	e := answers("YES")
	if _, err := newLLM(t, e).Judge(t.Context(), ask("done?")); err != nil {
		t.Fatal(err)
	}
	got := e.last()
	if got.Model != judge.DefaultModel || got.auth != "Bearer "+testKey || got.req.URL.Path != "/v1/chat/completions" {
		t.Errorf("model %q, path %q, or the key is wrong", got.Model, got.req.URL.Path)
	}
	if got.MaxTokens != 0 || got.MaxCompletionTokens != 0 {
		t.Errorf("max_tokens %d, max_completion_tokens %d", got.MaxTokens, got.MaxCompletionTokens)
	}
	if got.Temperature == nil || *got.Temperature > 1e-9 {
		t.Error("the temperature is not next to zero")
	}
	if len(got.Messages) != 2 || got.Messages[0].Role != "system" || got.Messages[1].Role != "user" {
		t.Fatalf("%d messages", len(got.Messages))
	}
	if strings.Contains(got.Messages[0].Content, "done?") {
		t.Error("the system prompt holds the message")
	}
}

func TestNewChecksItsOptions(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    judge.Options
		ok   bool
	}{
		{"no key", judge.Options{}, false},
		{"a blank key", judge.Options{APIKey: " \n"}, false},
		{"only a key", judge.Options{APIKey: "k"}, true},
		{"a base URL without a host", judge.Options{APIKey: "k", BaseURL: "/v1"}, false},
		{"a base URL of another scheme", judge.Options{APIKey: "k", BaseURL: "ftp://h/v1"}, false},
		{"a base URL with a slash", judge.Options{APIKey: "k", BaseURL: "https://h/v1/"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := judge.New(tt.o); (err == nil) != tt.ok {
				t.Errorf("New: %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func TestLLMCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := answers("NO")
		l := newLLM(t, e)
		wantCalls := func(q policy.Question, want int, why string) {
			t.Helper()
			if _, err := l.Judge(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			if got := e.count(); got != want {
				t.Errorf("%s: %d calls, want %d", why, got, want)
			}
		}
		q := ask("done?")
		wantCalls(q, 1, "first")
		wantCalls(q, 1, "again")
		later := q
		later.Message.TS, later.Message.MessageID = 99, "om_9"
		wantCalls(later, 1, "the same words at another time")
		hidden := q
		hidden.Message.Content = "do\u200bne?"
		wantCalls(hidden, 1, "the same words with an invisible character")
		other := q
		other.AgentName = "agent_d"
		wantCalls(other, 2, "another agent")
		role := q
		role.AgentRole = "tests"
		wantCalls(role, 3, "another role")
		user := q
		user.FromUser = true
		wantCalls(user, 4, "the other question")
		time.Sleep(4 * time.Minute)
		wantCalls(q, 4, "after 4 minutes")
		time.Sleep(2 * time.Minute)
		wantCalls(q, 5, "after 6 minutes")
	})
}

func TestLLMAsksEqualQuestionsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(int, asked) (int, string) { time.Sleep(time.Second); return 200, completion("YES", "stop") }}
		l := newLLM(t, e)
		var wg sync.WaitGroup
		first, leave := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := l.Judge(first, ask("done?")); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who left got %v", err)
			}
		})
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				if got, err := l.Judge(t.Context(), ask("done?")); !got || err != nil {
					t.Errorf("Judge = %v, %v", got, err)
				}
			})
		}
		synctest.Wait()
		leave() // the first to ask leaves: the others still get their answer
		wg.Wait()
		if got := e.count(); got != 1 {
			t.Errorf("%d calls, want 1", got)
		}
	})
}

func TestLLMCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		e := &endpoint{reply: func(int, asked) (int, string) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return 200, completion("YES", "stop")
		}}
		l := newLLM(t, e)
		var wg sync.WaitGroup
		for i := range 3 * judge.MaxCalls {
			wg.Go(func() {
				if _, err := l.Judge(t.Context(), ask(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		if got := l.State().Calls; got != judge.MaxCalls {
			t.Errorf("%d calls under way, want %d", got, judge.MaxCalls)
		}
		wg.Wait()
		if got := most.Load(); got != judge.MaxCalls {
			t.Errorf("%d calls at once, want %d", got, judge.MaxCalls)
		}
	})
}

// A hanging endpoint costs its time-out, also those who wait behind others, and
// leaves nothing behind.
func TestLLMHangingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(int, asked) (int, string) { return 0, "" }}
		l := newLLM(t, e, func(o *judge.Options) { o.Timeout = 3 * time.Second })
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 2 * judge.MaxCalls {
			wg.Go(func() {
				_, err := l.Judge(t.Context(), ask(fmt.Sprint(i)))
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, judge.ErrOpen) {
					t.Errorf("error %v, want the deadline, or an open breaker behind it", err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v, want 3s", took)
		}
		if got := l.State(); got.Calls != 0 || got.Breaker != judge.BreakerOpen {
			t.Errorf("state %+v", got)
		}
		// The caller's own deadline is kept as well.
		l = newLLM(t, e)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if _, err := l.Judge(ctx, ask("?")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
	})
}

// No judge lifts the hard limit.
func TestLLMUnderPolicy(t *testing.T) {
	limits := policy.Limits{MaxDepth: 3, Threshold: 1, Check: true}
	obedient := newLLM(t, answers("YES"))
	for _, l := range corpus(t, "judge.jsonl", 150) {
		if d := policy.Decide(t.Context(), limits, 3, l.question(), obedient); d.Allow {
			t.Errorf("%q lifted the hard limit", l.Text)
		}
	}
}
