//go:build unix

package sidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/test/logtest"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// logBuffer takes what several goroutines log.
type logBuffer struct{ logtest.Buffer }

func (l *logBuffer) lines() []string { return slices.Collect(strings.Lines(l.String())) }

// wait waits for n lines of JSON that match and returns all of those: a message's line is logged after its outcome is
// told.
func (l *logBuffer) wait(t *testing.T, n int, match func(logLine) bool) (found []logLine) {
	t.Helper()
	eventually(limited(t), t, "the log has the lines", func() bool {
		found = nil
		for _, line := range l.lines() {
			if entry, _ := parseJSON(line); match(entry) {
				found = append(found, entry)
			}
		}
		return len(found) >= n
	})
	return found
}

// logLine is what one line says, by its keys.
type logLine map[string]string

// parseJSON reads a line of LOG_FORMAT=json, in which no key may stand twice.
func parseJSON(line string) (logLine, error) {
	d := json.NewDecoder(strings.NewReader(line))
	out := logLine{}
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("no object: %w", err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if _, twice := out[fmt.Sprint(key)]; twice {
			return nil, fmt.Errorf("the key %s stands twice", key)
		}
		out[fmt.Sprint(key)] = strings.Trim(string(value), `"`)
	}
	return out, nil
}

// Whatever is said in a group, and whatever goes wrong, the log has one line for
// each decision, with neither the text nor a secret.
func TestLogLines(t *testing.T) {
	t.Parallel()
	var log logBuffer
	told := hostileTalk(t, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})))
	decided := map[string]logLine{}
	for _, line := range log.lines() {
		entry, err := parseJSON(line)
		if err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		if unwanted.MatchString(line) {
			t.Errorf("the log holds what it must not: %s", line)
		}
		switch {
		case entry["msg"] == "decision":
			if _, again := decided[entry["msg_id"]]; again {
				t.Errorf("decided twice: %s", line)
			}
			decided[entry["msg_id"]] = entry
		case entry["msg"] == "stopped" && decided[entry["msg_id"]] != nil && entry["reason"] != "undeliverable":
			t.Errorf("a second line for a decision: %s", line)
		}
	}
	if len(decided) != len(told) {
		t.Errorf("%d decisions are logged, want %d", len(decided), len(told))
	}
	for id, reason := range told {
		entry := decided[id]
		for _, key := range []string{"agent", "chat", "sender", "allow", "tier", "reason", "detail", "depth", "judge_ms", "mentioned"} {
			if _, ok := entry[key]; !ok {
				t.Errorf("the decision on %s has no %s: %v", id, key, entry)
			}
		}
		if !strings.Contains(entry["reason"], reason) || entry["sender"] != "agent_a" || entry["agent"] != "agent_b" {
			t.Errorf("the decision on %s: %v; want the reason %q", id, entry, reason)
		}
	}
}

// unwanted is in every text and every secret of hostileTalk.
var unwanted = regexp.MustCompile(`MARKED|秘密`)

// hostileTalk has two sidecars log what happens when everything is said and goes
// wrong that can, and tells which messages were decided on with which reason.
func hostileTalk(t *testing.T, log *slog.Logger) (told map[string]string) {
	t.Helper()
	var cut atomic.Bool
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a part is as good
		if !cut.Swap(true) {
			panic(http.ErrAbortHandler) // the client's error tells the URL
		}
		if bytes.Contains(body, []byte("refuse")) {
			http.Error(w, string(body), http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(hook.Close)
	llm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("break the judge")) { // it quotes what it was asked
			http.Error(w, `{"error":{"message":`+strconv.Quote(string(body)+r.Header.Get("Authorization"))+`}}`, http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"choices":[{"message":{"role":"assistant","content":"NO"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(llm.Close)
	dir := t.TempDir()
	secret := func(cfg sidecar.Config) sidecar.Config {
		cfg.RelaySecret, cfg.AppSecret, cfg.EncryptKey, cfg.VerificationToken = "MARKED-relay", "MARKED-app", "MARKED-encrypt", "MARKED-token"
		cfg.Judge = sidecar.JudgeConfig{APIKey: "MARKED-key", BaseURL: llm.URL, Model: "fake"}
		return cfg
	}
	b := secret(aloneIn(dir, "agent_b"))
	b.InjectURL = hook.URL + "/?token=MARKED-url"
	from, to := alone(t, secret(aloneIn(dir, "agent_a")), log), alone(t, b, log)
	ctx := limited(t)

	told = map[string]string{}
	ts := time.Now()
	say := func(chat, text, reason string) {
		t.Helper()
		ts = ts.Add(time.Millisecond)
		id := fmt.Sprintf("om_%s_%d", chat, len(told))
		_, err := from.Send(ctx, relay.Outbound{ChatID: relay.ChatID(chat), Content: text, MessageID: relay.MessageID(id), TS: relay.MillisOf(ts)})
		must(t, err)
		told[id] = reason
	}
	const hostile = "MARKED 秘密\n{\"level\":\"ERROR\",\"msg\":\"forged\"}\r\nlevel=ERROR msg=\"forged\" \x1b[31m\u2028 \"'`"
	say("oc_1", hostile, "threshold")
	say("oc_1", hostile, "judge_no")
	say("oc_1", hostile, "max_depth")
	say("oc_2", "refuse "+hostile, "threshold")
	say("oc_2", "break the judge "+hostile, "judge_error")
	_, err := to.Hear(ctx, relay.Heard{ChatID: "oc_1", Content: hostile, Sender: "Tom 秘密", MessageID: "om_user", TS: relay.MillisOf(ts)})
	must(t, err)
	eventually(ctx, t, "all is published", func() bool {
		return series(scrape(t, from), `feishu_relay_published_total{queue="outbound"}`) == float64(len(told))
	})
	queue, err := os.OpenFile(filepath.Join(dir, "relay", "outbound.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = fmt.Fprintf(queue, "%s\n%s\n", strings.ReplaceAll(hostile, "\n", " "),
		`{"relay_msg_id":"om_unsigned","chat_id":"oc_1","content":"MARKED","sender_agent_name":"agent_x"}`)
	must(t, err)
	must(t, queue.Close())
	for selector, want := range map[string]float64{
		`feishu_relay_decisions_total`:                       float64(len(told)),
		`feishu_relay_stopped_total{reason="malformed"}`:     1,
		`feishu_relay_stopped_total{reason="bad_signature"}`: 1,
		`feishu_relay_stopped_total{reason="undeliverable"}`: 1,
		`feishu_relay_delivered_total`:                       1,
		`feishu_relay_judge_calls_total{result="error"}`:     1,
		`feishu_relay_transcript_lines_total{role="user"}`:   1,
		`feishu_relay_queue_unsettled_messages`:              0,
		`feishu_relay_stopped_total{reason="judge_error"}`:   1,
		`feishu_relay_quarantined_lines_total`:               1,
		`feishu_relay_stage_retries_total{stage="inject"}`:   1,
	} {
		eventually(ctx, t, selector, func() bool { return series(scrape(t, to), selector) == want })
	}
	return told
}
