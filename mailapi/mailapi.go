// Package mailapi is the routes of the local API for direct messages between
// agents: peers, the inbox, tasks and dead letters, a WebSocket for the bot and the
// MCP tools. Package httpapi serves them after its own checks.
//
// A refusal by the mailbox has the mailbox's code, in capitals, and names the field
// that is wrong.
package mailapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"

	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// Mailbox is the agent's mailbox: [*agent.Agent] describes the methods. A
// refusal is a *[mailbox.Error]; any other error means that the store cannot be
// reached.
type Mailbox interface {
	Self() mailbox.AgentID
	Agents(ctx context.Context) ([]mailbox.Card, error)
	ListPeers(ctx context.Context) (agent.Peers, error)
	SendToPeer(ctx context.Context, m agent.PeerMessage) (agent.PeerResult, error)
	Goals() []string
	AddGoal(ctx context.Context, goal string) (string, error)
	RemoveGoal(ctx context.Context, goal string) error
	Send(ctx context.Context, d agent.Draft) (agent.Sent, error)
	Inbox(ctx context.Context, limit int) (waiting []agent.Mail, total int, err error)
	Drain(ctx context.Context, limit int, goal, cursor string) (agent.Drained, error)
	Ack(ctx context.Context, id string) error
	Nack(ctx context.Context, id string, code mailbox.Code, message string) error
	UpdateTask(ctx context.Context, u agent.TaskUpdate) (agent.TaskRecord, error)
	Tasks() []agent.TaskRecord
	DeadLetters() []agent.DeadLetter
	Replay(ctx context.Context, id string) error
	Attach(send agent.Send) agent.Line
}

var _ Mailbox = (*agent.Agent)(nil)

// maxMail is the most bytes of a body: the largest envelope, with room for the
// fields around it; more is refused with 413.
const maxMail = mailbox.MaxEnvelope + 4<<10

// Options of an [API].
type Options struct {
	Mailbox Mailbox      // nil: MAILBOX=off
	MCP     http.Handler // at /mcp; nil: no tools
	Lines   *Lines       // of bots at /v1/mailbox/ws; nil: a private one that is never closed
	Logger  *slog.Logger // nil: nothing is logged
}

// API answers the routes.
type API struct {
	Options
	web *webapi.API
}

// New returns the API of a mailbox.
func New(o Options) *API {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Lines = cmp.Or(o.Lines, &Lines{})
	return &API{o, &webapi.API{MaxBody: maxMail, Invalid: relay.Code(mailbox.InvalidMessage), Logger: o.Logger,
		Other: relay.Errorf(web.CodeMailboxUnavailable,
			"the mailbox cannot be reached now; try again, and see the sidecar's log if that keeps failing")}}
}

// Routes returns all routes. docs/openapi.yaml describes each.
func (a *API) Routes() []web.Route {
	const ok, created, accepted = http.StatusOK, http.StatusCreated, http.StatusAccepted
	w := a.web
	routes := []web.Route{
		webapi.JSON(w, "POST /v1/peers/{agent}/messages", ok, a.sendToPeer),
		webapi.JSON(w, "GET /v1/peers/self/goals", ok, a.goals),
		webapi.JSON(w, "POST /v1/peers/self/goals", created, a.addGoal),
		webapi.JSON(w, "DELETE /v1/peers/self/goals/{goal_id}", ok, a.removeGoal),

		webapi.JSON(w, "GET /v1/mailbox/agents", ok, a.agents),
		webapi.JSON(w, "GET /v1/mailbox/agents/{agent}", ok, a.agent),
		webapi.JSON(w, "GET /v1/mailbox/inbox", ok, a.inbox),
		webapi.JSON(w, "POST /v1/mailbox/inbox/drain", ok, a.drain),
		webapi.JSON(w, "POST /v1/mailbox/messages", accepted, a.sendMail),
		webapi.JSON(w, "POST /v1/mailbox/messages/{id}/ack", ok, a.ack),
		webapi.JSON(w, "POST /v1/mailbox/messages/{id}/nack", ok, a.nack),
		webapi.JSON(w, "GET /v1/mailbox/tasks", ok, a.tasks),
		webapi.JSON(w, "POST /v1/mailbox/tasks", accepted, a.sendTask),
		webapi.JSON(w, "GET /v1/mailbox/tasks/{id}", ok, a.task),
		webapi.JSON(w, "POST /v1/mailbox/tasks/{id}", ok, a.updateTask),
		webapi.JSON(w, "GET /v1/mailbox/dead-letters", ok, a.deadLetters),
		webapi.JSON(w, "POST /v1/mailbox/dead-letters/{id}/replay", accepted, a.replay),
		webapi.JSON(w, "GET /v1/mailbox/schemas", ok, a.schemas),
		web.On("GET /v1/mailbox/schemas/{name}", a.schema),
		web.On("GET /v1/mailbox/ws", a.line).As(web.LongLived),
	}
	if a.Mailbox == nil {
		for i := range routes {
			routes[i].Handle = func(w http.ResponseWriter, _ *http.Request) { web.WriteError(w, errOff) }
		}
	}
	return append(routes, // also without a mailbox
		webapi.JSON(w, "GET /v1/peers", ok, a.peers),
		web.On("POST /mcp", a.mcp))
}

var errOff = relay.Errorf(web.CodeMailboxOff, "this sidecar runs without a mailbox: set MAILBOX=on")

// mcp serves POST /mcp, also without a mailbox: not all tools need one. There are
// no sessions and no messages initiated by the server, so nothing to GET or
// DELETE.
func (a *API) mcp(w http.ResponseWriter, r *http.Request) {
	if a.MCP == nil {
		web.WriteError(w, relay.Errorf(web.CodeNotFound, "this sidecar offers no tools"))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxMail)
	a.MCP.ServeHTTP(w, r)
}

// Schemas is the answer of GET /v1/mailbox/schemas.
type Schemas struct {
	Schemas []string `json:"schemas"`
}

func (a *API) schemas(context.Context, webapi.None) (Schemas, error) {
	return Schemas{mailbox.SchemaNames()}, nil
}

// schema serves a JSON Schema by its name, with or without ".json".
func (*API) schema(w http.ResponseWriter, r *http.Request) {
	text, ok := mailbox.Schema(strings.TrimSuffix(r.PathValue("name"), ".json"))
	if !ok {
		web.WriteError(w, relay.Errorf(web.CodeNotFound, "there are %s", strings.Join(mailbox.SchemaNames(), ", ")))
		return
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(text) // fails if the caller is gone
}

// Types of parameters and fields that are checked.
type (
	agentID string // in a path
	mailID  string // of a message, a task, a goal or a correlation; may be empty
	text    string // of a message; blank is nothing
)

func (id agentID) Check() error {
	if id == everybody {
		return nil
	}
	return mailbox.CheckAgent(mailbox.AgentID(id))
}

func (id mailID) Check() error {
	if id == "" {
		return nil
	}
	return mailbox.CheckID(string(id))
}

func (t *text) Check() error {
	if strings.TrimSpace(string(*t)) == "" {
		*t = ""
	}
	if len(*t) > mailbox.MaxBody {
		return mailbox.Invalid("", "has %d bytes, at most %d", len(*t), mailbox.MaxBody)
	}
	return nil
}
