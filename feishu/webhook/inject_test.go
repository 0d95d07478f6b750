package webhook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
)

func TestInjectionsComeAgainUntilTheBotHasThem(t *testing.T) {
	refused := errors.New("connection refused")
	for _, c := range []struct {
		name string
		bot  []int // its answers: a status, 0 for none
		want []time.Duration
	}{
		{"at once", []int{200}, nil},
		{"away", []int{0, 0, 0, 0, 0, 0, 200}, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second, 15 * time.Second}},
		{"away behind a proxy", []int{502, 503, 200}, []time.Duration{time.Second, 2 * time.Second}},
		{"failing", []int{500, 404, 302, 200}, []time.Duration{15 * time.Second, 5 * time.Minute, 5 * time.Minute}},
		{"restarting after a failure", []int{0, 0, 500, 0, 200}, []time.Duration{time.Second, 2 * time.Second, 15 * time.Second, time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				r := newRig(t, "http://bot/hook", via(func(req *http.Request) (*http.Response, error) {
					at = append(at, time.Now())
					if status := c.bot[len(at)-1]; status != 0 {
						return says(status, ""), nil
					}
					return nil, refused
				}))
				if err := r.s.Inject(t.Context(), []byte(event("e1"))); err != nil {
					t.Error(err)
				}
				if len(at) != len(c.bot) {
					t.Fatalf("posted %d times, want %d", len(at), len(c.bot))
				}
				for i, want := range c.want {
					if got := at[i+1].Sub(at[i]); got != want {
						t.Errorf("wait %d: got %v, want %v", i, got, want)
					}
				}
			})
		})
	}
}

func TestAnInjectionEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, bot := range []transport{
			func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") },
			func(r *http.Request) (*http.Response, error) { return nil, wait(r.Context(), nil) },
		} {
			r := newRig(t, "http://bot/", via(bot))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			if err := r.s.Inject(ctx, []byte(event("e1"))); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
	})
}

func TestAnInjectionIsAsFeishuWouldSendIt(t *testing.T) {
	var got *http.Request
	r := newRig(t, "http://bot/hook?own=1", via(func(req *http.Request) (*http.Response, error) {
		got = req
		return says(200, ""), nil
	}))
	if err := r.s.Inject(t.Context(), []byte("{\"a\" : \"你<&>\"}\n")); err != nil {
		t.Fatal(err)
	}
	rc, err := got.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(rc)
	if err != nil {
		t.Fatal(err)
	}
	h := got.Header
	if h.Get("X-Lark-Signature") != feishu.Sign(h.Get("X-Lark-Request-Timestamp"), h.Get("X-Lark-Request-Nonce"), key, body) {
		t.Error("the signature is wrong")
	}
	if clear, err := feishu.Decrypt(key, body); err != nil || string(clear) != `{"a":"你<&>"}` {
		t.Errorf("got %s, %v", clear, err)
	}
	if got.URL.String() != "http://bot/hook?own=1" || h.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Errorf("got %s %v", got.URL, h)
	}
	if err := r.s.Inject(t.Context(), []byte("no JSON")); err == nil {
		t.Error("what is no JSON was posted")
	}
}
