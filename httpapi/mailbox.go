package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/mailbox/outgoing"
	"feishu-relay/mailbox/tasks"
	"feishu-relay/relay"
)

// Mailbox is the agent's mailbox: [*agent.Agent] says what each method does. A
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
	Drain(ctx context.Context, limit int, goal string) (agent.Drained, error)
	Ack(ctx context.Context, id string) error
	Nack(ctx context.Context, id string, code mailbox.Code, message string) error
	SendTask(ctx context.Context, d agent.TaskDraft) (agent.Sent, error)
	UpdateTask(ctx context.Context, u agent.TaskUpdate) (tasks.Record, error)
	Tasks() []tasks.Record
	Task(id string) []tasks.Record
	DeadLetters() ([]outgoing.DeadLetter, error)
	Replay(ctx context.Context, id string) error
	Attach(send func(context.Context, mailbox.Envelope) error) agent.Line
}

var _ Mailbox = (*agent.Agent)(nil)

// Bounds of the mailbox routes.
const (
	maxMail   = mailbox.MaxEnvelope + 4<<10 // bytes of a body: the largest envelope, and what stands around it; more is refused with 413
	mailLimit = 200                         // the most messages of one answer
)

// about says that an INVALID_MESSAGE for a field means something else than 400:
// the id in the path is not known, or the state is not possible now.
type about struct {
	field  string
	status int
}

// refuse answers an error of the mailbox, and logs what the caller is not told.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error, special ...about) {
	refusal, refused := errors.AsType[*mailbox.Error](err)
	if !refused {
		a.fail(w, r, a.storeError(r, err))
		return
	}
	code := relay.Code(refusal.Code)
	status := statusOf(code)
	if refusal.Code == mailbox.InvalidMessage {
		for _, s := range special {
			if s.field == refusal.Field {
				status = s.status
			}
		}
	}
	// When the sender may try again is told by errors that know it.
	if later, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok && later.RetryAfter() > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(later.RetryAfter().Seconds()))))
	}
	message := refusal.Message
	if refusal.Field != "" {
		message = refusal.Field + ": " + message
	}
	writeJSON(w, status, errorBody{errorDetail{code, message, refusal.Field}})
}

// storeError is the answer to an error that is no refusal.
func (a *api) storeError(r *http.Request, err error) error {
	if own, ok := errors.AsType[*relay.Error](err); ok {
		return own
	}
	if errors.Is(err, mailbox.ErrFull) {
		return relay.Errorf(codeInboxFull, "%d messages wait in the receiver's inbox; send again when it has taken some", mailbox.MaxInbox)
	}
	if r.Context().Err() == nil {
		a.Logger.Error("mailbox request failed", "route", r.Pattern, "err", err)
	}
	return relay.Errorf(codeMailboxUnavailable, "the mailbox cannot be reached now; try again, and see the sidecar's log if it stays so")
}

func (a *api) mailboxOff(w http.ResponseWriter, _ *http.Request) {
	writeError(w, relay.Errorf(codeMailboxOff, "this sidecar runs without a mailbox: set MAILBOX=on"))
}

var errNoTools = relay.Errorf(codeNotFound, "this sidecar offers no tools")

// mcp serves POST /mcp, also without a mailbox: not all tools need one. There are
// no sessions and no messages of the server's own, so nothing to GET or DELETE.
func (a *api) mcp(w http.ResponseWriter, r *http.Request) {
	if a.MCP == nil {
		writeError(w, errNoTools)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxMail)
	a.MCP.ServeHTTP(w, r)
}

// pathAgent is the agent that the path names.
func pathAgent(r *http.Request, field string) (mailbox.AgentID, error) {
	id := mailbox.AgentID(r.PathValue("agent"))
	if err := mailbox.CheckAgent(id); err != nil {
		return "", inField(field, err)
	}
	return id, nil
}

// inField is a refusal with the field that it is about.
func inField(field string, err error) error {
	if refusal, ok := errors.AsType[*mailbox.Error](err); ok {
		return &mailbox.Error{Code: refusal.Code, Field: field, Message: refusal.Message}
	}
	return err
}

// checkMailID reports why id cannot be the id of a message, a task or a goal.
func checkMailID(field, id string) error { return inField(field, mailbox.CheckID(id)) }

// limit is the limit that the query asks for, 50 when it does not.
func limit(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return 50, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mailLimit {
		return 0, mailbox.Invalid("limit", "want a number from 1 to %d", mailLimit)
	}
	return n, nil
}

// oneOf is the value of a query parameter that has to be one of some, or "".
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

// list is v, or an empty list for none: JSON's null is no list.
func list[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}
