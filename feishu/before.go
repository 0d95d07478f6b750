package feishu

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

var errNotTextOrPost = errors.New("change an event: its message is not a text or post")

// WithBefore returns an event with before in front of its message, a text or post; see [Passage]. The rest of the JSON
// says what it did. An error quotes nothing.
func WithBefore(event []byte, before string) ([]byte, error) {
	var all, body, message, content map[string]json.RawMessage
	var raw string
	if json.Unmarshal(event, &all) != nil || json.Unmarshal(all["event"], &body) != nil ||
		json.Unmarshal(body["message"], &message) != nil || json.Unmarshal(message["content"], &raw) != nil ||
		json.Unmarshal([]byte(raw), &content) != nil {
		return nil, errNotTextOrPost
	}
	before = harmless(before)
	changed := false
	switch string(message["message_type"]) {
	case `"text"`:
		var text string
		changed = content["text"] != nil && json.Unmarshal(content["text"], &text) == nil
		content["text"] = compact(before + text)
	case `"post"`: // in both its forms (docs/feishu.md 3.2)
		paragraph := compact([]any{map[string]string{"tag": "text", "text": strings.TrimRight(before, "\n")}})
		for _, key := range []string{"content", "content_v2"} {
			var paragraphs []json.RawMessage
			if content[key] != nil && json.Unmarshal(content[key], &paragraphs) == nil {
				content[key], changed = compact(slices.Insert(paragraphs, 0, json.RawMessage(paragraph))), true
			}
		}
	}
	if !changed {
		return nil, errNotTextOrPost
	}
	message["content"] = compact(string(compact(content)))
	body["message"] = compact(message)
	all["event"] = compact(body)
	return compact(all), nil
}
