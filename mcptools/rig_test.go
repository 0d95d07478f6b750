package mcptools_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mcptools"
	"feishu-relay/transcript"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeMailbox is a mailbox that does what a test says; what it does not say
// gives nothing.
type fakeMailbox struct {
	listPeers  func(context.Context) (agent.Peers, error)
	sendToPeer func(agent.PeerMessage) (agent.PeerResult, error)
	sendTask   func(agent.Draft) (agent.Sent, error)
	updateTask func(agent.TaskUpdate) (agent.TaskRecord, error)
	drain      func(limit int, goal, cursor string) (agent.Drained, error)
	tasks      []agent.TaskRecord
}

var _ mcptools.Mailbox = (*fakeMailbox)(nil)

func (f *fakeMailbox) Self() mailbox.AgentID     { return "coder" }
func (f *fakeMailbox) Goals() []string           { return []string{"coder"} }
func (f *fakeMailbox) Tasks() []agent.TaskRecord { return f.tasks }

func (f *fakeMailbox) ListPeers(ctx context.Context) (agent.Peers, error) {
	if f.listPeers == nil {
		return agent.Peers{}, nil
	}
	return f.listPeers(ctx)
}

func (f *fakeMailbox) SendToPeer(_ context.Context, m agent.PeerMessage) (agent.PeerResult, error) {
	out, err := f.sendToPeer(m)
	out.DeliveredTo, out.UnreachableReasons = append([]string{}, out.DeliveredTo...), append([]string{}, out.UnreachableReasons...)
	return out, err
}

func (f *fakeMailbox) Send(_ context.Context, d agent.Draft) (agent.Sent, error) {
	return f.sendTask(d)
}

func (f *fakeMailbox) UpdateTask(_ context.Context, u agent.TaskUpdate) (agent.TaskRecord, error) {
	return f.updateTask(u)
}

func (f *fakeMailbox) Drain(_ context.Context, limit int, goal, cursor string) (agent.Drained, error) {
	if f.drain == nil {
		return agent.Drained{}, nil
	}
	return f.drain(limit, goal, cursor)
}

// fakeTranscripts holds the entries of chats, by channel/chat_id.
type fakeTranscripts struct {
	chats   []transcript.Chat
	entries map[string][]transcript.Entry
}

func (f *fakeTranscripts) Chats() ([]transcript.Chat, error) { return f.chats, nil }

func (f *fakeTranscripts) Tail(channel, chatID string, n int) ([]transcript.Entry, error) {
	all := f.entries[channel+"/"+chatID]
	return all[max(0, len(all)-n):], nil
}

// options are those of a bot in each group but feishu/oc_secret.
func options(m mcptools.Mailbox) mcptools.Options {
	return mcptools.Options{
		Mailbox:     m,
		Transcripts: &fakeTranscripts{},
		Visible:     func(channel, chatID string) bool { return channel+"/"+chatID != "feishu/oc_secret" },
		WhoAmI:      func(context.Context) mcptools.Identity { return mcptools.Identity{} },
		Version:     "v1.2.3",
	}
}

// client is the official SDK's, connected over HTTP.
type client struct {
	t       *testing.T
	session *mcp.ClientSession
}

func serve(t *testing.T, o mcptools.Options) *client {
	t.Helper()
	server := httptest.NewServer(mcptools.Handler(mcptools.New(o)))
	t.Cleanup(server.Close)
	return connect(t, server.URL)
}

func connect(t *testing.T, url string) *client {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, nil)
	must(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return &client{t, session}
}

func compile(t *testing.T, schema any) *jsonschema.Schema {
	t.Helper()
	data, err := json.Marshal(schema)
	must(t, err)
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	must(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	must(t, c.AddResource("tool.json", doc))
	s, err := c.Compile("tool.json")
	must(t, err)
	return s
}

func (c *client) call(name string, arguments any) *mcp.CallToolResult {
	c.t.Helper()
	got, err := c.session.CallTool(c.t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
	must(c.t, err)
	return got
}

// ok calls a tool and returns the result as text
// and, decoded into out, as data.
func (c *client) ok(name string, arguments, out any) (text string) {
	c.t.Helper()
	got := c.call(name, arguments)
	text = textOf(c.t, got)
	if got.IsError {
		c.t.Fatalf("%s failed: %s", name, text)
	}
	data, err := json.Marshal(got.StructuredContent)
	must(c.t, err)
	must(c.t, json.Unmarshal(data, out))
	return text
}

// fails calls a tool that has to fail, and returns what it says.
func (c *client) fails(name string, arguments any) string {
	c.t.Helper()
	got := c.call(name, arguments)
	if !got.IsError || got.StructuredContent != nil {
		c.t.Fatalf("%s did not fail: %+v", name, got)
	}
	return textOf(c.t, got)
}

func textOf(t *testing.T, r *mcp.CallToolResult) string {
	t.Helper()
	if len(r.Content) != 1 {
		t.Fatalf("got %d pieces of content, want 1", len(r.Content))
	}
	text, ok := r.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("got %T, want text", r.Content[0])
	}
	return text.Text
}

func wantIn(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("got %q, want %q in it", text, part)
		}
	}
}

type object = map[string]any
