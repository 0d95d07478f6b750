// Package mailapi is the routes of the local API for direct messages between
// agents: peers, the inbox, tasks and dead letters, a WebSocket for the bot and the
// MCP tools. Package httpapi serves them after its own checks.
//
// A refusal by the mailbox has the mailbox's code, in capitals, and names the field
// that is wrong.
package mailapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"feishu-relay/internal/web"
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
	SendTask(ctx context.Context, d agent.TaskDraft) (agent.Sent, error)
	UpdateTask(ctx context.Context, u agent.TaskUpdate) (agent.TaskRecord, error)
	Tasks() []agent.TaskRecord
	Task(id string) []agent.TaskRecord
	DeadLetters() ([]agent.DeadLetter, error)
	Replay(ctx context.Context, id string) error
	Attach(send agent.Send) agent.Line
}

var _ Mailbox = (*agent.Agent)(nil)

// Bounds of the routes.
const (
	// maxMail is the most bytes of a body: the largest envelope, with room for the
	// fields around it; more is refused with 413.
	maxMail   = mailbox.MaxEnvelope + 4<<10
	mailLimit = 200 // the most messages of one answer
)

// Options of an [API].
type Options struct {
	Mailbox Mailbox      // nil: MAILBOX=off
	MCP     http.Handler // at /mcp; nil: no tools
	Lines   *Lines       // of bots at /v1/mailbox/ws; nil: a private one that is never closed
	Logger  *slog.Logger // nil: nothing is logged
}

// API answers the routes.
type API struct{ Options }

// New returns the API of a mailbox.
func New(o Options) *API {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Lines == nil {
		o.Lines = &Lines{}
	}
	return &API{o}
}

// Routes returns all routes. docs/openapi.yaml describes each.
func (a *API) Routes() []web.Route {
	ok, created, accepted := http.StatusOK, http.StatusCreated, http.StatusAccepted
	routes := []web.Route{
		web.On("POST /v1/peers/{agent}/messages", a.json(ok, a.sendToPeer)),
		web.On("GET /v1/peers/self/goals", a.json(ok, a.goals)),
		web.On("POST /v1/peers/self/goals", a.json(created, a.addGoal)),
		web.On("DELETE /v1/peers/self/goals/{goal}", a.json(ok, a.removeGoal)),

		web.On("GET /v1/mailbox/agents", a.json(ok, a.agents)),
		web.On("GET /v1/mailbox/agents/{agent}", a.json(ok, a.agent)),
		web.On("GET /v1/mailbox/inbox", a.json(ok, a.inbox)),
		web.On("POST /v1/mailbox/inbox/drain", a.json(ok, a.drain)),
		web.On("POST /v1/mailbox/messages", a.json(accepted, a.sendMail)),
		web.On("POST /v1/mailbox/messages/{id}/ack", a.json(ok, a.byID(Mailbox.Ack))),
		web.On("POST /v1/mailbox/messages/{id}/nack", a.json(ok, a.nack)),
		web.On("GET /v1/mailbox/tasks", a.json(ok, a.tasks)),
		web.On("POST /v1/mailbox/tasks", a.json(accepted, a.sendTask)),
		web.On("GET /v1/mailbox/tasks/{id}", a.json(ok, a.task)),
		web.On("POST /v1/mailbox/tasks/{id}", a.json(ok, a.updateTask)),
		web.On("GET /v1/mailbox/dead-letters", a.json(ok, a.deadLetters)),
		web.On("POST /v1/mailbox/dead-letters/{id}/replay", a.json(accepted, a.byID(Mailbox.Replay))),
		web.On("GET /v1/mailbox/schemas", a.json(ok, a.schemas)),
		web.On("GET /v1/mailbox/schemas/{name}", a.schema),
		web.On("GET /v1/mailbox/ws", a.line).As(web.LongLived),
	}
	if a.Mailbox == nil {
		for i := range routes {
			routes[i] = web.On(routes[i].Pattern, a.json(ok, a.off))
		}
	}
	return append(routes, // also without a mailbox
		web.On("GET /v1/peers", a.json(ok, a.peers)),
		web.On("POST /mcp", a.mcp))
}

// json serves what handle returns.
func (a *API) json(status int, handle web.Handler) http.HandlerFunc {
	return web.Serve(status, maxMail, handle, a.fail)
}

// fail answers with err, and logs an error whose text the caller does not get.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	refusal := a.refusal(r, err)
	if e, ok := errors.AsType[*statusError](err); ok {
		web.Refuse(w, e.status, refusal)
		return
	}
	web.WriteError(w, refusal)
}

// statusError is a refusal with a status other than that of its code.
type statusError struct {
	error
	status int
}

func (e *statusError) Unwrap() error { return e.error }

// about gives err another status if it is an INVALID_MESSAGE for field: the id in
// the path is unknown, or the state is not possible now.
func about(field string, status int, err error) error {
	e, ok := errors.AsType[*mailbox.Error](err)
	if ok && e.Code == mailbox.InvalidMessage && e.Field == field {
		return &statusError{err, status}
	}
	return err
}

// refusal is the answer to the caller for err; the log gets the details.
func (a *API) refusal(r *http.Request, err error) *relay.Error {
	if own, ok := errors.AsType[*relay.Error](err); ok {
		return own
	}
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		refusal := &relay.Error{Code: relay.Code(e.Code), Message: e.Message, Field: e.Field, RetryAfter: e.RetryAfter}
		if e.Field != "" {
			refusal.Message = e.Field + ": " + e.Message
		}
		return refusal
	}
	if errors.Is(err, mailbox.ErrFull) {
		return &relay.Error{Code: web.CodeInboxFull, Message: fmt.Sprintf(
			"%d messages wait in the receiver's inbox; send again when it has taken some", mailbox.MaxInbox)}
	}
	if r.Context().Err() == nil {
		a.Logger.Error("mailbox request failed", "route", r.Pattern, "err", err)
	}
	return &relay.Error{Code: web.CodeMailboxUnavailable,
		Message: "the mailbox cannot be reached now; try again, and see the sidecar's log if that keeps failing"}
}

func (*API) off(*http.Request) (any, error) { return nil, errOff }

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

// pathAgent returns the agent that the path names.
func pathAgent(r *http.Request, field string) (mailbox.AgentID, error) {
	id := mailbox.AgentID(r.PathValue("agent"))
	return id, inField(field, mailbox.CheckAgent(id))
}

// inField returns a refusal that names the field; any other error, and nil, as it is.
func inField(field string, err error) error {
	if refusal, ok := errors.AsType[*mailbox.Error](err); ok {
		return &mailbox.Error{Code: refusal.Code, Field: field, Message: refusal.Message}
	}
	return err
}

// checkMailID reports why id cannot be the id of a message, a task or a goal.
func checkMailID(field, id string) error { return inField(field, mailbox.CheckID(id)) }

// checkOptional is [checkMailID] for an optional id.
func checkOptional(field, id string) error {
	if id == "" {
		return nil
	}
	return checkMailID(field, id)
}

// limit returns the limit in the query, 50 by default.
func limit(r *http.Request) (int, error) {
	n, ok := web.Limit(r, 50, mailLimit)
	if !ok {
		return 0, mailbox.Invalid("limit", "want a number from 1 to %d", mailLimit)
	}
	return n, nil
}

// oneOf returns the value of a query parameter, which must be one of possible,
// or "".
func oneOf[T ~string](r *http.Request, name string, possible ...T) (T, error) {
	value := T(r.URL.Query().Get(name))
	if value == "" || slices.Contains(possible, value) {
		return value, nil
	}
	return "", mailbox.Invalid(name, "want one of %s", joined(possible))
}

func joined[T ~string](list []T) string {
	var words []string
	for _, v := range list {
		words = append(words, string(v))
	}
	return strings.Join(words, ", ")
}
