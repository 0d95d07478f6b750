package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/selftest"
	"feishu-relay/sidecar"
)

// beside runs the sidecar of the environment, points LISTEN_ADDR at it, and returns the function that ends it.
func beside(t *testing.T, version string) (stop func()) {
	t.Helper()
	cfg, err := loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	s, err := sidecar.New(cfg.Config, sidecar.Options{Version: version, Settings: cfg.shown(), SelfTest: cfg.testSelf})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	t.Setenv("LISTEN_ADDR", s.Addr().String())
	for { // check counts the registered agents
		var status struct {
			Ready  bool
			Agents []struct{ Agent string }
		}
		if json.Unmarshal([]byte(askStatus(t)), &status) == nil && status.Ready && len(status.Agents) > 0 {
			return stop
		}
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
}

// askStatus returns what GET /v1/status of the running sidecar answers.
func askStatus(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+os.Getenv("LISTEN_ADDR")+"/v1/status", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("API_TOKEN"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A running sidecar tests itself, with its own settings; check compares these with the environment's.
func TestCheckOfARunningSidecar(t *testing.T) {
	configured(t)
	setenv(t, "RELAY_SECRET", "hidden-relay-secret", "API_TOKEN", "hidden-token-of-16", "ALLOW_FROM", "res*",
		"INJECT_URL", "http://user:hidden@127.0.0.1:1/hidden", "FEISHU_APP_SECRET", "hidden-app-secret")
	_, found := checked(t)
	if len(found["sidecar"]) > 0 {
		t.Errorf("without one: %+v", found["sidecar"])
	}
	stop := beside(t, versionText())
	_, found = checked(t)
	wants(t, found, "sidecar", selftest.OK, "ready, version "+versionText())
	wants(t, found, "local API", selftest.OK, "the running sidecar of agent_a answers")
	wants(t, found, "bot", selftest.Fail, "INJECT_URL: dial tcp")
	if len(found["sidecar settings"])+len(found["sidecar version"])+len(found["outbox"]) > 0 {
		t.Errorf("with the same settings: %+v", found)
	}
	setenv(t, "MAILBOX_GATEWAY", "on", "ALLOW_FROM", "none", "RELAY_SECRET", "hidden-other-secret", "FEISHU_APP_SECRET", "",
		"RELAY_MAX_AGE", "5m", "INJECT_URL", "")
	_, found = checked(t)
	for _, want := range []string{"MAILBOX_GATEWAY is off there and on here", "ALLOW_FROM is res* there and none here",
		"RELAY_MAX_AGE is 10m0s there and 5m0s here", "FEISHU_APP_SECRET is set there and not set here", "RELAY_SECRET is "} {
		wants(t, found, "sidecar settings", selftest.Warn, want)
	}
	wants(t, found, "bot", selftest.Fail, "INJECT_URL: dial tcp") // as the sidecar has it
	if text := askStatus(t); text == "" || strings.Contains(text, "hidden") {
		t.Errorf("a secret in GET /v1/status: %s", text)
	}
	t.Setenv("API_TOKEN", "bad")
	_, found = checked(t)
	wants(t, found, "local API", selftest.Warn, "another API_TOKEN")
	setenv(t, "API_TOKEN", "hidden-token-of-16", "AGENT_NAME", "agent_b")
	_, found = checked(t)
	wants(t, found, "local API", selftest.Fail, "the sidecar of agent_a listens")
	t.Setenv("AGENT_NAME", "agent_a")
	stop()
	beside(t, "v0.0.1")
	_, found = checked(t)
	wants(t, found, "sidecar version", selftest.Warn, "the running sidecar is v0.0.1, this program is "+versionText())
}

func TestCheckOfTheLocalAPI(t *testing.T) {
	configured(t)
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	t.Setenv("LISTEN_ADDR", other.Listener.Addr().String())
	_, found := checked(t)
	wants(t, found, "local API", selftest.Fail, "set LISTEN_ADDR")
	setenv(t, "LISTEN_ADDR", "0.0.0.0:0", "API_TOKEN", "0123456789abcdef")
	_, found = checked(t)
	wants(t, found, "tokens", selftest.Warn, "set ADMIN_TOKEN")
	t.Setenv("ADMIN_TOKEN", "fedcba9876543210")
	if _, found = checked(t); found["tokens"] != nil {
		t.Errorf("with a token for people: %+v", found["tokens"])
	}
}

// A sidecar without the route is tested here, with what its status says.
func TestCheckKnowsWhatTheSidecarKnows(t *testing.T) {
	configured(t)
	now := time.Now()
	status := fmt.Sprintf(`{"version":%q,"identity":{"agent_name":"agent_a"},"ready":false,"not_ready":"outbound queue is not being read",
		"queues":{"outbound":{"outbox":{"pending":2,"error":"no answer"}},"inbound":{"outbox":{"pending":1}}},
		"steering":{"agents":[{"agent_name":"agent_a","answer_mode":"all","group_budget":5},
			{"agent_name":"agent_b","answer_mode":"one","group_budget":5}]},
		"last_errors":[{"part":"judge","error":"no quota","at":%q,"count":3},{"part":"old","error":"long ago","at":%q,"count":1}]}`,
		versionText(), now.Add(-5*time.Minute).UTC().Format(time.RFC3339), now.Add(-2*time.Hour).UTC().Format(time.RFC3339))
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"alive"}`) })
	mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, status) })
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	t.Setenv("LISTEN_ADDR", srv.Listener.Addr().String())
	_, found := checked(t)
	wants(t, found, "sidecar", selftest.Fail, "not ready: outbound queue is not being read")
	wants(t, found, "sidecar errors", selftest.Warn, "judge: no quota (3 times, last 5 minutes ago)")
	wants(t, found, "outbox", selftest.Warn, "the outbound queue has 2 messages that the backend has not taken: no answer")
	wants(t, found, "settings of groups", selftest.Warn, "ANSWER_MODE differs: agent_a all, agent_b one")
	if len(found["sidecar errors"])+len(found["outbox"])+len(found["settings of groups"]) != 3 {
		t.Errorf("got %+v", found)
	}
}

func TestCheckJudge(t *testing.T) {
	answer := func(text string) string {
		return fmt.Sprintf(`{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, text)
	}
	for _, tt := range []struct {
		name   string
		code   int
		body   string
		status selftest.Status
		says   string
	}{
		{"no", 200, answer("no."), selftest.OK, "answered NO"},
		{"chatters", 200, answer("Well, yes"), selftest.Fail, "follows instructions"},
		{"wrong key", 401, `{"error":{"message":"wrong key hidden"}}`, selftest.Fail, "OPENAI_API_KEY"},
		{"no quota", 429, `{"error":{"message":"slow down"}}`, selftest.Fail, "the account of that key"},
		{"a web page", 200, `<html>`, selftest.Fail, "OPENAI_BASE_URL ends in the version"},
		{"a bad request", 400, `{"error":{"message":"no chat model"}}`, selftest.Fail, "a chat model of that endpoint"},
		{"too slow", 0, "", selftest.Fail, "raise BOT_REPLY_LLM_TIMEOUT"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			configured(t)
			over := make(chan struct{})
			endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.code == 0 {
					<-over
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.code)
				fmt.Fprint(w, tt.body)
			}))
			defer endpoint.Close()
			defer close(over)
			setenv(t, "OPENAI_BASE_URL", endpoint.URL+"/v1", "OPENAI_MODEL", "tiny", "OPENAI_API_KEY", "hidden")
			if tt.code == 0 {
				t.Setenv("BOT_REPLY_LLM_TIMEOUT", "100ms")
			}
			_, found := checked(t)
			wants(t, found, "judge", tt.status, tt.says)
			if strings.Contains(fmt.Sprint(found), "hidden") {
				t.Errorf("the key is shown: %v", found)
			}
		})
	}
}
