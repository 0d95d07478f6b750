//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/sidecar"
)

// homeMade starts a home-made agent with a sidecar in this process; change may be nil.
func (n *tenant) homeMade(name, redis string, change func(*sidecar.Config)) *worker {
	n.t.Helper()
	var s *running
	w := newWorker(n.t, func(context.Context) (string, error) { return "http://" + s.Addr().String(), nil })
	cfg := n.withMailbox(n.config(name), redis)
	cfg.Gateway, cfg.InjectURL = sidecar.GatewayConfig{}, w.hook.URL
	if change != nil {
		change(&cfg)
	}
	s = n.start(cfg)
	return w
}

// agents starts two home-made agents.
func (n *tenant) agents(t *testing.T, redis string, change func(*sidecar.Config)) (a, b *worker) {
	t.Helper()
	a, b = n.homeMade("researcher", redis, change), n.homeMade("coder", redis, change)
	n.until("each sees the other", func() bool {
		var peers struct{ Peers []struct{ Reachable bool } }
		a.call(http.MethodGet, "/v1/peers", nil, &peers)
		seen := len(peers.Peers) == 1 && peers.Peers[0].Reachable
		b.call(http.MethodGet, "/v1/peers", nil, &peers)
		return seen && len(peers.Peers) == 1 && peers.Peers[0].Reachable
	})
	return a, b
}

// onEach runs a test of the mailbox over files and over Redis.
func onEach(t *testing.T, test func(t *testing.T, n *tenant, redis string)) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			redis := ""
			if backend == "redis" {
				redis = redistest.Start(t).URL()
			}
			n, _ := newTenant(t, feishusim.Options{})
			test(t, n, redis)
		})
	}
}

// A bot that was never changed sends mail as it sends to a chat.
func TestOutboundChannelMailbox(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, n *tenant, redis string) {
		a, b := n.agents(t, redis, nil)
		var sent struct {
			RelayMsgID string `json:"relay_msg_id"`
			TaskID     string `json:"task_id"`
		}
		status := a.call(http.MethodPost, "/v1/outbound",
			json.RawMessage(`{"channel":"mailbox","chat_id":"coder","content":"sort it",`+
				`"metadata":{"mailbox_type":"task","mailbox_task":{"id":"t-1"},"mailbox_callback":{"channel":"feishu","chat_id":"oc_x"}}}`), &sent)
		if status != http.StatusAccepted || sent.TaskID != "t-1" || sent.RelayMsgID == "" {
			t.Fatalf("answered %d %+v", status, sent)
		}
		b.hears("task", "sort it")
		status = b.call(http.MethodPost, "/v1/outbound",
			json.RawMessage(`{"channel":"mailbox","chat_id":"researcher","content":"sorted",`+
				`"metadata":{"mailbox_type":"task_update","mailbox_task":{"id":"t-1","state":"completed"}}}`), nil)
		if status != http.StatusAccepted {
			t.Errorf("a step was answered %d", status)
		}
		if in := a.hears("task_update", "sorted"); in.ChatID != "oc_x" {
			t.Errorf("the result came into %s", in.ChatID)
		}
	})
}
