//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// withMailbox turns a configuration's mailbox on; redis is a URL or "".
func (n *tenant) withMailbox(cfg sidecar.Config, redis string) sidecar.Config {
	cfg.Mailbox = sidecar.MailboxConfig{On: true, Dir: filepath.Join(n.dir, "mailboxes"), MaxTasks: 3,
		Heartbeat: time.Second, HeartbeatTimeout: 5 * time.Second, AckTimeout: 5 * time.Second, RetryBase: 100 * time.Millisecond,
		MaxRetries: 3, MaxExchanges: 10}
	cfg.DedupSize = 5000
	if redis != "" {
		cfg.Backend, cfg.RedisURL, cfg.RelayChannel = "redis", sidecar.Secret(redis), "nanobot:feishu:outbound"
	}
	return cfg
}

// worker is a home-made agent: it takes what INJECT_URL brings and answers over
// HTTP.
type worker struct {
	t     *testing.T
	url   func(context.Context) (string, error) // of its sidecar
	hook  *httptest.Server
	mu    sync.Mutex
	got   []relay.Inbound // guarded by mu
	heard chan relay.Inbound
}

func newWorker(t *testing.T, url func(context.Context) (string, error)) *worker {
	w := &worker{t: t, url: url, heard: make(chan relay.Inbound, 1000)}
	w.hook = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var in relay.Inbound
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Errorf("INJECT_URL: %v", err)
		}
		w.mu.Lock()
		w.got = append(w.got, in)
		w.mu.Unlock()
		w.heard <- in
	}))
	t.Cleanup(w.hook.Close)
	return w
}

// ids are the message ids of what w was given, each as often as it was.
func (w *worker) ids() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for _, in := range w.got {
		id, _ := in.Metadata["message_id"].(string)
		out[id]++
	}
	return out
}

// hears waits for a message of a type whose content holds text.
func (w *worker) hears(typ, text string) relay.Inbound {
	w.t.Helper()
	late := time.After(patience)
	for {
		select {
		case in := <-w.heard:
			if in.Metadata["mailbox_type"] == typ && strings.Contains(in.Content, text) {
				return in
			}
		case <-late:
			w.t.Fatalf("no %s with %q came", typ, text)
		}
	}
}

// call makes a request to the worker's own sidecar until it gets an answer, and
// reads that into out.
func (w *worker) call(method, route string, body, out any) int {
	w.t.Helper()
	ctx := limited(w.t)
	for {
		url, err := w.url(ctx)
		must(w.t, err)
		status, answer, err := request(ctx, method, url+route, body)
		if err != nil {
			if ctx.Err() != nil {
				w.t.Fatalf("%s %s: %v", method, route, err)
			}
			breathe(ctx)
			continue
		}
		if out != nil {
			if err := json.Unmarshal(answer, out); err != nil {
				w.t.Fatalf("%s %s: %v in %s", method, route, err, answer)
			}
		}
		return status
	}
}

func request(ctx context.Context, method, url string, body any) (int, []byte, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = strings.NewReader(string(data))
	}
	req, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, data, err
}

func taskOf(in relay.Inbound) string {
	task, _ := in.Metadata["mailbox_task"].(map[string]any)
	id, _ := task["id"].(string)
	return id
}

// tool calls a peer tool of a sidecar with the official MCP client.
func tool(t *testing.T, url, name string, args map[string]any) map[string]any {
	t.Helper()
	ctx := limited(t)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url + "/mcp"}, nil)
	must(t, err)
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	must(t, err)
	data, err := json.Marshal(result.StructuredContent)
	must(t, err)
	out := map[string]any{}
	if err := json.Unmarshal(data, &out); err != nil || result.IsError {
		t.Fatalf("%s: %v %+v", name, err, result.Content[0])
	}
	return out
}

// A person asks the researcher in a private chat for a function. The researcher,
// a bot on Feishu's SDK that nobody changed, gives the job to the coder through
// a peer tool. The coder is not there at first, is killed in the middle, refuses
// once, and then does it. The result comes back into the very conversation that
// asked, and nowhere else.
func TestTaskComesBackIntoTheConversation(t *testing.T) {
	for _, backend := range backends {
		for _, step := range []string{"claimed", "noted", "inject", "delivered", "settling"} {
			t.Run(backend+"/killed at "+step, func(t *testing.T) {
				t.Parallel()
				redis := ""
				if backend == "redis" {
					redis = redistest.Start(t).URL()
				}
				handOver(t, redis, step)
			})
		}
	}
}

// handOver is that; redis is a URL or "".
func handOver(t *testing.T, redis, step string) {
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "Researcher"}, feishusim.App{Name: "Coder"})
	a := n.start(n.withMailbox(n.config("researcher"), redis))
	researcher := "http://" + a.Addr().String()
	bot := n.bot(apps[0], "http://"+a.Gateway().String(), func(b *sdkBot, h heard) {
		switch {
		case h.SenderType == "user", strings.Contains(h.Text, "not now"):
			n.reply(b, h, "", "I ask the coder")
			tool(t, researcher, "send_task", map[string]any{"to": "coder", "task": "write a sort function",
				"callback_chat_id": h.Chat, "deadline_minutes": 30})
		case strings.Contains(h.Text, "func sort"):
			n.reply(b, h, "", "Here it is: "+h.Text)
		}
	})
	n.connected(a)

	cfg := n.withMailbox(n.config("coder"), redis)
	cfg.Gateway = sidecar.GatewayConfig{}
	var p *process
	coder := newWorker(t, func(ctx context.Context) (string, error) { return p.url(ctx) })
	cfg.InjectURL = coder.hook.URL
	p = newProcess(t, n.dir, cfg)

	asked, err := n.SayPrivate(apps[0].ID, n.user.ID, "write me a sort function")
	must(t, err)
	first := n.hears(bot, "write me")
	if first.ID != asked || first.ChatType != "p2p" {
		t.Fatalf("the bot heard %+v", first)
	}
	n.until("the task waits for the coder", func() bool {
		return strings.Contains(n.get(a, "/v1/mailbox/tasks"), `"state":"pending"`)
	})
	must(t, p.crash(limited(t), step+":1"))
	p.start("")

	job := coder.hears("task", "sort function")
	if job.Channel != "mailbox" || job.ChatID != "researcher" || job.SessionKeyOverride != "mailbox:researcher" {
		t.Errorf("the task came as %+v", job)
	}
	coder.call(http.MethodPost, "/v1/mailbox/tasks/"+taskOf(job), map[string]string{"state": "rejected", "text": "not now"}, nil)
	refusal := n.hears(bot, "not now")
	if refusal.Chat != first.Chat || refusal.ChatType != "p2p" {
		t.Errorf("the refusal came into %s (%s), want %s", refusal.Chat, refusal.ChatType, first.Chat)
	}
	var again relay.Inbound
	for again = coder.hears("task", "sort function"); taskOf(again) == taskOf(job); again = coder.hears("task", "sort function") {
	}
	task := "/v1/mailbox/tasks/" + taskOf(again)
	coder.call(http.MethodPost, task, map[string]string{"state": "working"}, nil)
	coder.call(http.MethodPost, task, map[string]string{"state": "completed", "text": "func sort(xs []int)"}, nil)
	result := n.hears(bot, "func sort")
	if result.Chat != first.Chat || result.ChatType != "p2p" {
		t.Errorf("the result came into %s (%s), want %s", result.Chat, result.ChatType, first.Chat)
	}
	answer, err := n.Wait(limited(t), func(m feishusim.Message) bool { return strings.Contains(m.Text, "Here it is: func sort") })
	must(t, err)
	if answer.ChatID != first.Chat {
		t.Errorf("the answer went to %s, want the conversation that asked, %s", answer.ChatID, first.Chat)
	}
	if status := coder.call(http.MethodPost, task, map[string]string{"state": "working"}, nil); status != http.StatusConflict {
		t.Errorf("a step back was answered %d, want 409", status)
	}
	n.until("the sender knows the end of both tasks", func() bool {
		tasks := n.get(a, "/v1/mailbox/tasks")
		return strings.Contains(tasks, `"completed"`) && strings.Contains(tasks, `"rejected"`)
	})

	ids := coder.ids()
	if len(ids) != 2 {
		t.Errorf("the coder was given %d messages, want two tasks: %v", len(ids), ids)
	}
	for id, times := range ids {
		if doubtful := step == "delivered" || step == "inject"; times > 2 || times == 2 && !doubtful {
			t.Errorf("the coder was given %s %d times", id, times)
		}
	}
	n.eachOnce(bot)
	bot.mu.Lock()
	defer bot.mu.Unlock()
	if len(bot.all) != 3 {
		t.Errorf("the researcher's bot was woken %d times, want for the question, the refusal and the result: %+v", len(bot.all), bot.all)
	}
	if slices.ContainsFunc(bot.all, func(h heard) bool { return h.Chat != first.Chat }) {
		t.Errorf("something was said elsewhere: %+v", bot.all)
	}
	p.stop()
	n.until("the coder is offline", func() bool {
		return strings.Contains(n.get(a, "/v1/peers"), fmt.Sprintf("%q:%q", "status", "offline"))
	})
}
