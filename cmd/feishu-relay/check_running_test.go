package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/sidecar"
)

// beside runs the sidecar of the environment, points LISTEN_ADDR at it, and
// returns the function that ends it.
func beside(t *testing.T, version string) (stop func()) {
	t.Helper()
	cfg, err := loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	s, err := sidecar.New(cfg.Config, sidecar.Options{Version: version, Settings: cfg.shown()})
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
	for registered := false; !registered; { // check counts the registered agents
		var status struct{ Agents []struct{ Agent string } }
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr().String()+"/v1/status", nil)
		req.Header.Set("Authorization", "Bearer "+os.Getenv("API_TOKEN"))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = json.NewDecoder(resp.Body).Decode(&status)
			resp.Body.Close()
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
		registered = len(status.Agents) > 0
	}
	return stop
}

func TestCheckRunningSidecar(t *testing.T) {
	configured(t)
	_, found := checked(t)
	if len(found["sidecar"]) > 0 {
		t.Errorf("without one: %+v", found["sidecar"])
	}
	stop := beside(t, versionText())
	code, found := checked(t)
	wants(t, found, "sidecar", statusOK, "ready, version "+versionText())
	if code != 0 || len(found["sidecar version"])+len(found["sidecar errors"])+len(found["outbox"])+len(found["dead letters"]) > 0 {
		t.Errorf("status %d: %+v", code, found)
	}
	stop()
	beside(t, "v0.0.1")
	_, found = checked(t)
	wants(t, found, "sidecar version", statusWarn, "the running sidecar is v0.0.1, this program is "+versionText())
}

// An env file that was changed after the sidecar was started, or that is another one's.
func TestCheckComparesItsSettingsWithTheRunningSidecars(t *testing.T) {
	configured(t)
	setenv(t, "RELAY_SECRET", "hidden-relay-secret", "API_TOKEN", "hidden-token-of-16", "ALLOW_FROM", "res*",
		"INJECT_URL", "http://user:hidden@127.0.0.1:1/hidden", "FEISHU_APP_SECRET", "hidden-app-secret")
	beside(t, versionText())
	_, found := checked(t)
	if len(found["sidecar settings"]) > 0 {
		t.Errorf("with the same settings: %+v", found["sidecar settings"])
	}
	setenv(t, "MAILBOX_GATEWAY", "on", "ALLOW_FROM", "none", "RELAY_SECRET", "hidden-other-secret", "FEISHU_APP_SECRET", "",
		"RELAY_MAX_AGE", "5m")
	_, found = checked(t)
	for _, want := range []string{"MAILBOX_GATEWAY is off there and on here", "ALLOW_FROM is res* there and none here",
		"RELAY_MAX_AGE is 10m0s there and 5m0s here", "FEISHU_APP_SECRET is set there and not set here", "RELAY_SECRET is "} {
		wants(t, found, "sidecar settings", statusWarn, want)
	}
	code, text, err := askStatus(t)
	if err != nil || code != http.StatusOK || strings.Contains(text, "hidden") {
		t.Errorf("a secret in GET /v1/status, or %d, %v: %s", code, err, text)
	}
}

// askStatus returns what GET /v1/status of the running sidecar answers.
func askStatus(t *testing.T) (code int, text string, err error) {
	t.Helper()
	cfg, err := loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	var answer json.RawMessage
	code, err = askLocal(t.Context(), &cfg, "/v1/status", &answer)
	return code, string(answer), err
}

func TestCheckComparesTheSidecarsOfAGroup(t *testing.T) {
	configured(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"identity":{"agent_name":"agent_a"},"ready":true,"steering":{"agents":[
			{"agent_name":"agent_a","answer_mode":"all","group_budget":5},{"agent_name":"agent_b","answer_mode":"one","group_budget":5}]}}`)
	}))
	t.Cleanup(srv.Close)
	t.Setenv("LISTEN_ADDR", srv.Listener.Addr().String())
	_, found := checked(t)
	wants(t, found, "settings of groups", statusWarn, "ANSWER_MODE differs: agent_a all, agent_b one")
	if got := found["settings of groups"]; len(got) != 1 {
		t.Errorf("found %v", got)
	}
}

// What only happens by and by is played by a server that answers like a sidecar.
func TestCheckKnowsWhatTheSidecarKnows(t *testing.T) {
	now := time.Now()
	hour, before := now.Add(-2*time.Hour).UTC().Format(time.RFC3339), now.Add(-5*time.Minute).UTC().Format(time.RFC3339)
	status := func(pending string) string {
		return `{"version":"` + versionText() + `","identity":{"agent_name":"agent_a"},"ready":false,"not_ready":"outbound queue is not being read","queues":{
			"outbound":{"outbox":{"pending":` + pending + `,"error":"no answer"}},"inbound":{"outbox":{"pending":0}}},
			"last_errors":[{"part":"judge","error":"no quota","at":"` + before + `","count":3},{"part":"old","error":"long ago","at":"` + hour + `","count":1}]}`
	}
	for _, tt := range []struct {
		name          string
		first, second string // what waits
		says          string // "": nothing
	}{
		{"grows", "2", "5", "the outbound queue has 5 messages that the backend has not taken, and they grow: no answer"},
		{"stays", "1", "1", "the outbound queue has 1 message that the backend has not taken: no answer"},
		{"is being sent", "5", "2", ""},
		{"empty", "0", "0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			configured(t)
			var asked atomic.Int32
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			mux := http.NewServeMux()
			mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"status":"alive"}`)) })
			mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) {
				text := status(tt.first)
				if asked.Add(1) > 2 { // the local API's own check asks, too
					text = status(tt.second)
				}
				_, _ = w.Write([]byte(text))
			})
			mux.HandleFunc("/v1/mailbox/dead-letters", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"dead_letters":[{"id":"msg_1","envelope":{"content":"hidden"}}]}`))
			})
			srv := &http.Server{Handler: mux}
			go srv.Serve(l)
			defer srv.Close()
			t.Setenv("LISTEN_ADDR", l.Addr().String())
			_, found := checked(t)
			wants(t, found, "sidecar", statusFail, "not ready: outbound queue is not being read")
			wants(t, found, "sidecar errors", statusWarn, "judge: no quota (3 times, last 5 minutes ago)")
			wants(t, found, "dead letters", statusWarn, "1 direct message could not be delivered")
			if len(found["sidecar errors"]) != 1 || len(found["outbox"]) > 0 != (tt.says != "") {
				t.Errorf("got %+v", found)
			}
			if tt.says != "" {
				wants(t, found, "outbox", statusWarn, tt.says)
			}
			for _, f := range found["dead letters"] {
				if strings.Contains(f.Detail.en, "hidden") {
					t.Errorf("text is shown: %+v", f)
				}
			}
		})
	}
}
