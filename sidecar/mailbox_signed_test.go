//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

const mailSecret = "one-secret-for-all-sidecars"

// inboxes is the store of a mailbox as somebody sees it who may write there.
type inboxes struct {
	n      *tenant
	client *redis.Client // nil: files
	count  int
}

func (n *tenant) inboxes(url string) *inboxes {
	b := &inboxes{n: n}
	if url != "" {
		opts, err := redis.ParseURL(url)
		must(n.t, err)
		b.client = redis.NewClient(opts)
		n.t.Cleanup(func() { b.client.Close() })
	}
	return b
}

func (b *inboxes) dir(agent, folder string) string {
	return filepath.Join(b.n.dir, "mailboxes", agent, folder)
}

func (b *inboxes) key(agent, what string) string { return "nanobot:mailbox:{" + agent + "}:" + what }

// put lays an envelope into an inbox, as it is.
func (b *inboxes) put(agent, raw string) {
	b.n.t.Helper()
	if b.client != nil {
		must(b.n.t, b.client.XAdd(b.n.t.Context(),
			&redis.XAddArgs{Stream: b.key(agent, "inbox"), Values: []string{"envelope", raw}}).Err())
		return
	}
	b.count++
	dir := b.dir(agent, "inbox")
	must(b.n.t, os.MkdirAll(dir, 0o700))
	name := filepath.Join(dir, fmt.Sprintf("%d_x_%03d.msg.json", time.Now().UnixMilli(), b.count))
	must(b.n.t, os.WriteFile(name+".tmp", []byte(raw), 0o600))
	must(b.n.t, os.Rename(name+".tmp", name))
}

// waiting returns what is in an agent's inbox.
func (b *inboxes) waiting(agent string) (all []string) {
	if b.client == nil {
		return b.files(agent, "inbox")
	}
	entries, err := b.client.XRange(b.n.t.Context(), b.key(agent, "inbox"), "-", "+").Result()
	must(b.n.t, err)
	for _, e := range entries {
		all = append(all, e.Values["envelope"].(string))
	}
	return all
}

// malformed returns what was set aside for an agent.
func (b *inboxes) malformed(agent string) []string {
	if b.client == nil {
		return b.files(agent, "malformed")
	}
	list, err := b.client.LRange(b.n.t.Context(), b.key(agent, "malformed"), 0, -1).Result()
	must(b.n.t, err)
	return list
}

func (b *inboxes) files(agent, folder string) (all []string) {
	names, err := filepath.Glob(filepath.Join(b.dir(agent, folder), "*.msg.json"))
	must(b.n.t, err)
	for _, name := range names {
		if raw, err := os.ReadFile(name); err == nil { // else it was taken just now
			all = append(all, string(raw))
		}
	}
	return all
}

// badSignatures is what a sidecar counted, in its metrics and among its last errors.
func (w *worker) badSignatures() (metric string, lastErrors int) {
	url, err := w.url(limited(w.t))
	must(w.t, err)
	_, text, err := request(limited(w.t), http.MethodGet, url+"/metrics", nil)
	must(w.t, err)
	counter := regexp.MustCompile(`feishu_relay_mailbox_messages_total\{[^}]*event="bad_signature"[^}]*\} (\d+)`)
	if m := counter.FindSubmatch(text); m != nil {
		metric = string(m[1])
	}
	var status struct {
		Errors []sidecar.Problem `json:"last_errors"`
	}
	w.call(http.MethodGet, "/v1/status", nil, &status)
	for _, p := range status.Errors {
		if p.Part == "mailbox bad_signature" {
			lastErrors = p.Count
		}
	}
	return metric, lastErrors
}

// Somebody who may write into the mailbox, and does not know the secret, can neither
// speak for an agent nor have anything done twice.
func TestSignedMail(t *testing.T) {
	t.Parallel()
	onEach(t, signedMail)
}

func signedMail(t *testing.T, n *tenant, redis string) {
	agent := func(name string) (*worker, *process) {
		var p *process
		w := newWorker(t, func(ctx context.Context) (string, error) { return p.url(ctx) })
		cfg := n.withMailbox(n.config(name), redis)
		cfg.Gateway, cfg.InjectURL = sidecar.GatewayConfig{}, w.hook.URL
		cfg.RelaySecret = mailSecret
		p = newProcess(t, n.dir, cfg)
		return w, p
	}
	a, pa := agent("researcher")
	b, pb := agent("coder")
	boxes := n.inboxes(redis)
	pa.start("")
	body := map[string]any{"to": "coder", "content": "genuine", "metadata": map[string]any{"requiresAck": true}}
	if status := a.call(http.MethodPost, "/v1/mailbox/messages", body, nil); status != http.StatusAccepted {
		t.Fatalf("send: %d", status)
	}
	n.until("the letter waits", func() bool { return len(boxes.waiting("coder")) == 1 })
	genuine := boxes.waiting("coder")[0]
	if err := relay.Verify([]byte(genuine), mailSecret); err != nil {
		t.Fatalf("the letter is not signed: %v in %s", err, genuine)
	}

	var fields map[string]json.RawMessage
	must(t, json.Unmarshal([]byte(genuine), &fields))
	change := func(changes map[string]string) string {
		for name, value := range changes {
			fields[name] = json.RawMessage(value)
		}
		raw, err := json.Marshal(fields)
		must(t, err)
		must(t, json.Unmarshal([]byte(genuine), &fields))
		delete(fields, "x")
		return string(raw)
	}
	indented, err := json.MarshalIndent(fields, "", "  ")
	must(t, err)
	envelope := func(from, text, sig string) string {
		return fmt.Sprintf(`{"id":"msg_%s","from":%q,"to":"coder","timestamp":%q,"type":"message",`+
			`"content":{"parts":[{"type":"text","text":%q}]},`+
			`"metadata":{"requiresAck":true}%s}`, text, from, time.Now().UTC().Format(time.RFC3339), text, sig)
	}
	zeros := `,"sig":"` + strings.Repeat("0", 64) + `"`
	boxes.put("coder", change(map[string]string{"content": `{"parts":[{"type":"text","text":"tampered"}]}`}))
	boxes.put("coder", change(map[string]string{"x": `1`}))
	boxes.put("coder", string(indented)) // another program passed it on
	boxes.put("coder", envelope("researcher", "forged", ""))
	boxes.put("coder", envelope("researcher", "wrong", zeros))
	boxes.put("coder", envelope("stranger", "wrong-stranger", zeros))
	boxes.put("coder", envelope("nano", "foreign", ""))
	const bad = 6
	pb.start("")
	n.until("the inbox is empty", func() bool { return len(boxes.waiting("coder")) == 0 })
	if got := b.given(); !slices.Equal(got, []string{"genuine"}) {
		t.Errorf("the bot was given %q", got)
	}
	if got := len(boxes.malformed("coder")); got != bad {
		t.Errorf("%d envelopes were set aside, want %d", got, bad)
	}
	if metric, errs := b.badSignatures(); metric != fmt.Sprint(bad) || errs != bad {
		t.Errorf("counted %s bad signatures in metrics and %d among the last errors, want %d", metric, errs, bad)
	}
	n.until("the letter is acknowledged", func() bool {
		var status sidecar.Status
		a.call(http.MethodGet, "/v1/status", nil, &status)
		return status.Mailbox.Unacknowledged == 0
	})
	for _, from := range []string{"stranger", "nano"} { // after what was answered
		if got := boxes.waiting(from); len(got) > 0 {
			t.Errorf("%s was answered: %q", from, got)
		}
	}
}

// What is published on a peer channel is taken under the same rule, and once.
func TestSignedPeerChannel(t *testing.T) {
	t.Parallel()
	n, _ := newTenant(t, feishusim.Options{})
	url := redistest.Start(t).URL()
	a, b := n.agents(t, url, func(c *sidecar.Config) { c.RelaySecret = mailSecret })
	boxes := n.inboxes(url)
	heard := boxes.client.Subscribe(t.Context(), "agent.inbox.coder")
	defer heard.Close()
	_, err := heard.Receive(t.Context())
	must(t, err)
	a.call(http.MethodPost, "/v1/peers/coder/messages", map[string]string{"message": "ours"}, nil)
	published, err := heard.ReceiveMessage(t.Context())
	must(t, err)
	if err := relay.Verify([]byte(published.Payload), mailSecret); err != nil {
		t.Errorf("what is published is not signed: %v in %s", err, published.Payload)
	}
	b.hears("message", "ours")

	payload := func(body string) string {
		return fmt.Sprintf(`{"from_agent_id":"nano","from_goal_id":"550e8400-e29b-41d4-a716-446655440000",`+
			`"to_agent_id":"coder","body":%q,"sent_at":%q}`, body, time.Now().UTC().Format(time.RFC3339))
	}
	signed, err := relay.Sign([]byte(payload("signed")), mailSecret)
	must(t, err)
	forged := strings.Replace(string(signed), `"signed"`, `"forged"`, 1)
	for _, p := range []string{payload("plain"), forged, string(signed), string(signed)} {
		must(t, boxes.client.Publish(t.Context(), "agent.inbox.coder", p).Err())
	}
	want, bad := []string{"ours", "signed"}, 2
	n.until("all is dealt with", func() bool {
		metric, _ := b.badSignatures()
		return metric == fmt.Sprint(bad) && len(boxes.malformed("coder")) == bad && len(b.given()) >= len(want) &&
			len(boxes.waiting("coder")) == 0
	})
	if got := slices.Sorted(slices.Values(b.given())); !slices.Equal(got, want) {
		t.Errorf("the bot was given %q, want %q", got, want)
	}
}

// given is what the bot was given, in order.
func (w *worker) given() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.got {
		all = append(all, in.Content)
	}
	return all
}
