package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mcptools"
)

const (
	// mcpHello is the most time for reaching the sidecar.
	mcpHello = 5 * time.Second
	// mcpCall is the most time of a call, longer than the sidecar takes.
	mcpCall = 60 * time.Second
)

const mcpHelp = `Serves the tools of a running sidecar over standard input and output, for
programs that start their MCP servers themselves. One that speaks streamable
HTTP can use http://LISTEN_ADDR/mcp instead. LISTEN_ADDR and API_TOKEN are the
sidecar's. The sidecar may be started later, and restarted meanwhile.

  feishu-relay mcp --addr 127.0.0.1:8797`

// mcpCommand speaks MCP on stdin and stdout until stdin ends. Everything else that it has to say goes to stderr.
type mcpCommand struct{ reach }

func (c *mcpCommand) run(p *cli, _ []string) error {
	ctx, stdout, stderr := p.ctx, p.stdout, p.stderr
	target, err := sidecarAddr(c.Addr)
	if err != nil {
		return err
	}
	b := &mcpBridge{addr: target, http: &http.Client{Transport: &mcpAuth{
		token: os.Getenv("API_TOKEN"),
		next:  &http.Transport{Proxy: nil, DialContext: (&net.Dialer{Timeout: mcpHello}).DialContext},
	}}}
	server := mcp.NewServer(&mcp.Implementation{Name: "feishu-relay", Version: versionText()}, &mcp.ServerOptions{
		Instructions: mcptools.Instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	server.AddReceivingMiddleware(b.serve)
	fmt.Fprintf(stderr, "feishu-relay mcp: serving the sidecar at %s\n", b.addr)
	out := &oneWriter{w: stdout}
	err = server.Run(ctx, finishing{&mcp.IOTransport{Reader: io.NopCloser(newMessages(os.Stdin, out)), Writer: out}})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// mcpBridge passes calls on to the sidecar. For each it connects anew, so that
// a sidecar that was restarted, or started only now, is found.
type mcpBridge struct {
	addr string
	http *http.Client
}

func (b *mcpBridge) serve(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch p := req.GetParams().(type) {
		case *mcp.ListToolsParams:
			return &mcp.ListToolsResult{Tools: b.list(ctx), Cacheable: mcp.Cacheable{CacheScope: "public"}}, nil
		case *mcp.CallToolParamsRaw:
			return b.call(ctx, p)
		}
		return next(ctx, method, req)
	}
}

// list names the sidecar's tools, or where none answers this program's own: a
// host that asks only once shall have them when the sidecar comes.
func (b *mcpBridge) list(ctx context.Context) []*mcp.Tool {
	ctx, cancel := context.WithTimeout(ctx, mcpHello)
	defer cancel()
	session, err := b.connect(ctx)
	if err != nil {
		return mcptools.Tools()
	}
	defer session.Close()
	got, err := session.ListTools(ctx, nil)
	if err != nil {
		return mcptools.Tools()
	}
	return got.Tools
}

// call has the sidecar do what is asked, once: a call is never repeated here,
// since it may have been done.
func (b *mcpBridge) call(ctx context.Context, p *mcp.CallToolParamsRaw) (mcp.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, mcpCall)
	defer cancel()
	hello, cancelHello := context.WithTimeout(ctx, mcpHello)
	defer cancelHello()
	session, err := b.connect(hello)
	if err != nil {
		return mcpError(b.explain(err)), nil
	}
	defer session.Close()
	params := &mcp.CallToolParams{Name: p.Name}
	if len(p.Arguments) > 0 {
		params.Arguments = p.Arguments
	}
	got, err := session.CallTool(ctx, params)
	if _, ok := errors.AsType[*mcpRefused](err); ok {
		return mcpError(b.explain(err)), nil
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Code == jsonrpc.CodeInvalidParams {
		return nil, e // there is no such tool
	}
	if err != nil {
		return mcpError("the sidecar at " + b.addr + " went away during the call: it may have been done or not"), nil
	}
	return &mcp.CallToolResult{Content: got.Content, StructuredContent: got.StructuredContent, IsError: got.IsError}, nil
}

func (b *mcpBridge) connect(ctx context.Context) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "feishu-relay-stdio", Version: versionText()},
		&mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	return client.Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: "http://" + b.addr + "/mcp", HTTPClient: b.http, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
}

// explain says why the sidecar cannot be asked, and what to do.
func (b *mcpBridge) explain(err error) string {
	if e, ok := errors.AsType[*mcpRefused](err); ok {
		return fmt.Sprintf("the sidecar at %s refuses: %s", b.addr, e.message)
	}
	return fmt.Sprintf("no sidecar answers at %s; start it (feishu-relay run), "+
		"or name its address with --addr or LISTEN_ADDR", b.addr)
}

func mcpError(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// mcpAuth adds the token to requests, and makes an error of an answer that is no
// MCP server's.
type mcpAuth struct {
	token string
	next  http.RoundTripper
}

// mcpRefused is an answer that says why not.
type mcpRefused struct{ message string }

func (e *mcpRefused) Error() string { return e.message }

func (a *mcpAuth) RoundTrip(req *http.Request) (*http.Response, error) {
	if a.token != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		err = &mcpRefused{"set API_TOKEN to the sidecar's; a client over HTTP sends it as Authorization: Bearer <API_TOKEN>"}
	case http.StatusNotFound:
		err = &mcpRefused{"it has no /mcp: another program listens there"}
	case http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable:
		err = &mcpRefused{reasonOf(resp)}
	default:
		return resp, nil
	}
	_ = resp.Body.Close()
	return nil, err
}

// reasonOf is what an error answer says, as the API does in JSON or else as text.
func reasonOf(resp *http.Response) string {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what was read of it serves
	return cmp.Or(errorMessage(data), strings.TrimSpace(string(data)), resp.Status)
}
