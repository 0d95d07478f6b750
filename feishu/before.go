package feishu

import (
	"errors"
	"slices"
	"strings"

	"feishu-relay/feishu/content"
	"feishu-relay/internal/jsontree"
)

var errNotTextOrPost = errors.New("change an event: its message is not a text or post")

// WithBefore returns an event with before in front of its message, a text or post; see [Passage]. The rest of the JSON
// says what it did. An error quotes nothing.
func WithBefore(event []byte, before string) ([]byte, error) {
	root, err := jsontree.Object(event, MaxAnswer)
	message := jsontree.Member(jsontree.Member(root, "event"), "message")
	said, contentErr := jsontree.Object([]byte(jsontree.Field(message, "content")), content.MaxBytes)
	if err != nil || contentErr != nil {
		return nil, errNotTextOrPost
	}
	before = harmless(before)
	changed := false
	switch message["message_type"] {
	case "text":
		if text, ok := said["text"].(string); ok {
			said["text"], changed = before+text, true
		}
	case "post": // in both its forms (docs/feishu.md 3.2)
		paragraph := []any{map[string]any{"tag": "text", "text": strings.TrimRight(before, "\n")}}
		for _, key := range []string{"content", "content_v2"} {
			if paragraphs, ok := said[key].([]any); ok {
				said[key], changed = slices.Insert(paragraphs, 0, any(paragraph)), true
			}
		}
	}
	if !changed {
		return nil, errNotTextOrPost
	}
	message["content"] = string(compact(said))
	return compact(root), nil
}
