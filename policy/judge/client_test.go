package judge_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/policy/judge"
)

// A model that takes no temperature is found out once. A limit of tokens is never sent: its name differs, and a model
// that thinks first needs thousands.
func TestLLMLearnsThatATemperatureIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		first       int // calls for the first question
	}{{"by the endpoint", "", 2}, {"by the library, for a model that it knows", "gpt-5-mini", 1}} {
		t.Run(tt.name, func(t *testing.T) {
			e := &endpoint{reply: func(_ int, a asked) (int, string) {
				if a.Temperature != nil {
					return 400, refusal("Unsupported value: 'temperature' does not support 0 with this model.")
				}
				return 200, completion("YES", "stop")
			}}
			l := newLLM(t, e, func(o *judge.Options) { o.Model = tt.model })
			for i, want := range []int{tt.first, tt.first + 1} {
				if _, err := l.Judge(t.Context(), ask(fmt.Sprint("question ", i))); err != nil {
					t.Fatal(err)
				}
				if got := e.count(); got != want {
					t.Errorf("%d calls after question %d, want %d", got, i+1, want)
				}
			}
		})
	}
}

// Errors name the trouble and what to do, and nothing that was said.
func TestLLMErrorsHoldNoSecrets(t *testing.T) {
	const secret = "the launch code is 0000"
	leak := secret + " " + testKey
	for _, tt := range []struct {
		name  string
		reply func(n int, a asked) (int, string)
		want  string
	}{
		{"a refused key", func(int, asked) (int, string) { return 401, refusal("bad key " + leak) }, "HTTP 401: check OPENAI_API_KEY"},
		{"an unknown model", func(int, asked) (int, string) { return 404, refusal(leak) }, "HTTP 404: check OPENAI_BASE_URL and OPENAI_MODEL"},
		{"a used-up quota", func(int, asked) (int, string) { return 429, refusal(leak) }, "HTTP 429: the key's rate or quota is used up"},
		{"a broken server", func(int, asked) (int, string) { return 500, leak }, "HTTP 500"},
		{"a web page", func(int, asked) (int, string) { return 200, "<html>" + leak }, "no JSON: check OPENAI_BASE_URL"},
		{"an empty body", func(int, asked) (int, string) { return 200, "" }, "no JSON"},
		{"a body without end", func(int, asked) (int, string) { return 200, `{"x":"` + strings.Repeat("a", 2<<20) }, "no JSON"},
		{"a body too large", func(int, asked) (int, string) {
			return 200, `{"x":"` + strings.Repeat("a", 2<<20) + `",` + completion("YES", "stop")[1:]
		}, "no JSON"},
		{"no choice", func(int, asked) (int, string) { return 200, `{"choices":[]}` }, "no choice"},
		{"JSON of another kind", func(int, asked) (int, string) { return 200, `{"choices":"` + leak + `"}` }, "error of type"},
		{"an answer in prose", func(int, asked) (int, string) { return 200, completion(leak, "stop") }, "neither YES nor NO"},
		{"silence", func(int, asked) (int, string) { return 0, "" }, "no answer in time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logs bytes.Buffer
				l := newLLM(t, &endpoint{reply: tt.reply}, func(o *judge.Options) {
					o.Logger = slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
				})
				for i := range 6 { // so that the breaker opens, where it does
					_, err := l.Judge(t.Context(), ask(fmt.Sprint(secret, i)))
					if err == nil {
						t.Fatal("no error")
					}
					if i == 0 && !strings.Contains(err.Error(), tt.want) {
						t.Errorf("error %q, want it to hold %q", err, tt.want)
					}
					for _, text := range []string{err.Error(), logs.String()} {
						if strings.Contains(text, "launch") || strings.Contains(text, testKey) {
							t.Errorf("leaks: %q", text)
						}
					}
				}
			})
		})
	}
}

// An HTTP client of the caller's may say more than it should.
func TestLLMErrorsOfTheClientHoldNoKey(t *testing.T) {
	l := newLLM(t, nil, func(o *judge.Options) {
		o.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxy refused %s", r.Header.Get("Authorization"))
		})}
	})
	if _, err := l.Judge(t.Context(), ask("?")); err == nil || strings.Contains(err.Error(), testKey) ||
		!strings.Contains(err.Error(), "proxy refused") {
		t.Errorf("error %v", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLLMRetriesOnceWhatMayPass(t *testing.T) {
	for _, tt := range []struct {
		status, calls int
		ok            bool
	}{
		{429, 2, true}, {500, 2, true}, {503, 2, true}, {400, 1, false}, {401, 1, false}, {404, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := &endpoint{reply: func(n int, _ asked) (int, string) {
				if n == 1 {
					return tt.status, refusal("x")
				}
				return 200, completion("YES", "stop")
			}}
			_, err := newLLM(t, e).Judge(t.Context(), ask("?"))
			if got := e.count(); got != tt.calls || (err == nil) != tt.ok {
				t.Errorf("HTTP %d: %d calls, %v, want %d calls, ok %v", tt.status, got, err, tt.calls, tt.ok)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(int, asked) (int, string) { return 500, "" }}
		if newLLM(t, e).Judge(t.Context(), ask("?")); e.count() != 2 {
			t.Errorf("%d calls to a server that stays broken, want 2", e.count())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{reply: func(int, asked) (int, string) { time.Sleep(9 * time.Second); return 500, "" }}
		if newLLM(t, e).Judge(t.Context(), ask("?")); e.count() != 1 {
			t.Errorf("%d calls with hardly any time left, want 1", e.count())
		}
	})
}
