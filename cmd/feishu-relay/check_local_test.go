package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"feishu-relay/sidecar"
)

func TestCheckListen(t *testing.T) {
	t.Run("another program", func(t *testing.T) {
		configured(t)
		other := httptest.NewServer(http.NotFoundHandler())
		defer other.Close()
		t.Setenv("LISTEN_ADDR", other.Listener.Addr().String())
		_, found := checked(t)
		wants(t, found, "local API", statusFail, "set LISTEN_ADDR")
	})
	t.Run("beyond loopback", func(t *testing.T) {
		configured(t)
		setenv(t, "LISTEN_ADDR", "0.0.0.0:0", "API_TOKEN", "0123456789abcdef")
		_, found := checked(t)
		wants(t, found, "tokens", statusWarn, "set ADMIN_TOKEN")
		t.Setenv("ADMIN_TOKEN", "fedcba9876543210")
		if _, found = checked(t); found["tokens"] != nil {
			t.Errorf("with a token for people: %+v", found["tokens"])
		}
	})
	t.Run("sidecars", func(t *testing.T) {
		configured(t)
		t.Setenv("API_TOKEN", "good")
		cfg, err := loadConfig()
		if err != nil {
			t.Fatal(err)
		}
		s, err := sidecar.New(cfg.Config, sidecar.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		t.Setenv("LISTEN_ADDR", s.Addr().String())
		code, found := checked(t)
		wants(t, found, "local API", statusOK, "the running sidecar of agent_a answers")
		wants(t, found, "this agent", statusOK, "is running")
		if code != 0 {
			t.Errorf("beside a running sidecar: status %d: %v", code, found)
		}
		t.Setenv("API_TOKEN", "bad")
		_, found = checked(t)
		wants(t, found, "local API", statusWarn, "another API_TOKEN")
		t.Setenv("API_TOKEN", "good")
		t.Setenv("AGENT_NAME", "agent_b")
		_, found = checked(t)
		wants(t, found, "local API", statusFail, "the sidecar of agent_a listens")
	})
}

func TestCheckJudge(t *testing.T) {
	answer := func(text string) string {
		return fmt.Sprintf(`{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, text)
	}
	tests := []struct {
		name   string
		code   int
		body   string
		status status
		says   string
	}{
		{"yes", 200, answer("YES"), statusOK, "tiny answered YES in "},
		{"no", 200, answer("no."), statusOK, "answered NO"},
		{"chatters", 200, answer("Well, yes"), statusFail, "follows instructions"},
		{"wrong key", 401, `{"error":{"message":"wrong key hidden"}}`, statusFail, "OPENAI_API_KEY"},
		{"wrong model or path", 404, `{"error":{"message":"no such model"}}`, statusFail, "OPENAI_MODEL is a model of that endpoint"},
		{"no quota", 429, `{"error":{"message":"slow down"}}`, statusFail, "the account of that key"},
		{"a web page", 200, `<html>`, statusFail, "OPENAI_BASE_URL ends in the version"},
		{"a bad request", 400, `{"error":{"message":"no chat model"}}`, statusFail, "a chat model of that endpoint"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			configured(t)
			endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(tt.body))
			}))
			defer endpoint.Close()
			t.Setenv("OPENAI_BASE_URL", endpoint.URL+"/v1")
			t.Setenv("OPENAI_MODEL", "tiny")
			t.Setenv("OPENAI_API_KEY", "hidden")
			_, found := checked(t)
			wants(t, found, "judge", tt.status, tt.says)
			if strings.Contains(fmt.Sprint(found), "hidden") {
				t.Errorf("the key is shown: %v", found)
			}
		})
	}
	t.Run("too slow", func(t *testing.T) {
		configured(t)
		over := make(chan struct{})
		endpoint := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
		defer endpoint.Close()
		defer close(over)
		t.Setenv("OPENAI_BASE_URL", endpoint.URL)
		t.Setenv("OPENAI_API_KEY", "hidden")
		t.Setenv("BOT_REPLY_LLM_TIMEOUT", "100ms")
		_, found := checked(t)
		wants(t, found, "judge", statusFail, "raise BOT_REPLY_LLM_TIMEOUT")
	})
	t.Run("given more time than the check has", func(t *testing.T) {
		for allowed, want := range map[time.Duration]status{longLimit: statusFail, time.Minute: statusWarn} {
			if got := judgeFailure("tiny", fmt.Errorf("judge: %w", context.DeadlineExceeded), allowed)[0]; got.Status != want || !strings.Contains(got.Mend.en, "a faster model") {
				t.Errorf("%s: got %+v, want %s", allowed, got, want)
			}
		}
	})
	t.Run("off", func(t *testing.T) {
		configured(t)
		t.Setenv("BOT_REPLY_LLM_CHECK", "false")
		_, found := checked(t)
		wants(t, found, "judge", statusOK, "off")
	})
}
