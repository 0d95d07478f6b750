package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"feishu-relay/internal/selftest"
	"feishu-relay/mcptools"
)

const (
	mcpCall    = 60 * time.Second // the most time of a call, longer than the sidecar takes
	mcpFinish  = 10 * time.Second // the most time that calls still have when stdin has ended
	maxMCPLine = 4 << 20          // bytes of a line; a longer one ends the program
	maxMCPBusy = 32               // calls at a time; the next line is read when one of them ends
)

const mcpHelp = `Serves the tools of a running sidecar over standard input and output, for
programs that start their MCP servers themselves. One that speaks streamable
HTTP can use http://LISTEN_ADDR/mcp instead. LISTEN_ADDR and API_TOKEN are the
sidecar's. The sidecar may be started later, and restarted meanwhile.

  feishu-relay mcp --addr 127.0.0.1:8797`

// mcpCommand speaks MCP on stdin and stdout until stdin ends. Everything else that it has to say goes to stderr.
type mcpCommand struct{ reach }

func (c *mcpCommand) run(p *cli, _ []string) error {
	addr, err := sidecarAddr(c.Addr)
	if err != nil {
		return err
	}
	b := &mcpBridge{addr: addr, token: os.Getenv("API_TOKEN"), out: p.stdout, running: map[string]context.CancelFunc{}}
	fmt.Fprintf(p.stderr, "feishu-relay mcp: serving the sidecar at %s\n", addr)
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- b.serve(ctx, os.Stdin) }() // a read of stdin cannot be interrupted
	select {
	case <-p.ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// mcpBridge passes JSON-RPC messages on to the sidecar's /mcp, one POST each: that keeps no sessions, so that a sidecar
// that was restarted, or started only now, is found.
type mcpBridge struct {
	addr, token string

	mu      sync.Mutex
	out     io.Writer                     // guarded by mu
	running map[string]context.CancelFunc // by the id of the request; guarded by mu
}

type mcpMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		RequestID json.RawMessage `json:"requestId"`       // of notifications/cancelled
		Version   string          `json:"protocolVersion"` // of initialize
	} `json:"params"`
}

// serve answers what is asked until in ends, and what was asked before that.
func (b *mcpBridge) serve(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var calls sync.WaitGroup
	busy := make(chan struct{}, maxMCPBusy)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMCPLine)
	for lines.Scan() {
		line := bytes.TrimSpace(bytes.Clone(lines.Bytes()))
		var m mcpMessage
		_ = json.Unmarshal(line, &m) // as far as it has the form
		switch _, err := jsonrpc.DecodeMessage(line); {
		case len(line) == 0:
		case !json.Valid(line):
			b.answer(nil, jsonError{jsonrpc.CodeParseError, "the line is no JSON: want one JSON-RPC message a line"})
		case err != nil:
			b.answer(m.ID, jsonError{jsonrpc.CodeInvalidRequest, "this is no JSON-RPC message"})
		case m.Method == "notifications/cancelled":
			b.cancel(string(m.Params.RequestID))
		case m.Method == "" || m.ID == nil: // nothing is asked, and the sidecar keeps no sessions to tell
		default:
			busy <- struct{}{}
			calls.Go(func() {
				b.pass(ctx, line, &m)
				<-busy
			})
		}
	}
	late := time.AfterFunc(mcpFinish, cancel)
	defer late.Stop()
	calls.Wait()
	return lines.Err()
}

func (b *mcpBridge) cancel(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if end := b.running[id]; end != nil {
		end()
	}
}

// pass has the sidecar answer a request, once: a call is never repeated here, since it may have been done.
func (b *mcpBridge) pass(ctx context.Context, line []byte, m *mcpMessage) {
	ctx, cancel := context.WithTimeout(ctx, mcpCall)
	defer cancel()
	b.mu.Lock()
	b.running[string(m.ID)] = cancel
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.running, string(m.ID))
	}()
	data, why := b.post(ctx, line)
	if why != "" {
		b.answer(m.ID, m.instead(why))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, _ = b.out.Write(append(bytes.ReplaceAll(bytes.TrimSpace(data), []byte{'\n'}, nil), '\n')) // else the host is gone
}

// post returns the answer of the sidecar, or why there is none.
func (b *mcpBridge) post(ctx context.Context, line []byte) (data []byte, why string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+b.addr+"/mcp", bytes.NewReader(line))
	if err != nil {
		return nil, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	resp, err := selftest.Direct.RoundTrip(req)
	if err == nil {
		defer resp.Body.Close()
		data, err = io.ReadAll(io.LimitReader(resp.Body, maxAPIAnswer))
	}
	dial, _ := errors.AsType[*net.OpError](err)
	switch {
	case dial != nil && dial.Op == "dial":
		return nil, fmt.Sprintf("no sidecar answers at %s; start it (feishu-relay run), "+
			"or name its address with --addr or LISTEN_ADDR", b.addr)
	case err != nil:
		return nil, "the sidecar at " + b.addr + " went away during the call: it may have been done or not"
	case resp.StatusCode == http.StatusUnauthorized:
		why = "set API_TOKEN to the sidecar's; a client over HTTP sends it as Authorization: Bearer <API_TOKEN>"
	case resp.StatusCode == http.StatusNotFound:
		why = "it has no /mcp: another program listens there"
	case !json.Valid(data) && resp.StatusCode == http.StatusOK:
		return nil, fmt.Sprintf("no sidecar answers at %s: another program listens there", b.addr)
	case !bytes.Contains(data, []byte(`"jsonrpc"`)):
		why = cmp.Or(errorMessage(data), strings.TrimSpace(string(data[:min(len(data), 4<<10)])), resp.Status)
	default:
		return data, ""
	}
	return nil, fmt.Sprintf("the sidecar at %s refuses: %s", b.addr, why)
}

// jsonError is an error of JSON-RPC.
type jsonError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// instead is the answer to a request that the sidecar does not answer: a host that asks only once shall have the tools
// when the sidecar comes.
func (m *mcpMessage) instead(why string) any {
	type object = map[string]any
	switch m.Method {
	case "initialize":
		return object{"protocolVersion": cmp.Or(m.Params.Version, "2025-06-18"), "instructions": mcptools.Instructions,
			"capabilities": object{"tools": object{}}, "serverInfo": object{"name": "feishu-relay", "version": versionText()}}
	case "ping":
		return object{}
	case "tools/list":
		return object{"tools": mcptools.Tools()}
	case "tools/call":
		return object{"isError": true, "content": []object{{"type": "text", "text": why}}}
	}
	return jsonError{jsonrpc.CodeInternalError, why}
}

// answer writes a result or a [jsonError].
func (b *mcpBridge) answer(id json.RawMessage, result any) {
	line := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result,omitempty"`
		Error   any             `json:"error,omitempty"`
	}{Version: "2.0", ID: id, Result: result}
	if _, failed := result.(jsonError); failed {
		line.Result, line.Error = nil, result
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = writeLine(b.out, line) // else the host is gone
}
