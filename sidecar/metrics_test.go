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

// What happens to messages is told by the metrics: what was said, read, decided,
// asked and delivered, and what waits for a bot that is away.
func TestMetricsTellWhatHappens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	away, thinks := make(chan struct{}), make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-away:
			<-thinks
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer hook.Close()
	b := aloneIn(dir, "agent_b")
	b.InjectURL = hook.URL
	from, to := alone(t, aloneIn(dir, "agent_a"), nil), alone(t, b, nil)
	ctx := limited(t)
	say := func(text string) {
		t.Helper()
		_, err := from.Send(ctx, relay.Outbound{ChatID: "oc_1", Content: text, TS: relay.MillisOf(time.Now())})
		must(t, err)
	}
	is := func(s *sidecar.Sidecar, selector string, want float64) {
		t.Helper()
		eventually(ctx, t, selector, func() bool { return series(scrape(t, s), selector) == want })
	}

	say("Please look at the edge cases of the parser and tell me what you find.")
	is(to, `feishu_relay_undelivered_messages`, 1)
	eventually(ctx, t, "the status shows it", func() bool { return to.Status().Waiting.Messages == 1 }) // between two posts
	eventually(ctx, t, "the age of the undelivered message", func() bool {                              // between two posts
		age := series(scrape(t, to), "feishu_relay_undelivered_oldest_seconds")
		return age > 0 && age < 60
	})
	is(to, `feishu_relay_delivered_total{door="webhook"}`, 0)
	close(away)
	is(to, `feishu_relay_in_progress_messages`, 1)
	is(to, `feishu_relay_undelivered_messages`, 0)
	if age := series(scrape(t, to), "feishu_relay_in_progress_oldest_seconds"); age <= 0 || age > 60 {
		t.Errorf("the bot has had the message for %v s", age)
	}
	close(thinks)
	is(to, `feishu_relay_delivered_total{door="webhook"}`, 1)
	is(to, `feishu_relay_in_progress_messages`, 0)
	is(to, `feishu_relay_undelivered_messages`, 0)
	is(to, `feishu_relay_undelivered_oldest_seconds`, 0)
	is(to, `feishu_relay_door_connected{door="webhook"}`, 1)

	say("谢谢") // depth 2: the judge is asked, and refuses a courtesy
	is(to, `feishu_relay_judge_calls_total{result="no"}`, 1)
	say("一二三") // depth 3: the limit
	is(to, `feishu_relay_stopped_total{reason="max_depth"}`, 1)

	for selector, want := range map[string]float64{
		`feishu_relay_received_total{queue="outbound"}`:                 3,
		`feishu_relay_queue_delay_seconds_count{queue="outbound"}`:      3,
		`feishu_relay_decisions_total{allow="true",tier="threshold"}`:   1,
		`feishu_relay_decisions_total{allow="false",tier="judge"}`:      1,
		`feishu_relay_decisions_total{allow="false",tier="hard_limit"}`: 1,
		`feishu_relay_decision_depth_sum`:                               6,
		`feishu_relay_judge_duration_seconds_count`:                     1,
		`feishu_relay_delivery_duration_seconds_count{door="webhook"}`:  1,
		`feishu_relay_ready`: 1,
		`feishu_relay_build_info{version="1.2.3",agent="agent_b"}`: 1,
		`feishu_relay_seq_gaps_total`:                              0,
	} {
		is(to, selector, want)
	}
	is(from, `feishu_relay_sent_total{relayed="true"}`, 3)
	is(from, `feishu_relay_published_total{queue="outbound"}`, 3)
	is(from, `feishu_relay_queue_delay_seconds_count`, 0) // of own messages there is none
	is(from, `feishu_relay_stopped_total{reason="own_message"}`, 3)
	now := float64(time.Now().Unix())
	for s, name := range map[*sidecar.Sidecar]string{to: "received", from: "published"} {
		if at := series(scrape(t, s), `feishu_relay_last_`+name+`_timestamp_seconds{queue="outbound"}`); at < now-600 || at > now+1 {
			t.Errorf("last %s at %f; now is %f", name, at, now)
		}
	}
}
