//go:build unix

package sidecar_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// sampleLine is a line of /metrics: name, labels, value.
var sampleLine = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$`)

// series is the sum of the series that have the given name and labels, such as
// `name{label="value"}`, whatever other labels they have.
func series(metrics, selector string) (sum float64) {
	name, wanted, _ := strings.Cut(strings.TrimSuffix(selector, "}"), "{")
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, name) {
			continue // spares the expression, which takes long
		}
		m := sampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil || m[1] != name || !hasLabels(m[2], wanted) {
			continue
		}
		if value, err := strconv.ParseFloat(m[3], 64); err == nil {
			sum += value
		}
	}
	return sum
}

func hasLabels(labels, wanted string) bool {
	for pair := range strings.SplitSeq(wanted, ",") {
		if !strings.Contains(","+labels+",", ","+pair+",") && wanted != "" {
			return false
		}
	}
	return true
}

// alone starts a sidecar in this process until the test ends.
func alone(t *testing.T, cfg sidecar.Config, log *slog.Logger) *sidecar.Sidecar {
	t.Helper()
	s, err := sidecar.New(cfg, sidecar.Options{Version: "1.2.3", Logger: log})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	eventually(limited(t), t, "the sidecar is ready", func() bool { return s.Ready() == nil })
	return s
}

// aloneIn is a configuration for alone.
func aloneIn(dir, name string) sidecar.Config {
	return sidecar.Config{Agent: relay.AgentName(name), BotName: name, ListenAddr: "127.0.0.1:0", DataDir: dir, Backend: "file",
		RelayChannel: "metrics:outbound", RelayDir: filepath.Join(dir, "relay"), TranscriptDir: filepath.Join(dir, "transcripts"),
		MaxAge: 10 * time.Minute, UserMessages: true, GroupPolicy: "auto", MembershipCheck: "auto",
		Limits: policy.Limits{MaxDepth: 3, Threshold: 1, Check: true, Timeout: time.Minute}}
}

func scrape(t *testing.T, s *sidecar.Sidecar) string {
	t.Helper()
	return httpGet(t, "http://"+s.Addr().String()+"/metrics")
}

func httpGet(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(body)
}

// allMetrics is what /metrics shows with everything switched on that can be,
// which takes three sidecars: two backends, the gateway and the connector.
func allMetrics(t *testing.T) []string {
	t.Helper()
	none := httptest.NewServer(http.NotFoundHandler()) // in Feishu's place
	t.Cleanup(none.Close)
	base, err := url.Parse(none.URL)
	must(t, err)
	mail := func(cfg *sidecar.Config) {
		cfg.Mailbox = sidecar.MailboxConfig{On: true, Dir: filepath.Join(cfg.DataDir, "mailboxes"), Heartbeat: time.Second,
			HeartbeatTimeout: time.Minute, AckTimeout: time.Second, RetryBase: time.Second}
	}
	gateway := aloneIn(t.TempDir(), "agent_a")
	gateway.BaseURL, gateway.Gateway.Addr, gateway.BotWebhookURL, gateway.EncryptKey = base, "127.0.0.1:0", none.URL, "key"
	mail(&gateway)
	redis := aloneIn(t.TempDir(), "agent_b")
	redis.Backend, redis.RedisURL, redis.InjectURL = "redis", sidecar.Secret(redistest.Start(t).URL()), none.URL
	mail(&redis)
	connector := aloneIn(t.TempDir(), "agent_c")
	connector.BaseURL, connector.Connector, connector.AppID, connector.AppSecret = base, true, "cli_c", "secret"
	var all []string
	for _, cfg := range []sidecar.Config{gateway, redis, connector} {
		all = append(all, scrape(t, alone(t, cfg, nil)))
	}
	return all
}
