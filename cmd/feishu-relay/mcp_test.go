package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/loopback"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mcptools"
)

// toolMailbox is a sidecar's mailbox as far as these tests ask for it.
type toolMailbox struct {
	mcptools.Mailbox
}

func (m *toolMailbox) ListPeers(context.Context) (agent.Peers, error) {
	return agent.Peers{Peers: []agent.Peer{{AgentID: "researcher", Description: "<finds> & tells", Reachable: true, Status: "idle"}}}, nil
}

func (m *toolMailbox) SendToPeer(context.Context, agent.PeerMessage) (agent.PeerResult, error) {
	return agent.PeerResult{}, mailbox.Invalid("to", "name an agent")
}

// toolServer answers at addr as a sidecar with the token "secret" does.
func toolServer(t *testing.T, addr string) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	m := &toolMailbox{}
	tools := mcptools.Handler(mcptools.New(mcptools.Options{Mailbox: m}))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/mcp":
			w.WriteHeader(http.StatusNotFound)
		case r.ContentLength > 100_000: // less than a sidecar takes, for the test's time
			_, _ = io.Copy(io.Discard, r.Body) // else the answer may be lost with the connection
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		default:
			body, err := io.ReadAll(r.Body)
			if err != nil || bytes.Contains(body, []byte("hang up")) {
				panic(http.ErrAbortHandler)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			tools.ServeHTTP(w, r)
		}
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// endsAtOnce is the environment for a program that does not, under the race
// detector, sleep for a second when it ends.
func endsAtOnce() []string { return append(os.Environ(), "GORACE=atexit_sleep_ms=0") }

// toolHost is a program that starts `feishu-relay mcp`, as hosts of models do.
func toolHost(t *testing.T, args ...string) *mcp.ClientSession {
	t.Helper()
	cmd := exec.Command("feishu-relay", append([]string{"mcp"}, args...)...)
	var log bytes.Buffer
	cmd.Stderr, cmd.Env = &log, endsAtOnce()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, nil).
		Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, &log)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("feishu-relay mcp ended with %v: %s", err, &log)
		}
	})
	return session
}

func toolCall(t *testing.T, session *mcp.ClientSession, name string, arguments any) (text string, failed bool) {
	t.Helper()
	got, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatal(err)
	}
	return got.Content[0].(*mcp.TextContent).Text, got.IsError
}

func wantRefused(t *testing.T, session *mcp.ClientSession, want string) {
	t.Helper()
	if text, failed := toolCall(t, session, "list_peers", nil); !failed || !strings.Contains(text, want) {
		t.Errorf("got %q, want an error with %q", text, want)
	}
}

func wantTools(t *testing.T, session *mcp.ClientSession) {
	t.Helper()
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, want := map[string]string{}, map[string]string{}
	for _, tool := range list.Tools {
		got[tool.Name] = tool.Description
	}
	for _, tool := range mcptools.Tools() {
		want[tool.Name] = tool.Description
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

func TestMCPPassesCallsOn(t *testing.T) {
	server := toolServer(t, "127.0.0.1:0")
	clearEnvironment(t, map[string]string{"LISTEN_ADDR": server.Listener.Addr().String(), "API_TOKEN": "secret"})
	session := toolHost(t)
	wantTools(t, session)
	if got := session.InitializeResult().Instructions; got != mcptools.Instructions {
		t.Errorf("instructions: got %q", got)
	}

	got, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_peers"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(got.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var peers agent.Peers
	if err := json.Unmarshal(data, &peers); err != nil || len(peers.Peers) != 1 || peers.Peers[0].Description != "<finds> & tells" {
		t.Errorf("got %s, %v", data, err)
	}
	if got, want := got.Content[0].(*mcp.TextContent).Text, `"description":"<finds> & tells"`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}

	for _, tt := range []struct {
		arguments any
		want      string
	}{
		{map[string]any{}, "to: missing"},
		{map[string]any{"to": "", "message": "m"}, "INVALID_MESSAGE: to: name an agent"},
		{map[string]any{"whom": "a"}, "no such argument: whom"},
		{map[string]any{"to": "a", "message": strings.Repeat("x", 100_000)}, "refuses: too large"},
		{map[string]any{"to": "a", "message": "hang up"}, "went away during the call: it may have been done or not"},
	} {
		if text, failed := toolCall(t, session, "send_to_peer", tt.arguments); !failed || !strings.Contains(text, tt.want) {
			t.Errorf("got %q, want an error with %q", text, tt.want)
		}
	}
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "no_such_tool"})
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != jsonrpc.CodeInvalidParams || !strings.Contains(e.Message, "no_such_tool") {
		t.Errorf("no such tool: got %v", err)
	}
}

// The tools are there before the sidecar is, and again after it was restarted.
func TestMCPWaitsForTheSidecar(t *testing.T) {
	addr, err := loopback.Addr()
	if err != nil {
		t.Fatal(err)
	}
	clearEnvironment(t, map[string]string{"LISTEN_ADDR": "127.0.0.1:1", "API_TOKEN": "secret"})
	session := toolHost(t, "--addr", addr)
	for range 2 {
		wantTools(t, session)
		wantRefused(t, session, "no sidecar answers at "+addr+"; start it")
		server := toolServer(t, addr)
		wantTools(t, session)
		if text, failed := toolCall(t, session, "list_peers", nil); failed || !strings.Contains(text, "researcher") {
			t.Errorf("got %q", text)
		}
		server.Close()
	}
}

func TestMCPSaysWhyItIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"token", 401, `{"error":{"code":"unauthorized","message":"…"}}`, "set API_TOKEN to the sidecar's"},
		{"another program", 404, "<html>", "it has no /mcp"},
		{"forbidden", 403, `{"error":{"code":"forbidden_host","message":"only localhost"}}`, "refuses: only localhost"},
		{"busy", 503, "too many requests at once\n", "refuses: too many requests at once"},
		{"silent", 503, "", "refuses: 503 Service Unavailable"},
		{"nonsense", 200, "hello", "no sidecar answers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer server.Close()
			clearEnvironment(t, map[string]string{"LISTEN_ADDR": server.Listener.Addr().String(), "API_TOKEN": "wrong"})
			session := toolHost(t)
			wantRefused(t, session, tt.want)
			wantTools(t, session)
		})
	}
}

// mcpProcess is `feishu-relay mcp` without an SDK on the other side.
func mcpProcess(t *testing.T) (cmd *exec.Cmd, stdin io.WriteCloser, stdout *bufio.Scanner, stderr *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, "feishu-relay", "mcp")
	stderr = &bytes.Buffer{}
	cmd.Stderr, cmd.Env = stderr, endsAtOnce()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdin, bufio.NewScanner(out), stderr
}

const mcpHelloLine = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"

// Stdout holds MCP and nothing else, and the program ends as its host lets it.
func TestMCPEnds(t *testing.T) {
	server := toolServer(t, "127.0.0.1:0")
	clearEnvironment(t, map[string]string{"LISTEN_ADDR": server.Listener.Addr().String(), "API_TOKEN": "secret"})
	for _, tt := range []struct {
		name string
		end  func(*exec.Cmd, io.WriteCloser) error
	}{
		{"when stdin is closed", func(_ *exec.Cmd, stdin io.WriteCloser) error { return stdin.Close() }},
		{"when it is told to", func(cmd *exec.Cmd, _ io.WriteCloser) error { return cmd.Process.Signal(syscall.SIGTERM) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd, stdin, stdout, stderr := mcpProcess(t)
			if _, err := io.WriteString(stdin, mcpHelloLine); err != nil {
				t.Fatal(err)
			}
			if !stdout.Scan() || !strings.HasPrefix(stdout.Text(), `{"jsonrpc":"2.0","id":0,"result":`) {
				t.Fatalf("got %q; %s", stdout.Text(), stderr)
			}
			if err := tt.end(cmd, stdin); err != nil {
				t.Fatal(err)
			}
			for stdout.Scan() {
				t.Errorf("then it printed %q", stdout.Text())
			}
			_ = cmd.Wait() // the status tells
			if got := cmd.ProcessState.ExitCode(); got != 0 {
				t.Errorf("status: got %d, want 0: %s", got, stderr)
			}
			if got, want := stderr.String(), "serving the sidecar at "; !strings.Contains(got, want) {
				t.Errorf("stderr: got %q, want %q in it", got, want)
			}
		})
	}
}

// What was asked before stdin ended is answered, as in `echo … | feishu-relay mcp`. A line that is no message neither ends the program nor costs an answer, not
// even that of a call which is under way.
func TestMCPGoesOnBehindNonsense(t *testing.T) {
	server := toolServer(t, "127.0.0.1:0")
	clearEnvironment(t, map[string]string{"LISTEN_ADDR": server.Listener.Addr().String(), "API_TOKEN": "secret"})
	cmd, stdin, stdout, stderr := mcpProcess(t)
	stdout.Buffer(nil, 1<<20)
	_, err := io.WriteString(stdin, mcpHelloLine+`{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_peers"}}
not json
{"jsonrpc":"2.0","method":"notifications/cancelled","params":3}
{"jsonrpc":"2.0","id":9,"result":{}}
{"jsonrpc":"2.0","id":4}
{"id":3}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_peers"}}
`)
	if err := errors.Join(err, stdin.Close()); err != nil {
		t.Fatal(err)
	}
	results, refused := map[string]bool{}, map[string]int{}
	for stdout.Scan() {
		var answer struct {
			ID     json.RawMessage
			Result json.RawMessage
			Error  *jsonrpc.Error
		}
		if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
			t.Errorf("%q: %v", stdout.Bytes(), err)
		}
		if answer.Result != nil {
			results[string(answer.ID)] = true
		} else {
			refused[string(answer.ID)]++
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ended with %v: %s", err, stderr)
	}
	if diff := cmp.Diff(map[string]bool{"0": true, "1": true, "2": true}, results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"null": 2}, refused); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}
