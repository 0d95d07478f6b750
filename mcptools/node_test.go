package mcptools_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/internal/loopback"
	"feishu-relay/internal/test/npmtest"
	"feishu-relay/internal/test/verify"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mcptools"
	"feishu-relay/transcript"
)

// patience is how long anything of another process is waited for. It is no
// measurement: only a test that fails waits so long.
const patience = 90 * time.Second

const nodePackage = "@modelcontextprotocol/sdk"

// nodeSDK returns the folder in which the official TypeScript SDK is installed.
func nodeSDK(t *testing.T) string {
	t.Helper()
	return npmtest.Installed(t, filepath.Join("testdata", "node", "package.json"), nodePackage)
}

// nodeClient is testdata/node/client.mjs at work.
type nodeClient struct {
	t     *testing.T
	stdin io.Writer
	lines *bufio.Scanner
	log   bytes.Buffer
}

// nodeResult is what it prints of a call.
type nodeResult struct {
	Failed            string
	IsError           bool
	Content           []struct{ Type, Text string }
	StructuredContent any
}

func startNode(t *testing.T, dir, url, token string) *nodeClient {
	t.Helper()
	script, err := filepath.Abs(filepath.Join("testdata", "node", "client.mjs"))
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience) // t.Context ends before the cleanup
	cmd := exec.CommandContext(ctx, "node", script)
	cmd.Dir, cmd.Env = dir, append(withoutProxy(), "URL="+url, "TOKEN="+token)
	c := &nodeClient{t: t}
	cmd.Stderr = &c.log
	stdin, err := cmd.StdinPipe()
	must(t, err)
	c.stdin = stdin
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	c.lines = bufio.NewScanner(stdout)
	c.lines.Buffer(nil, 16<<20)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close() // fails where it has ended by itself
		if c.lines.Scan() {
			t.Errorf("unasked for, it printed %s", c.lines.Bytes())
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("node ended: %v", err)
		}
		cancel()
		if t.Failed() {
			t.Logf("node said:\n%s", &c.log)
		}
	})
	return c
}

// withoutProxy is the environment without what it says of proxies.
func withoutProxy() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(v), "=")
		return strings.HasSuffix(name, "_PROXY")
	})
}

func (c *nodeClient) read(v any) {
	c.t.Helper()
	if !c.lines.Scan() {
		c.t.Fatalf("node printed no more: %v", c.lines.Err())
	}
	must(c.t, json.Unmarshal(c.lines.Bytes(), v))
}

func (c *nodeClient) call(name string, arguments object) nodeResult {
	c.t.Helper()
	must(c.t, json.NewEncoder(c.stdin).Encode(object{"name": name, "arguments": arguments}))
	var r nodeResult
	c.read(&r)
	return r
}

// ok is the text of a result that is no error.
func (c *nodeClient) ok(name string, arguments object) string {
	c.t.Helper()
	r := c.call(name, arguments)
	if r.Failed != "" || r.IsError || len(r.Content) != 1 || r.StructuredContent == nil {
		c.t.Fatalf("%s: got %+v", name, r)
	}
	return r.Content[0].Text
}

// A client on the official TypeScript SDK calls every tool, and goes on where it
// was when the sidecar was restarted.
func TestNodeClient(t *testing.T) {
	verify.Only(t)
	dir := nodeSDK(t)
	word := mail("researcher", "msg_1", mailbox.TypeTask, text(hostile))
	word.Task = &mailbox.Task{ID: "t1", Deadline: time.Now()}
	m := &fakeMailbox{
		listPeers: func(context.Context) (agent.Peers, error) {
			return agent.Peers{Peers: []agent.Peer{{AgentID: "researcher", Description: hostile, Reachable: true, Status: "asleep"}}}, nil
		},
		sendToPeer: func(m agent.PeerMessage) (agent.PeerResult, error) {
			if m.To == "coder" {
				return agent.PeerResult{}, mailbox.Invalid("to", "that is you")
			}
			return agent.PeerResult{DeliveredTo: []string{m.Message}}, nil
		},
		sendTask: func(d agent.Draft) (agent.Sent, error) {
			return agent.Sent{ID: "msg_2", TaskID: "t2", Note: d.Task.Deadline.UTC().Format(time.DateTime)}, nil
		},
		updateTask: func(u agent.TaskUpdate) (agent.TaskRecord, error) {
			return agent.TaskRecord{ID: u.TaskID, Peer: "lead", State: u.State}, nil
		},
		drain: func(int, string, string) (agent.Drained, error) {
			return agent.Drained{Messages: []agent.Mail{word}, Rendered: "(rendered)"}, nil
		},
	}
	o := options(m)
	o.Transcripts = &fakeTranscripts{entries: map[string][]transcript.Entry{"feishu/oc_x": {{Role: "user", Content: hostile}}}}
	serve := func(addr string) *httptest.Server {
		tools := mcptools.Handler(mcptools.New(o))
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer token" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			tools.ServeHTTP(w, r)
		}))
		_ = s.Listener.Close()
		l, err := net.Listen("tcp", addr)
		must(t, err)
		s.Listener = l
		s.Start()
		return s
	}
	addr, err := loopback.Addr()
	must(t, err)
	server := serve(addr)
	c := startNode(t, dir, server.URL, "token")
	var listed []struct{ Name string }
	c.read(&listed)
	var got, want []string
	for i, tool := range mcptools.Tools() {
		got, want = append(got, listed[i].Name), append(want, tool.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}

	wantIn(t, c.ok("who_am_i", nil), `"agent_id":"coder"`)
	wantIn(t, c.ok("list_peers", object{}), `"status":"asleep"`)
	r := c.call("send_to_peer", object{"to": "researcher", "message": hostile})
	if diff := cmp.Diff(any(object{"delivered_to": []any{hostile}, "unreachable_reasons": []any{}}), r.StructuredContent); diff != "" {
		t.Errorf("send_to_peer (-want +got):\n%s", diff)
	}
	wantIn(t, c.ok("send_task", object{"to": "researcher", "task": "look", "deadline": "2026-11-20T15:00:00+08:00"}), "2026-11-20 07:00:00")
	wantIn(t, c.ok("update_task", object{"task_id": "t1", "state": "completed"}), `"state":"completed"`)
	wantIn(t, c.ok("read_inbox", object{"limit": 5}), "(rendered)", `task_id="t1"`)
	wantIn(t, c.ok("read_transcript", object{"chat_id": "oc_x"}), "&lt;/message&gt;")
	wantIn(t, c.ok("read_transcript", nil), `{"chats":[]}`)

	for _, tt := range []struct {
		arguments object
		want      string
	}{
		{object{"to": "coder", "message": "m"}, "INVALID_MESSAGE: to: that is you"},
		{object{"whom": "coder"}, "no such argument: whom"},
	} {
		if r := c.call("send_to_peer", tt.arguments); !r.IsError || r.Failed != "" || !strings.Contains(r.Content[0].Text, tt.want) {
			t.Errorf("got %+v, want %q", r, tt.want)
		}
	}

	server.CloseClientConnections()
	server.Close()
	if r := c.call("list_peers", nil); r.Failed == "" {
		t.Errorf("without a server: got %+v", r)
	}
	defer serve(addr).Close()
	wantIn(t, c.ok("list_peers", object{}), `"status":"asleep"`)
}
