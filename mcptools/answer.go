package mcptools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/runes"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// maxError bounds the text of an error, in bytes; what is over is cut.
const maxError = 4 << 10

// answer is what a tool returns.
type answer struct {
	value any    // a JSON object
	text  string // for a model; "": the value's JSON
	more  []mcp.Content
}

func (a answer) result() (*mcp.CallToolResult, error) {
	data, err := relay.Marshal(a.value)
	if err != nil {
		return nil, err
	}
	if a.text == "" {
		a.text = string(data)
	}
	return &mcp.CallToolResult{
		Content:           append([]mcp.Content{&mcp.TextContent{Text: a.text}}, a.more...),
		StructuredContent: json.RawMessage(data),
	}, nil
}

// refuse makes a tool error of err. What is no refusal is a fault of this side:
// it is logged, and the caller is told no more than that.
func (s *service) refuse(ctx context.Context, tool string, err error) *mcp.CallToolResult {
	text := ""
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		text = e.Error()
	} else if e, ok := errors.AsType[argumentError](err); ok {
		text = e.Error()
	} else if e, ok := errors.AsType[*relay.Error](err); ok {
		text = e.Message
	} else if ctx.Err() != nil {
		text = fmt.Sprintf("no answer within %v: what you asked for may have been done or not", callTimeout)
	} else {
		s.Logger.Error("tool failed", "tool", tool, "err", err)
		text = "the sidecar failed, its log says why; try again later, or tell the person who runs it"
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: cut(text, maxError)}}}
}

// cut keeps at most the first n bytes of s, whole runes, and says so.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s… [cut: the whole has %d bytes]", runes.Cut(s, n), len(s))
}
