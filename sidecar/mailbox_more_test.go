//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/sidecar"
)

// agents starts two home-made agents with sidecars in this process.
func (n *tenant) agents(t *testing.T, redis string, change func(*sidecar.Config)) (a, b *worker) {
	t.Helper()
	start := func(name string) *worker {
		var s *running
		w := newWorker(t, func(context.Context) (string, error) { return "http://" + s.Addr().String(), nil })
		cfg := n.withMailbox(n.config(name), redis)
		cfg.Gateway, cfg.InjectURL = sidecar.GatewayConfig{}, w.hook.URL
		if change != nil {
			change(&cfg)
		}
		s = n.start(cfg)
		return w
	}
	a, b = start("researcher"), start("coder")
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

// A conversation that the agent never offered is none that another agent may
// speak in.
func TestResultsSpeakOnlyWhereTheyWereAsked(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, n *tenant, redis string) {
		a, b := n.agents(t, redis, nil)
		for _, tt := range []struct {
			name, body, channel, chat string
		}{
			{"an answer to no question", `{"to":"researcher","type":"answer","content":"n1","callback":{"channel":"feishu","chat_id":"oc_private"}}`, "mailbox", "coder"},
			{"a message", `{"to":"researcher","type":"message","content":"n2","callback":{"channel":"feishu","chat_id":"oc_private"}}`, "mailbox", "coder"},
		} {
			b.call(http.MethodPost, "/v1/mailbox/messages", json.RawMessage(tt.body), nil)
			var in = <-a.heard
			if in.Channel != tt.channel || string(in.ChatID) != tt.chat || in.SessionKeyOverride != "mailbox:coder" {
				t.Errorf("%s came into %s %s (%s)", tt.name, in.Channel, in.ChatID, in.SessionKeyOverride)
			}
		}
		var job struct {
			TaskID string `json:"task_id"`
		}
		a.call(http.MethodPost, "/v1/mailbox/tasks", json.RawMessage(`{"to":"coder","text":"job","callback":{"channel":"feishu","session_id":"feishu:oc_asked"}}`), &job)
		b.hears("task", "job")
		b.call(http.MethodPost, "/v1/mailbox/tasks/"+job.TaskID, map[string]string{"state": "completed", "text": "n3"}, nil)
		in := a.hears("task_update", "n3")
		if in.Channel != "feishu" || in.ChatID != "oc_asked" || in.SessionKeyOverride != "feishu:oc_asked" {
			t.Errorf("the result came into %s %s (%s)", in.Channel, in.ChatID, in.SessionKeyOverride)
		}
	})
}

// Programs of other makes use the same folder: their plain files are delivered,
// their registry entries kept, and a half-written file harms nobody.
func TestMailboxBesideForeignPrograms(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	n, _ := newTenant(t, feishusim.Options{})
	boxes := filepath.Join(n.dir, "mailboxes")
	must(t, os.MkdirAll(boxes, 0o700))
	registry := filepath.Join(boxes, "_registry.json")
	foreign := `{"nano":{"agentId":"nano","description":"a foreign one","status":"idle","lastHeartbeat":%q,"extra":[1]}}`
	must(t, os.WriteFile(registry, fmt.Appendf(nil, foreign, time.Now().UTC().Format(time.RFC3339)), 0o600))
	a, _ := n.agentAlone(t)
	var peers struct {
		Peers []struct {
			AgentID   string `json:"agent_id"`
			Reachable bool   `json:"reachable"`
		}
	}
	a.call(http.MethodGet, "/v1/peers", nil, &peers)
	if len(peers.Peers) != 1 || peers.Peers[0].AgentID != "nano" || !peers.Peers[0].Reachable {
		t.Errorf("peers: %+v", peers)
	}
	data, err := os.ReadFile(registry)
	must(t, err)
	if !strings.Contains(string(data), `"extra":[1]`) {
		t.Errorf("the foreign entry is not kept: %s", data)
	}

	inbox := filepath.Join(boxes, "researcher", "inbox")
	put := func(name, content string) {
		t.Helper()
		must(t, os.MkdirAll(inbox, 0o700))
		must(t, os.WriteFile(filepath.Join(inbox, name+".tmp"), []byte(content), 0o600))
		must(t, os.Rename(filepath.Join(inbox, name+".tmp"), filepath.Join(inbox, name)))
	}
	now := time.Now().UTC()
	plain := fmt.Sprintf(`{"id":"m1","from":"nano","to":"researcher","timestamp":%q,"type":"message","ttl":3,"trace":["nano"],`+
		`"content":{"parts":[{"type":"text","text":"hello from afar"}]}}`, now.Format(time.RFC3339))
	put(fmt.Sprintf("%d_nano.msg.json", now.UnixMilli()), plain)
	a.hears("message", "hello from afar")
	put(fmt.Sprintf("%d_nano.msg.json", now.Unix()), plain) // the same id again
	put("1_nano.msg.json", `{"id":"m2","from":"na`)
	put(fmt.Sprintf("%d_nano_x.msg.json", now.UnixMilli()+1), strings.NewReplacer(`"m1"`, `"m3"`, "hello from afar", "and the last").Replace(plain))
	a.hears("message", "and the last")
	if got := a.ids(); len(got) != 2 || got["m1"] != 1 {
		t.Errorf("given: %v", got)
	}
	n.until("the broken file is set aside", func() bool {
		_, err := os.Stat(filepath.Join(boxes, "researcher", "malformed", "1_nano.msg.json"))
		return err == nil
	})
	n.until("the delivered ones are processed", func() bool {
		left, _ := filepath.Glob(filepath.Join(inbox, "*.msg.json"))
		return len(left) == 0
	})
}

// agentAlone starts one home-made agent alone.
func (n *tenant) agentAlone(t *testing.T) (*worker, *running) {
	t.Helper()
	var s *running
	w := newWorker(t, func(context.Context) (string, error) { return "http://" + s.Addr().String(), nil })
	cfg := n.withMailbox(n.config("researcher"), "")
	cfg.Gateway, cfg.InjectURL = sidecar.GatewayConfig{}, w.hook.URL
	s = n.start(cfg)
	w.call(http.MethodGet, "/readyz", nil, nil)
	n.until("it has registered", func() bool {
		var agents struct{ Agents []json.RawMessage }
		w.call(http.MethodGet, "/v1/mailbox/agents", nil, &agents)
		return len(agents.Agents) == 2
	})
	return w, s
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
		status := a.call(http.MethodPost, "/v1/outbound", json.RawMessage(`{"channel":"mailbox","chat_id":"coder","content":"sort it",`+
			`"metadata":{"mailbox_type":"task","mailbox_task":{"id":"t-1"},"mailbox_callback":{"channel":"feishu","chat_id":"oc_x"}}}`), &sent)
		if status != http.StatusAccepted || sent.TaskID != "t-1" || sent.RelayMsgID == "" {
			t.Fatalf("answered %d %+v", status, sent)
		}
		b.hears("task", "sort it")
		status = b.call(http.MethodPost, "/v1/outbound", json.RawMessage(`{"channel":"mailbox","chat_id":"researcher","content":"sorted",`+
			`"metadata":{"mailbox_type":"task_update","mailbox_task":{"id":"t-1","state":"completed"}}}`), nil)
		if status != http.StatusAccepted {
			t.Errorf("a step was answered %d", status)
		}
		if in := a.hears("task_update", "sorted"); in.ChatID != "oc_x" {
			t.Errorf("the result came into %s", in.ChatID)
		}
	})
}
