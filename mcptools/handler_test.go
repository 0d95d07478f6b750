package mcptools_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/loopback"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mcptools"
)

// A client that was introduced goes on after a restart, without a word.
func TestClientSurvivesRestart(t *testing.T) {
	start := func(addr, note string) *httptest.Server {
		m := &fakeMailbox{listPeers: func(context.Context) (agent.Peers, error) { return agent.Peers{Note: note}, nil }}
		l, err := net.Listen("tcp", addr)
		must(t, err)
		s := httptest.NewUnstartedServer(mcptools.Handler(mcptools.New(options(m))))
		_ = s.Listener.Close()
		s.Listener = l
		s.Start()
		return s
	}
	addr, err := loopback.Addr()
	must(t, err)
	before := start(addr, "before")
	c := connect(t, before.URL)
	wantIn(t, c.ok("list_peers", nil, &object{}), "before")
	before.CloseClientConnections()
	before.Close()
	if _, err := c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_peers"}); err == nil {
		t.Error("a call without a sidecar succeeded")
	}
	after := start(addr, "after")
	defer after.Close()
	wantIn(t, c.ok("list_peers", nil, &object{}), "after")
}

// post sends a request as a program without an SDK does.
func post(t *testing.T, url, body string, header ...string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

const listPeers = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_peers","arguments":{}}}`

func TestEachProtocolIsSpoken(t *testing.T) {
	server := httptest.NewServer(mcptools.Handler(mcptools.New(options(&fakeMailbox{}))))
	defer server.Close()
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		hello := fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,`+
			`"capabilities":{},"clientInfo":{"name":"curl","version":"8"}}}`, version)
		if status, got := post(t, server.URL, hello); status != 200 || !strings.Contains(got, version) {
			t.Errorf("%s: initialize: %d %s", version, status, got)
		}
		status, got := post(t, server.URL, listPeers, "Mcp-Protocol-Version", version)
		if status != 200 || !strings.Contains(got, `"structuredContent":{"peers":[]}`) {
			t.Errorf("%s: %d %s", version, status, got)
		}
	}
	// A session of an earlier life, or of another server, is no hindrance.
	if status, got := post(t, server.URL, listPeers, "Mcp-Session-Id", "GONE"); status != 200 {
		t.Errorf("with a session: %d %s", status, got)
	}
}

func TestWhatIsNoCall(t *testing.T) {
	server := httptest.NewServer(mcptools.Handler(mcptools.New(options(&fakeMailbox{}))))
	defer server.Close()
	for _, tt := range []struct {
		name, body string
		status     int
	}{
		{"no JSON", "{", 400},
		{"empty", "", 400},
		{"no such tool", strings.Replace(listPeers, "list_peers", "rm", 1), 200},
		{"no such method", strings.Replace(listPeers, "tools/call", "tools/rm", 1), 400},
		{"deep", strings.Repeat("[", 100_000), 400},
		{"large", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"` + strings.Repeat("x", 5<<20) + `"}}`, 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, answer := post(t, server.URL, tt.body)
			if status != tt.status || status == 200 && !strings.Contains(answer, `"error":{`) {
				t.Errorf("got %d %.200s, want %d", status, answer, tt.status)
			}
		})
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL, nil)
		must(t, err)
		req.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d, want 405", method, resp.StatusCode)
		}
	}
}

func TestRequestsAtOnceAreBounded(t *testing.T) {
	inside, release := make(chan struct{}, 64), make(chan struct{})
	server := httptest.NewServer(mcptools.Handler(mcptools.New(options(&fakeMailbox{listPeers: func(context.Context) (agent.Peers, error) {
		inside <- struct{}{}
		<-release
		return agent.Peers{}, nil
	}}))))
	defer server.Close()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if status, answer := post(t, server.URL, listPeers); status != 200 {
				t.Errorf("got %d %s", status, answer)
			}
		})
	}
	for range 64 {
		<-inside
	}
	if status, answer := post(t, server.URL, listPeers); status != http.StatusServiceUnavailable {
		t.Errorf("one more: got %d %s, want 503", status, answer)
	}
	close(release)
	wg.Wait()
	if status, answer := post(t, server.URL, listPeers); status != 200 {
		t.Errorf("afterwards: got %d %s", status, answer)
	}
}

// A client that has gone away does not have its call go on.
func TestCallEndsWithItsClient(t *testing.T) {
	called, ended := make(chan struct{}), make(chan error, 1)
	c := serve(t, options(&fakeMailbox{listPeers: func(ctx context.Context) (agent.Peers, error) {
		close(called)
		<-ctx.Done()
		ended <- ctx.Err()
		return agent.Peers{}, ctx.Err()
	}}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-called
		cancel()
	}()
	if _, err := c.session.CallTool(ctx, &mcp.CallToolParams{Name: "list_peers"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
}

func TestCallHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there, here := mcp.NewInMemoryTransports()
		_, err := mcptools.New(options(&fakeMailbox{listPeers: func(ctx context.Context) (agent.Peers, error) {
			<-ctx.Done()
			return agent.Peers{}, ctx.Err()
		}})).Connect(t.Context(), there, nil)
		must(t, err)
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), here, nil)
		must(t, err)
		defer session.Close()
		begun := time.Now()
		got, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_peers"})
		must(t, err)
		if after := time.Since(begun); !got.IsError || after != 30*time.Second {
			t.Errorf("after %v: %+v", after, got)
		}
		wantIn(t, textOf(t, got), "may have been done or not")
	})
}

// What a host reads of the tools stays small: it stands in each of its prompts.
func TestToolListIsSmall(t *testing.T) {
	var b bytes.Buffer
	must(t, json.NewEncoder(&b).Encode(mcptools.Tools()))
	if b.Len() > 14<<10 {
		t.Errorf("the tools take %d bytes", b.Len())
	}
}
