//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/test/verify"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// A bot that reads no stream misses nothing: what is said meanwhile waits, also
// over the end of its sidecar, and comes in order and once.
func TestFaultBotAwayFromStream(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{bots: 2})
	for _, b := range c.bots {
		b.side.start("")
	}
	ctx := limited(t)
	there := c.bots[1].connect(t)
	c.bots[0].connect(t)
	c.ready(ctx)
	c.talk(ctx, 2, "oc_1", "oc_2")
	c.h.complete(ctx, t)
	there()
	eventually(ctx, t, "the sidecar sees that the bot is gone", func() bool {
		st, err := c.bots[1].status(ctx)
		return err == nil && !*st.Door.Connected
	})
	for i := range 12 {
		_, err := c.bots[0].say(ctx, fmt.Sprintf("oc_%d", i%2+1))
		must(t, err)
	}
	waiting := func() bool {
		st, err := c.bots[1].status(ctx)
		return err == nil && st.Waiting.Messages == 12
	}
	eventually(ctx, t, "the messages wait", waiting)
	c.bots[1].side.kill()
	c.bots[1].side.start("") // not counted as a kill: nothing was under way, so nothing may be repeated
	eventually(ctx, t, "the messages wait again", waiting)
	c.bots[1].connect(t)
	c.verify(ctx)
}

// A webhook that cannot take messages for a while gets them in order and once.
func TestFaultBotAwayFromWebhook(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	c := newCluster(t, setup{bots: 2, webhooks: []int{1}})
	ctx := limited(t)
	var mu sync.Mutex
	away, refused := true, map[string]bool{}
	statuses := []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusRequestTimeout, http.StatusFound}
	next := 0
	bitten := make(chan struct{})
	c.bots[1].answer(func(in *relay.Inbound) int {
		mu.Lock()
		defer mu.Unlock()
		if !away {
			return http.StatusOK
		}
		refused[in.Content] = true
		if next++; next == 2*len(statuses) {
			close(bitten)
		}
		return statuses[next%len(statuses)]
	})
	for i := range 6 {
		_, err := c.bots[0].say(ctx, fmt.Sprintf("oc_%d", i%3+1))
		must(t, err)
	}
	select {
	case <-bitten:
	case <-ctx.Done():
		t.Fatal("the messages are not tried again")
	}
	mu.Lock()
	away = false
	if len(refused) < 3 {
		t.Errorf("%d messages were refused at first, want one of each chat", len(refused))
	}
	mu.Unlock()
	c.verify(ctx)
}

// What the webhook refuses for good is not tried again and holds up nothing.
func TestFaultWebhookRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, setup{bots: 2, webhooks: []int{1}})
	ctx := limited(t)
	bad, content := c.bots[0].message("oc_1")
	c.h.spare(bad, relay.Undeliverable)
	var mu sync.Mutex
	tries := 0
	c.bots[1].answer(func(in *relay.Inbound) int {
		mu.Lock()
		defer mu.Unlock()
		if in.Metadata["relay_msg_id"] != string(bad) {
			return http.StatusOK
		}
		tries++
		return http.StatusBadRequest
	})
	must(t, c.bots[0].sayThis(ctx, "oc_1", bad, content, nil))
	c.talk(ctx, 2, "oc_1")
	c.verify(ctx)
	c.bots[1].side.stop()
	c.bots[1].side.start("")
	c.talk(ctx, 2, "oc_1")
	c.verify(ctx)
	mu.Lock()
	defer mu.Unlock()
	if tries != 1 {
		t.Errorf("the refused message was tried %d times, want once", tries)
	}
}

// What is older than RELAY_MAX_AGE, on arrival or after it has waited for the
// bot, stands in the transcript and is not delivered.
func TestFaultExpired(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	const maxAge = 8 * time.Second // what is to be delivered has as long
	c := prepare(t, setup{bots: 2, change: func(_ int, cfg *sidecar.Config) { cfg.MaxAge = maxAge }})
	for _, b := range c.bots {
		b.side.start("")
	}
	ctx := limited(t)
	sender, receiver := c.bots[0], c.bots[1]
	there := receiver.connect(t)
	sender.connect(t)
	c.ready(ctx)
	old, content := sender.message("oc_1")
	c.h.spare(old, relay.Expired)
	must(t, sender.sayThis(ctx, "oc_1", old, content, map[string]any{"ts": time.Now().Add(-2 * maxAge).UnixMilli()}))
	eventually(ctx, t, "the old message expires", func() bool { return receiver.metric(ctx, t, `feishu_relay_stopped_total{reason="expired"}`) == 1 })
	there()
	eventually(ctx, t, "the sidecar sees that its bot is away", func() bool {
		return receiver.metric(ctx, t, `feishu_relay_door_connected{door="stream"}`) == 0
	})
	late, content := sender.message("oc_1")
	c.h.spare(late, relay.Expired)
	must(t, sender.sayThis(ctx, "oc_1", late, content, nil))
	eventually(ctx, t, "the message that waits expires", func() bool { return receiver.metric(ctx, t, `feishu_relay_stopped_total{reason="expired"}`) == 2 })
	receiver.connect(t)
	c.ready(ctx)
	_, err := sender.say(ctx, "oc_1")
	must(t, err)
	c.verify(ctx)
}

// metric is the value of a series in /metrics (see series).
func (b *bot) metric(ctx context.Context, t *testing.T, name string) float64 {
	t.Helper()
	url, err := b.side.url(ctx)
	must(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	must(t, err)
	resp, err := b.http.Do(req)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return series(string(data), name)
}

// A judge that never answers about one chat holds up no other chat.
func TestFaultJudgeHangs(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a part is as good
		if strings.Contains(string(body), "oc_hangs") {
			once.Do(func() { close(asked) })
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{
			"message": map[string]string{"role": "assistant", "content": "YES"}, "finish_reason": "stop"}}})
	}))
	defer judge.Close()
	c := newCluster(t, setup{bots: 2, change: func(_ int, cfg *sidecar.Config) {
		cfg.Limits.Threshold, cfg.Limits.Timeout = 0, 5*time.Minute
		cfg.Judge = sidecar.JudgeConfig{APIKey: "key", BaseURL: judge.URL, Model: "fake"}
	}})
	ctx := limited(t)
	hanging, err := c.bots[0].say(ctx, "oc_hangs")
	must(t, err)
	select {
	case <-asked:
	case <-ctx.Done():
		t.Fatal("the judge is not asked")
	}
	for i := range 30 {
		id, err := c.bots[0].say(ctx, fmt.Sprintf("oc_%d", i%3+1))
		must(t, err)
		must(t, c.h.await(ctx, func() bool { return c.h.times["agent_b"][id] == 1 }))
	}
	if n := c.h.received("agent_b", hanging); n != 0 {
		t.Errorf("the message that hangs was delivered %d times: the judge did not hang", n)
	}
	close(answer)
	c.verify(ctx)
}
