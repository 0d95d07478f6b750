package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"feishu-relay/internal/words"
	"feishu-relay/mailbox"
)

func TestMailboxText(t *testing.T) {
	long := strings.Repeat("x", mailbox.MaxBody)
	for name, tt := range map[string]struct {
		words    []string
		in, want string
		err      string
	}{
		"words":                 {[]string{"a", "b  c"}, "", "a b  c", ""},
		"a dash among words":    {[]string{"a", "-"}, "in", "a -", ""},
		"standard input":        {[]string{"-"}, " a\n\nb\r\n\n", " a\n\nb", ""},
		"as long as it may be":  {[]string{"-"}, long, long, ""},
		"too long":              {[]string{"-"}, long + "x", "", "longer than 65536 bytes"},
		"too long in arguments": {[]string{long, "x"}, "", "", "longer than 65536 bytes"},
		"not UTF-8":             {[]string{"a\xff"}, "", "", "not UTF-8"},
		"nothing but space":     {[]string{"-"}, " \n\t\n", "", "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := textOf(t.Context(), strings.NewReader(tt.in), tt.words)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %.40q (%d bytes), %v; want %.40q, %q", got, len(got), err, tt.want, tt.err)
			}
		})
	}
}

// Who waits for a text that nobody types can be interrupted.
func TestMailboxTextInterrupted(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := textOf(ctx, r, []string{"-"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// A call can be interrupted, says that its answer broke off, and gives its token to nobody that the sidecar points at.
func TestCallsEnd(t *testing.T) {
	clearEnvironment(t, map[string]string{"API_TOKEN": "t"})
	ctx, stop := context.WithCancel(t.Context())
	elsewhere := serveHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	for want, answer := range map[string]http.Handler{
		"answered 307": http.RedirectHandler("http://"+elsewhere, http.StatusTemporaryRedirect),
		"broke off": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"agents":[`)
		}),
		"context canceled": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			stop()
			<-r.Context().Done()
		}),
	} {
		call := t.Context()
		if want == "context canceled" {
			call = ctx
		}
		api, err := reach{serveHTTP(t, answer)}.client(newCLI(t.Context(), io.Discard, io.Discard), false, words.Words{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.call(call, http.MethodGet, "/v1/mailbox/agents", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
