package mcptools

import (
	"context"
	_ "embed"
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
	"go.yaml.in/yaml/v3"

	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

const (
	// callTimeout is the most time a call takes; beyond it the caller is told that
	// what it asked for may have been done.
	callTimeout = 30 * time.Second
	// maxError bounds the text of an error, in bytes; what is over is cut.
	maxError = 4 << 10
)

//go:embed tools.yaml
var toolsText []byte

// texts are what models read: the sections of tools.yaml by name.
var texts = func() (all map[string]map[string]string) {
	if err := yaml.Unmarshal(toolsText, &all); err != nil {
		panic(err) // it is part of the program
	}
	return all
}()

// tool is a tool, and what a call of it does.
type tool struct {
	*mcp.Tool
	call func(s *service, ctx context.Context, arguments json.RawMessage) (any, error)
}

// define makes a tool of the function call, whose arguments are described in tools.yaml.
func define[In, Out any](name string, hints *mcp.ToolAnnotations,
	call func(*service, context.Context, In) (Out, error)) tool {
	in, err := jsonschema.For[In](&jsonschema.ForOptions{TypeSchemas: shapes})
	if err != nil {
		panic(err) // In is no type of arguments
	}
	for field, schema := range in.Properties {
		schema.Description = texts[name][field]
	}
	t := &mcp.Tool{Name: name, Title: texts[name]["title"], Description: texts[name]["about"], Annotations: hints,
		InputSchema: in}
	if len(in.Properties) == 0 { // some hosts need this, which the SDK leaves out
		t.InputSchema = map[string]any{"type": "object", "properties": struct{}{}, "additionalProperties": false}
	}
	return tool{t, func(s *service, ctx context.Context, arguments json.RawMessage) (any, error) {
		var args In
		if err := read(in, arguments, &args); err != nil {
			return nil, err
		}
		return call(s, ctx, args)
	}}
}

// read reads arguments as their schema has it, and says which one is wrong and what is expected. One that is null is
// taken as left out, as models write it. The SDK's own errors repeat the value, which may be a text or a secret.
func read(schema *jsonschema.Schema, arguments json.RawMessage, into any) error {
	var given map[string]json.RawMessage
	if len(arguments) > 0 && json.Unmarshal(arguments, &given) != nil {
		return refuse("want an object of arguments")
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		var value any
		switch property := schema.Properties[name]; {
		case property == nil:
			return refuse("no such argument: %s", name)
		case string(given[name]) == "null":
			delete(given, name)
		case json.Unmarshal(given[name], &value) != nil || !fits(property, value):
			return refuse("%s: want %s", name, wanted(property))
		}
	}
	for _, name := range schema.Required {
		if given[name] == nil {
			return refuse("%s: missing", name)
		}
	}
	whole, err := json.Marshal(given)
	if err != nil {
		return err
	}
	return json.Unmarshal(whole, into)
}

func fits(s *jsonschema.Schema, value any) bool {
	resolved, err := s.Resolve(nil)
	return err == nil && resolved.Validate(value) == nil
}

// wanted is what the schema of an argument asks for.
func wanted(s *jsonschema.Schema) string {
	switch {
	case s.Enum != nil:
		return "one of " + strings.Trim(fmt.Sprint(s.Enum), "[]")
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("a whole number from %.0f to %.0f", *s.Minimum, *s.Maximum)
	case s.MaxLength != nil:
		return fmt.Sprintf("a string of at most %d characters", *s.MaxLength)
	}
	return "a " + s.Type
}

// refuse makes an error that says which argument is wrong, and how to fix it.
func refuse(format string, args ...any) error {
	return relay.Errorf(relay.CodeInvalidRequest, format, args...)
}

// serve answers a call: within a time limit, with a bounded error.
func (s *service) serve(ctx context.Context, t tool, arguments json.RawMessage) *mcp.CallToolResult {
	if s.Mailbox == nil && !t.Annotations.ReadOnlyHint {
		return failed("this agent's mailbox is off; who runs its sidecar can turn it on (MAILBOX=on)")
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	out, err := t.call(s, limited, arguments)
	var data []byte
	if err == nil {
		data, err = relay.Marshal(out)
	}
	if err != nil {
		return failed(cut(s.explain(limited, t.Name, err), maxError))
	}
	content := textContent(string(data))
	if r, ok := out.(rendered); ok {
		content = r.content(string(data))
	}
	return &mcp.CallToolResult{Content: content, StructuredContent: json.RawMessage(data)}
}

// rendered is a result that a model reads otherwise than as JSON.
type rendered interface {
	content(json string) []mcp.Content
}

func failed(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{IsError: true, Content: textContent(text)}
}

func textContent(text string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: text}} }

// explain is what the caller is told about err. What is no refusal is a fault of
// this side: it is logged, and the caller is told no more than that.
func (s *service) explain(ctx context.Context, tool string, err error) string {
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*relay.Error](err); ok {
		return e.Message
	}
	if ctx.Err() != nil {
		return fmt.Sprintf("no answer within %v: what you asked for may have been done or not", callTimeout)
	}
	s.Logger.Error("tool failed", "tool", tool, "err", err)
	return "the sidecar failed, its log says why; try again later, or tell the person who runs it"
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
	name         string // an id or the like
	step         string // a state that an agent can report on a task that it was given
	minutes      int    // from now until a deadline; 0: none is given
	inboxCount   int    // how many messages read_inbox hands out; 0: the default
	messageCount int    // how many messages read_transcript shows; 0: the default
)

// shapes are the schemas of types that have bounds.
var shapes = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[name](): {Type: "string", MaxLength: new(1024)},
	reflect.TypeFor[step](): {Type: "string", Enum: []any{
		mailbox.Accepted, mailbox.Working, mailbox.Completed, mailbox.Failed, mailbox.Rejected}},
	reflect.TypeFor[minutes]():      between(1, maxDeadline),
	reflect.TypeFor[inboxCount]():   between(0, maxMail),
	reflect.TypeFor[messageCount](): between(0, maxEntries),
}

func between(least, most float64) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: &least, Maximum: &most}
}
