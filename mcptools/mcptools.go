// Package mcptools is the mailbox as tools that a bot's model calls over MCP:
// who else is there, a word to another agent, a task and its steps, what waits
// in the inbox, what was said in the groups, and the files sent there (docs/mailbox.md; docs/protocol.md 6.7).
//
// [New] makes the server and [Handler] serves it over HTTP; [Tools] lists what
// it offers for a program that only passes calls on.
//
// # Results
//
// A result has structured content and text: the same as JSON, or where a model is to
// read what others wrote, a rendering in which their words cannot pass for anything
// else. get_file adds the file as an embedded resource. What goes wrong is a tool error
// without structured content: one sentence, which names the argument and what is
// expected of it, and does not repeat what the caller wrote there; ids that the
// mailbox does not know are named. Of a fault of the sidecar itself the caller learns that
// there was one, and the log says which.
package mcptools

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Mailbox is what the tools need of an [agent.Agent].
type Mailbox interface {
	Self() mailbox.AgentID
	Goals() []string
	Tasks() []agent.TaskRecord
	ListPeers(context.Context) (agent.Peers, error)
	SendToPeer(context.Context, agent.PeerMessage) (agent.PeerResult, error)
	Send(context.Context, agent.Draft) (agent.Sent, error)
	UpdateTask(context.Context, agent.TaskUpdate) (agent.TaskRecord, error)
	Drain(ctx context.Context, limit int, goal, cursor string) (agent.Drained, error)
}

var _ Mailbox = (*agent.Agent)(nil)

// Transcripts is the record of the groups.
type Transcripts interface {
	Chats() ([]transcript.Chat, error)
	Tail(channel, chatID string, n int) ([]transcript.Entry, error)
}

// OpenFile opens a file of a message. Its error is a [*relay.Error] where the caller is to
// know the reason.
type OpenFile func(ctx context.Context, id relay.MessageID, key string) (relay.FileContent, error)

// Options are what the tools need.
type Options struct {
	Mailbox     Mailbox // nil: MAILBOX=off, and the tools say so
	Transcripts Transcripts
	Visible     func(channel, chatID string) bool // is the bot in it? No other transcript is shown.
	File        OpenFile                          // of a message in a group that the bot is in
	WhoAmI      func(context.Context) Identity    // what the Mailbox does not know of the agent
	Version     string                            // of the program, told to clients
	Logger      *slog.Logger                      // nil: discard
}

// Instructions tell a model, in a sentence for each, when to use which tool.
var Instructions = texts["instructions"]["about"]

type service struct{ Options }

// New returns a server with all tools. It may serve any number of clients at once.
func New(o Options) *mcp.Server {
	s := &service{o}
	s.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	// The SDK's own log is left out: it reports each request.
	server := mcp.NewServer(&mcp.Implementation{Name: "feishu-relay", Version: o.Version}, &mcp.ServerOptions{
		Instructions: Instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}, // which never change
	})
	for _, t := range allTools() {
		server.AddTool(t.Tool, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return s.serve(ctx, t, r.Params.Arguments), nil
		})
	}
	return server
}

// Tools lists the tools of [New].
func Tools() []*mcp.Tool {
	var list []*mcp.Tool
	for _, t := range allTools() {
		list = append(list, t.Tool)
	}
	return list
}

// allTools are made once: the schemas of a tool take milliseconds, for each server.
var allTools = sync.OnceValue(func() []tool {
	return []tool{
		define("who_am_i", readOnly(false), whoAmI), define("list_peers", readOnly(false), listPeers),
		define("send_to_peer", acts(), sendToPeer), define("send_task", acts(), sendTask),
		define("update_task", acts(), updateTask), define("read_inbox", acts(), readInbox),
		define("read_transcript", readOnly(true), readTranscript), define("get_file", readOnly(true), getFile),
	}
})

// readOnly is what a host is told about a tool that changes nothing. open: it shows
// what people and other agents wrote.
func readOnly(open bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true,
		OpenWorldHint: &open}
}

// acts is what a host is told about a tool that reaches other agents, which needs a mailbox.
// None takes anything back, and each call counts.
func acts() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(true)}
}

// maxRequests is the most requests that are served at once; one more is
// answered 503, which clients try again.
const maxRequests = 64

// Handler serves s as streamable HTTP. It lets in everybody: put it behind what
// decides who may call.
//
// It keeps no sessions. Nothing here needs one, since the server never asks a
// client for anything; and a client that has been introduced goes on as if
// nothing had happened when the sidecar was restarted, whereas one with a
// session gets the error that it is gone, and many stop then. So there are no sessions to
// bound or to time out either. A session id that a client sends is ignored.
func Handler(s *mcp.Server) http.Handler {
	serve := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
		Stateless:                    true,
		JSONResponse:                 true,
		PropagateRequestCancellation: true, // an inbox is not emptied for a client that has gone
		DisableLocalhostProtection:   true, // it would refuse a proxy's requests, with a token too
	})
	slots := make(chan struct{}, maxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			serve.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at once, try again", http.StatusServiceUnavailable)
		}
	})
}
