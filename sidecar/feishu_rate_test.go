//go:build unix

package sidecar_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
)

// Questions about chats that the bot is not in are made with its own token and
// count against its own limits, 50 a second and 1000 a minute (docs/feishu.md 6.3).
func TestQuestionsToFeishuAreFew(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotB"})
	var calls atomic.Int64
	pass := httputil.NewSingleHostReverseProxy(n.url)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/chats/") {
			pass.ServeHTTP(w, r)
			return
		}
		calls.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"code":99991672,"msg":"Access denied."}`)
	}))
	t.Cleanup(front.Close)
	cfg := n.config("agent_b")
	var err error
	cfg.BaseURL, err = url.Parse(front.URL)
	must(t, err)
	b := n.start(cfg)
	n.bot(apps[0], "http://"+b.Gateway().String(), nil)
	n.connected(b)
	for i := range 50 {
		id := fmt.Sprintf("om_%d", i)
		n.publishes(map[string]any{"relay_msg_id": id, "message_id": id, "channel": "feishu", "chat_id": fmt.Sprintf("oc_other%d", i),
			"content": "x", "sender_bot_open_id": "ou_x", "sender_agent_name": "agent_x", "ts": time.Now().UnixMilli(),
			"metadata": map[string]any{"chat_type": "group"}})
	}
	time.Sleep(5 * time.Second) // what is measured is a rate
	if n := calls.Load(); n > 100 {
		t.Errorf("%d calls within 5 s for 50 chats", n)
	}
}
