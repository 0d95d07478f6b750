package mailapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"feishu-relay/internal/web"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

// maxReason is the most bytes of a nack's message; more is refused.
const maxReason = 4 << 10

// codes are the codes that a nack may have, in the order in which errors list
// them.
var codes = []mailbox.Code{mailbox.AgentBusy, mailbox.AgentOffline, mailbox.InvalidMessage,
	mailbox.TaskNotFound, mailbox.Unauthorized, mailbox.RateLimited}

// inbox serves GET /v1/mailbox/inbox: the messages that wait for the bot. It
// delivers none.
func (a *API) inbox(r *http.Request) (any, error) {
	n, err := limit(r)
	if err != nil {
		return nil, err
	}
	waiting, total, err := a.Mailbox.Inbox(r.Context(), n)
	if err != nil {
		return nil, err
	}
	messages, err := asJSON(waiting)
	if err != nil {
		return nil, err
	}
	return map[string]any{"messages": messages, "total": total}, nil
}

// drain serves POST /v1/mailbox/inbox/drain: the messages in its answer wait until
// they are confirmed, such as by its cursor; with a limit of 0 that is all it does.
func (a *API) drain(r *http.Request) (any, error) {
	query := r.URL.Query()
	n, err := limit(r)
	if query.Get("limit") == "0" && query.Get("cursor") != "" {
		n, err = 0, nil
	}
	if err != nil {
		return nil, err
	}
	goal := query.Get("goal")
	if err := checkOptional("goal", goal); err != nil {
		return nil, err
	}
	drained, err := a.Mailbox.Drain(r.Context(), n, goal, query.Get("cursor"))
	if err != nil {
		return nil, err
	}
	messages, err := asJSON(drained.Messages)
	if err != nil {
		return nil, err
	}
	return map[string]any{"messages": messages, "rendered": drained.Rendered,
		"dropped": drained.Dropped, "waiting": drained.Waiting, "cursor": drained.Cursor}, nil
}

// asJSON returns messages as the stores hold them, with the goal of each.
func asJSON(mail []agent.Mail) ([]json.RawMessage, error) {
	all := []json.RawMessage{}
	for _, m := range mail {
		envelope, err := mailbox.Encode(m.Envelope)
		if err != nil {
			return nil, err
		}
		goal, err := relay.Marshal(m.Goal)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Concat(envelope[:len(envelope)-1], []byte(`,"goal_id":`), goal, []byte{'}'}))
	}
	return all, nil
}

// sendMail serves POST /v1/mailbox/messages: an envelope of any type, of which
// most fields are optional.
func (a *API) sendMail(r *http.Request) (any, error) {
	draft, err := readDraft(r)
	if err != nil {
		return nil, err
	}
	return a.Mailbox.Send(r.Context(), draft)
}

func readDraft(r *http.Request) (d agent.Draft, err error) {
	var fields map[string]json.RawMessage
	if err := readMail(r, &fields); err != nil {
		return d, err
	}
	if fields == nil { // null
		fields = map[string]json.RawMessage{}
	}
	for _, name := range []string{"forwardOf", "forward_of"} {
		id, err := takeID(fields, name)
		if err != nil {
			return d, err
		}
		d.ForwardOf = cmp.Or(id, d.ForwardOf)
	}
	d.Envelope, err = envelope(fields)
	return d, err
}

// takeID removes an optional id from fields and returns it.
func takeID(fields map[string]json.RawMessage, name string) (id string, err error) {
	raw, given := fields[name]
	if !given {
		return "", nil
	}
	delete(fields, name)
	if json.Unmarshal(raw, &id) != nil {
		return "", mailbox.Invalid(name, "want a string")
	}
	return id, checkOptional(name, id)
}

// envelope reads an envelope to send. The mailbox checks the sender.
func envelope(fields map[string]json.RawMessage) (mailbox.Envelope, error) {
	raw, err := relay.Marshal(fields)
	if err != nil {
		return mailbox.Envelope{}, err
	}
	return mailbox.DecodeDraft(raw)
}

// byID calls do for the message that the path names, and answers with its id.
func (a *API) byID(do func(Mailbox, context.Context, string) error) web.Handler {
	return func(r *http.Request) (any, error) {
		id := r.PathValue("id")
		if err := checkMailID("id", id); err != nil {
			return nil, err
		}
		if err := do(a.Mailbox, r.Context(), id); err != nil {
			return nil, about("id", http.StatusNotFound, err)
		}
		return map[string]string{"id": id}, nil
	}
}

// nack serves POST /v1/mailbox/messages/{id}/nack: the bot refuses it.
func (a *API) nack(r *http.Request) (any, error) {
	id := r.PathValue("id")
	var body struct {
		Code    mailbox.Code `json:"code"`
		Message string       `json:"message"`
		Reason  string       `json:"reason"` // the same
	}
	err := checkMailID("id", id)
	if err == nil {
		err = readMail(r, &body)
	}
	body.Message = cmp.Or(body.Message, body.Reason)
	switch {
	case err != nil:
	case !slices.Contains(codes, body.Code):
		err = mailbox.Invalid("code", "want one of %s", joined(codes))
	case len(body.Message) > maxReason:
		err = mailbox.Invalid("message", "has %d bytes, at most %d", len(body.Message), maxReason)
	}
	if err != nil {
		return nil, err
	}
	if err := a.Mailbox.Nack(r.Context(), id, body.Code, body.Message); err != nil {
		return nil, about("id", http.StatusNotFound, err)
	}
	return map[string]string{"id": id, "code": string(body.Code)}, nil
}

// deadLetter is a dead letter with its envelope as the stores hold it.
type deadLetter struct {
	ID       string          `json:"id"`
	Code     mailbox.Code    `json:"code"`
	Reason   string          `json:"reason"`
	Attempts int             `json:"attempts"`
	DeadAt   time.Time       `json:"dead_at"`
	Envelope json.RawMessage `json:"envelope"`
}

func (a *API) deadLetters(r *http.Request) (any, error) {
	dead, err := a.Mailbox.DeadLetters()
	if err != nil {
		return nil, err
	}
	rows := []deadLetter{}
	for _, d := range dead {
		envelope, err := mailbox.Encode(d.Envelope)
		if err != nil {
			return nil, err
		}
		rows = append(rows, deadLetter{d.ID, d.Code, d.Reason, d.Attempts, d.DeadAt, envelope})
	}
	return map[string]any{"dead_letters": rows}, nil
}
