package webhook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"feishu-relay/feishu"
)

// A bot that thinks inside its handler is posted to once.
func TestAnInjectionWaitsForTheAnswer(t *testing.T) {
	bot := httptest.NewServer(nil)
	defer bot.Close()
	finish, posts := make(chan struct{}), make(chan struct{}, 9)
	bot.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		posts <- struct{}{}
		<-finish
	})
	r := newRig(t, bot.URL, nil)
	written, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- r.s.Inject(t.Context(), feishu.Injection{Event: []byte(event("e1")), Written: func() { close(written) }})
	}()
	<-posts
	<-written
	close(finish)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(posts) != 0 {
		t.Error("posted again")
	}
}

func TestAnInjectionWhoseConnectionEnds(t *testing.T) {
	bot := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer bot.Close()
	r := newRig(t, bot.URL, nil)
	for range 2 {
		if err := inject(r, t.Context(), event("e1")); !errors.Is(err, feishu.ErrInjectionEnded) {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnInjectionEndsWithItsContext(t *testing.T) {
	r := newRig(t, "http://bot/", via(func(r *http.Request) (*http.Response, error) { return nil, wait(r.Context(), nil) }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := inject(r, ctx, event("e1")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAnInjectionIsAsFeishuWouldSendIt(t *testing.T) {
	var got *http.Request
	var body []byte
	bot := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		got = req
		body, _ = io.ReadAll(req.Body)
	}))
	defer bot.Close()
	r := newRig(t, bot.URL+"/hook?own=1", nil)
	if err := inject(r, t.Context(), "{\"a\" : \"你<&>\"}\n"); err != nil {
		t.Fatal(err)
	}
	h := got.Header
	if h.Get("X-Lark-Signature") != feishu.Sign(h.Get("X-Lark-Request-Timestamp"), h.Get("X-Lark-Request-Nonce"), key, body) {
		t.Error("the signature is wrong")
	}
	if clear, err := feishu.Decrypt(key, body); err != nil || string(clear) != `{"a":"你<&>"}` {
		t.Errorf("got %s, %v", clear, err)
	}
	if got.URL.String() != "/hook?own=1" || h.Get("Content-Type") != "application/json; charset=utf-8" {
		t.Errorf("got %s %v", got.URL, h)
	}
	if err := inject(r, t.Context(), "no JSON"); err == nil {
		t.Error("what is no JSON was posted")
	}
}
