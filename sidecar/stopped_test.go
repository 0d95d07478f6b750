package sidecar_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/attempts"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// The log and the outcome of a message that the bot does not get say which answer,
// time-out or refusal it was.
func TestUndeliverableSaysWhy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, settled string
		status        int // that the bot answers; 0: none
		timeout       time.Duration
		want          string
	}{
		{"refused", "", http.StatusUnprocessableEntity, 0,
			"the bot refused the message: INJECT_URL answered 422"},
		{"timed out", "", 0, time.Second, "the bot did not answer within DELIVERY_TIMEOUT"},
		{"settled", `{"state":"refused","reason":"not for me"}`, http.StatusAccepted, 0,
			"the bot refused the message: not for me"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			end := make(chan struct{})
			hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tt.status == 0 {
					<-end
					return
				}
				w.WriteHeader(tt.status)
			}))
			t.Cleanup(hook.Close)
			t.Cleanup(func() { close(end) })
			var log logBuffer
			dir := t.TempDir()
			cfg := aloneIn(dir, "agent_b")
			cfg.InjectURL, cfg.DeliveryTimeout = hook.URL, tt.timeout
			from := alone(t, aloneIn(dir, "agent_a"), slog.New(slog.DiscardHandler))
			to := alone(t, cfg, slog.New(slog.NewJSONHandler(&log, nil)))
			ctx := limited(t)
			_, err := from.Send(ctx, relay.Outbound{ChatID: "oc_1", Content: "hello", MessageID: "om_1",
				TS: relay.MillisOf(time.Now())})
			must(t, err)
			if url := "http://" + to.Addr().String() + "/v1/deliveries/om_1"; tt.settled != "" {
				eventually(ctx, t, "the bot settles it", func() bool {
					resp, err := http.Post(url, "application/json", strings.NewReader(tt.settled))
					must(t, err)
					must(t, resp.Body.Close())
					return resp.StatusCode == http.StatusOK
				})
			}
			eventually(ctx, t, "the outcome says why", func() bool {
				_, data, err := request(ctx, http.MethodGet, "http://"+from.Addr().String()+"/v1/outcomes?chat_id=oc_1", nil)
				must(t, err)
				var found struct{ Outcomes []httpapi.Outcome }
				must(t, json.Unmarshal(data, &found))
				return len(found.Outcomes) == 1 && found.Outcomes[0].Stopped == relay.Undeliverable &&
					found.Outcomes[0].Detail == tt.want
			})
			said := log.wait(t, 1, func(entry logLine) bool { return entry["msg"] == "stopped" })
			for _, entry := range said {
				if entry["err"] != tt.want {
					t.Errorf("the log says %v, want %q", entry, tt.want)
				}
			}
			if len(said) != 1 {
				t.Errorf("the log has %d such lines, want 1", len(said))
			}
		})
	}
}

// A setting that works and surprises is logged at the start, without its value.
func TestShortSecretIsLogged(t *testing.T) {
	t.Parallel()
	var log logBuffer
	cfg := aloneIn(t.TempDir(), "agent_b")
	cfg.RelaySecret = "hidden"
	alone(t, cfg, slog.New(slog.NewJSONHandler(&log, nil)))
	text := strings.Join(log.lines(), "\n")
	if !strings.Contains(text, `"setting":"RELAY_SECRET"`) || strings.Contains(text, "hidden") {
		t.Errorf("the log is\n%s", text)
	}
}

// A message that is not signed with this sidecar's secret is among the last errors,
// with what to do.
func TestBadSignatureIsAmongTheLastErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := aloneIn(dir, "agent_b")
	cfg.RelaySecret = "a secret of this sidecar"
	var log logBuffer
	s := alone(t, cfg, slog.New(slog.NewJSONHandler(&log, nil)))
	line := []byte(`{"relay_msg_id":"om_1","chat_id":"oc_1","content":"hi","sender_agent_name":"agent_x"}`)
	signed, err := relay.Sign(line, "another secret")
	must(t, err)
	queue, err := os.OpenFile(filepath.Join(dir, "relay", "outbound.jsonl"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	must(t, err)
	defer queue.Close()
	for i, tt := range []struct{ line, want string }{
		{string(line), "the message is not signed"}, {string(signed), "it does not match"},
	} {
		_, err = queue.WriteString(tt.line + "\n")
		must(t, err)
		var last []sidecar.Problem
		eventually(limited(t), t, "the signature is among the last errors", func() bool {
			last = s.Status().Errors
			return len(last) == 1 && last[0].Part == "bad_signature" && last[0].Count == i+1
		})
		for _, part := range []string{`"agent_x"`, tt.want, "RELAY_SECRET"} {
			if !strings.Contains(last[0].Error, part) {
				t.Errorf("the last error is %q, without %q", last[0].Error, part)
			}
		}
	}
	said := log.wait(t, 2, func(entry logLine) bool { return entry["reason"] == "bad_signature" })
	for _, entry := range said {
		if !strings.Contains(entry["err"], "bad signature: ") {
			t.Errorf("the log does not say what is wrong: %v", entry)
		}
	}
	if len(said) != 2 {
		t.Errorf("the log has %d such lines, want 2", len(said))
	}
}

// A wrong token leaves a line in the log, which does not show it, and a count; its
// answer says where the right one goes.
func TestWrongTokensAreLoggedAndCounted(t *testing.T) {
	t.Parallel()
	var log logBuffer
	cfg := aloneIn(t.TempDir(), "agent_b")
	cfg.APIToken = "the right token"
	s := alone(t, cfg, slog.New(slog.NewJSONHandler(&log, nil)))
	call := func(token string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(limited(t), http.MethodGet, "http://"+s.Addr().String()+"/metrics", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(body)
	}
	answers := map[int]int{}
	for range attempts.PerMinute + 2 {
		status, body := call("hidden")
		answers[status]++
		const advice = "send this sidecar's API_TOKEN in the header Authorization: Bearer"
		if status == http.StatusUnauthorized && !strings.Contains(body, advice) {
			t.Errorf("a wrong token is answered %s", body)
		}
	}
	_, metrics := call("the right token")
	for _, tt := range []struct {
		answer       string
		status, want int
	}{{"refused", http.StatusUnauthorized, attempts.PerMinute}, {"too_many", http.StatusTooManyRequests, 2}} {
		counted := series(metrics, `feishu_relay_wrong_tokens_total{answer="`+tt.answer+`"}`)
		if answers[tt.status] != tt.want || counted != float64(tt.want) {
			t.Errorf("%s: %d answers, counted %v, want %d", tt.answer, answers[tt.status], counted, tt.want)
		}
	}
	refused := log.wait(t, 1, func(entry logLine) bool {
		return entry["msg"] == "a wrong API token or session was refused" && entry["addr"] != ""
	})
	if len(refused) > attempts.PerMinute+2 || strings.Contains(log.String(), "hidden") {
		t.Errorf("the log is\n%s", log.String())
	}
}
