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

	"feishu-relay/sidecar"
)

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
