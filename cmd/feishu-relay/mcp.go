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
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/wait"
	"feishu-relay/mcptools"
	"feishu-relay/relay"
)

const (
	mcpCall    = 60 * time.Second // the most time of a call, longer than the sidecar takes
	mcpFinish  = 10 * time.Second // the most time that calls still have when stdin has ended
	maxMCPLine = 4 << 20          // bytes of a line; a longer one ends the program
)

// mcpCommand speaks MCP on stdin and stdout until stdin ends. Everything else that it has to say goes to stderr.
type mcpCommand struct{ reach }

func (c *mcpCommand) run(p *cli, _ []string) error {
	addr, err := sidecarAddr(c.Addr)
	if err != nil {
		return err
	}
	b := &mcpBridge{addr: addr, token: os.Getenv("API_TOKEN")}
	server := mcp.NewServer(&mcp.Implementation{Name: "feishu-relay", Version: versionText()}, &mcp.ServerOptions{
		Instructions: mcptools.Instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	for _, tool := range mcptools.Tools() {
		server.AddTool(tool, b.call)
	}
	fmt.Fprintf(p.stderr, "feishu-relay mcp: serving the sidecar at %s\n", addr)
	in, lines := io.Pipe()
	out := &mcpOutput{Writer: p.stdout}
	go func() { lines.CloseWithError(out.pass(os.Stdin, lines)) }() // a read of stdin cannot be interrupted
	err = server.Run(p.ctx, &mcp.IOTransport{Reader: in, Writer: out, MaxLineLength: maxMCPLine})
	if p.ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// mcpOutput writes a message at a time, and knows which requests have no answer yet: package mcp leaves them behind
// when its input ends.
type mcpOutput struct {
	io.Writer
	mu      sync.Mutex // held while a message is written
	waiting sync.WaitGroup
}

func (o *mcpOutput) Write(line []byte) (int, error) {
	if m, err := jsonrpc.DecodeMessage(bytes.TrimSpace(line)); err == nil {
		if _, answers := m.(*jsonrpc.Response); answers {
			defer o.waiting.Done()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Writer.Write(line)
}

func (o *mcpOutput) Close() error { return nil }

// pass passes the messages of in on until it ends and what was asked is answered. A line that is no message, at which
// package mcp would end, is refused.
func (o *mcpOutput) pass(in io.Reader, to io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMCPLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		message, err := jsonrpc.DecodeMessage(lines.Bytes())
		if err != nil {
			const refusal = `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"want a JSON-RPC message"}}`
			_, _ = fmt.Fprintf(o, refusal+"\n", jsonrpc.CodeInvalidRequest) // else the host is gone
			continue
		}
		if request, is := message.(*jsonrpc.Request); is && request.IsCall() {
			o.waiting.Add(1)
		}
		if _, err := fmt.Fprintf(to, "%s\n", lines.Bytes()); err != nil {
			return err
		}
	}
	wait.Group(&o.waiting, mcpFinish)
	return lines.Err()
}

// mcpBridge passes calls on to the sidecar's /mcp, one POST each: that keeps no sessions, so that a sidecar that was
// restarted, or started only now, is found. A call is never repeated here, since it may have been done.
type mcpBridge struct{ addr, token string }

func (b *mcpBridge) call(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(ctx, mcpCall)
	defer cancel()
	line, err := relay.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": r.Params.Name, "arguments": r.Params.Arguments}})
	if err != nil {
		return nil, err
	}
	data, why := b.post(ctx, line)
	if why != "" {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: why}}}, nil
	}
	var answer struct {
		Result *mcp.CallToolResult
		Error  *jsonrpc.Error
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	return answer.Result, nil
}

// post returns the answer of the sidecar, or why there is none.
func (b *mcpBridge) post(ctx context.Context, line []byte) (data []byte, why string) {
	resp, data, err := fetch(ctx, http.MethodPost, "http://"+b.addr+"/mcp", b.token, line)
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
