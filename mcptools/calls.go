package mcptools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

const (
	// callTimeout is the most time a call takes; beyond it the caller is told that
	// what it asked for may have been done.
	callTimeout = 30 * time.Second
	// maxError bounds the text of an error, in bytes; what is over is cut.
	maxError = 4 << 10
	// maxName bounds ids and the like, in bytes; a longer one is refused.
	maxName = 1024
)

// refuse makes an error that says which argument is wrong, and how to fix it.
func refuse(format string, args ...any) error {
	return relay.Errorf(relay.CodeInvalidRequest, format, args...)
}

// guard surrounds each call: it has a time limit, its result a bounded error. An argument
// that is null is taken as left out, as models write it.
func (s *service) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		p, ok := req.GetParams().(*mcp.CallToolParamsRaw)
		if !ok {
			return next(ctx, method, req)
		}
		if t, ok := s.tools[p.Name]; ok {
			if s.Mailbox == nil && !t.Annotations.ReadOnlyHint {
				return failed("this agent's mailbox is off; who runs its sidecar can turn it on (MAILBOX=on)"), nil
			}
			checked, wrong := t.check(p.Arguments)
			if wrong != "" {
				return failed(wrong), nil
			}
			p.Arguments = checked
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		got, err := next(ctx, method, req)
		if r, ok := got.(*mcp.CallToolResult); ok && err == nil && r.IsError {
			return failed(cut(r.GetError().Error(), maxError)), nil
		}
		return got, err
	}
}

func failed(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: textContent(text)}
}

// check returns the arguments without those that are null, or says which one its schema refuses and
// what is expected. The library's own errors repeat the value, which may be a message's text or a secret.
func (t tool) check(arguments json.RawMessage) (checked json.RawMessage, wrong string) {
	var given map[string]json.RawMessage
	if json.Unmarshal(arguments, &given) != nil {
		return arguments, "" // refused by what comes next
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		var value any
		switch schema := t.takes[name]; {
		case schema == nil: // refused by what comes next
		case string(given[name]) == "null":
			delete(given, name)
		case json.Unmarshal(given[name], &value) != nil || schema.Validate(value) != nil:
			return nil, name + ": want " + wanted(schema.Schema())
		}
	}
	checked, _ = json.Marshal(given) // JSON that was read
	return checked, ""
}

// wanted is what the schema of an argument asks for.
func wanted(s *jsonschema.Schema) string {
	switch {
	case s.Enum != nil:
		return "one of " + strings.Trim(fmt.Sprint(s.Enum), "[]")
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("a whole number from %.0f to %.0f", *s.Minimum, *s.Maximum)
	}
	return "a " + s.Type
}

// checkNames refuses arguments in the struct in that are too long for a name.
func checkNames(in any) error {
	for field, v := range reflect.ValueOf(in).Fields() {
		if n, ok := v.Interface().(name); ok && len(n) > maxName {
			argument, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			return refuse("%s: has %d bytes, at most %d", argument, len(n), maxName)
		}
	}
	return nil
}

// rendered is a result that a model reads otherwise than as JSON.
type rendered interface {
	content(json string) []mcp.Content
}

func result(value any) (*mcp.CallToolResult, error) {
	data, err := relay.Marshal(value)
	if err != nil {
		return nil, err
	}
	content := textContent(string(data))
	if r, ok := value.(rendered); ok {
		content = r.content(string(data))
	}
	return &mcp.CallToolResult{Content: content, StructuredContent: json.RawMessage(data)}, nil
}

func textContent(text string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: text}} }

// explain is what the caller is told about err. What is no refusal is a fault of
// this side: it is logged, and the caller is told no more than that.
func (s *service) explain(ctx context.Context, tool string, err error) error {
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*relay.Error](err); ok {
		return errors.New(e.Message)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v: what you asked for may have been done or not", callTimeout)
	}
	s.Logger.Error("tool failed", "tool", tool, "err", err)
	return errors.New("the sidecar failed, its log says why; try again later, or tell the person who runs it")
}

// cut keeps at most the first n bytes of s, whole runes, and says so.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s… [cut: the whole has %d bytes]", runes.Cut(s, n), len(s))
}

// Types of arguments with a bound.
type (
	name         string // an id or the like, at most maxName bytes
	step         string // a state that an agent can report on a task that it was given
	minutes      int    // from now until a deadline; 0: none is given
	inboxCount   int    // how many messages read_inbox hands out; 0: the default
	messageCount int    // how many messages read_transcript shows; 0: the default
)

// shapes are the schemas of types that have bounds, and of other packages' types: of those
// only what a model needs to know is described.
var shapes = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[step](): {Type: "string", Enum: []any{
		mailbox.Accepted, mailbox.Working, mailbox.Completed, mailbox.Failed, mailbox.Rejected}},
	reflect.TypeFor[minutes]():      between(1, maxDeadline),
	reflect.TypeFor[inboxCount]():   between(0, maxMail),
	reflect.TypeFor[messageCount](): between(0, maxEntries),
	reflect.TypeFor[agent.TaskRecord](): schemaOf[struct {
		ID        string    `json:"id" jsonschema:"of the task"`
		Direction string    `json:"direction" jsonschema:"received: you were given it; sent: you gave it"`
		Peer      string    `json:"peer" jsonschema:"agent_id of who gave it, or was given it"`
		State     string    `json:"state" jsonschema:"where it stands"`
		Text      string    `json:"text,omitempty" jsonschema:"what is to be done, cut"`
		Deadline  time.Time `json:"deadline,omitzero"`
	}](nil),
	reflect.TypeFor[relay.File](): schemaOf[struct {
		Key  string `json:"key" jsonschema:"what get_file takes"`
		Type string `json:"type"`
		Name string `json:"name,omitempty"`
	}](nil),
	reflect.TypeFor[mailbox.Part](): schemaOf[struct {
		Type string `json:"type" jsonschema:"data or file"`
	}](nil),
	reflect.TypeFor[mailbox.Task](): schemaOf[struct {
		ID       string    `json:"id,omitempty" jsonschema:"task_id"`
		State    string    `json:"state,omitempty" jsonschema:"where it stands"`
		Deadline time.Time `json:"deadline,omitzero"`
	}](nil),
	reflect.TypeFor[mailbox.Callback](): schemaOf[struct {
		Channel string `json:"channel,omitempty" jsonschema:"such as feishu"`
		ChatID  string `json:"chat_id,omitempty" jsonschema:"the group that you said the result belongs in"`
	}](nil),
}

// described are the fields, by tool and name, whose text is too long for a tag.
var described = map[string]map[string]string{
	"who_am_i": {
		"conversations.chat_id": "what read_transcript (of groups) and callback_chat_id of send_task take",
		"limits.max_exchanges_per_peer": "messages between you and one agent in ten minutes; one result for each task or " +
			"question is exempt; 0: no limit",
	},
	"send_to_peer": {
		"correlation_id": "when you answer a message that has a correlation_id: the same; else a UUID of your own, " +
			"if you want one on the answer. What is no UUID is left out",
	},
	"send_task": {
		"task":             "what is to be done, and what the result should look like, at most 64 KiB",
		"deadline":         "until when, as RFC 3339 with a zone, such as 2026-11-20T15:00:00Z",
		"deadline_minutes": "until when, in minutes from now, instead of deadline",
		"callback_chat_id": "the chat that the result belongs in, where a person asked for it: a group or a private chat, " +
			"see who_am_i",
		"forward_of": "id of the message that gave you this work, as read_inbox shows it",
		"note":       "such as: the receiver is offline, and until when the task waits for it",
	},
	"update_task": {"from": "agent_id of who gave it; needed only where two gave tasks with the same id"},
	"read_inbox": {
		"goal": "only what is for this session (goal_id) of yours; left out: everything, each message once",
	},
}

func between(least, most float64) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: &least, Maximum: &most}
}

// schemaOf is the schema of T, whose fields are described by tags.
func schemaOf[T any](shapes map[reflect.Type]*jsonschema.Schema) *jsonschema.Schema {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: shapes})
	if err != nil {
		panic(err) // T is no type of JSON
	}
	return s
}

// openSchema is the schema s of a result: objects may have further fields, since clients discard a
// result that breaks its schema, and what other programs wrote must not cost a whole inbox.
// Nothing is null.
func openSchema(s *jsonschema.Schema) *jsonschema.Schema {
	if n := len(s.Types); n > 0 {
		s.Type, s.Types = s.Types[n-1], nil // null is the first
	}
	s.AdditionalProperties = nil
	if s.Items != nil {
		openSchema(s.Items)
	}
	for _, p := range s.Properties {
		openSchema(p)
	}
	return s
}
