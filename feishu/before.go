package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

var errNoPlace = errors.New("it is not a text or post")

// WithBefore returns an event with before in front of its message, a text or post; see
// [Passage]. The rest of the JSON stays as it is. An error quotes nothing.
func WithBefore(event []byte, before string) ([]byte, error) {
	message, at := event, 0
	for _, key := range []string{"event", "message"} {
		from, to, err := Member(message, key)
		if err != nil {
			return nil, fmt.Errorf("change an event: %w", withoutText(err))
		}
		message, at = message[from:to], at+from
	}
	from, to, err := Member(message, "content")
	if err != nil {
		return nil, fmt.Errorf("change an event: %w", withoutText(err))
	}
	var m struct {
		Type    string `json:"message_type"`
		Content string `json:"content"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return nil, fmt.Errorf("change an event: it %w", withoutText(err))
	}
	content := []byte(m.Content)
	switch m.Type {
	case "text":
		content, err = textBefore(content, harmless(before))
	case "post":
		content, err = paragraphBefore(content, harmless(before))
	default:
		err = errNoPlace
	}
	if err != nil {
		return nil, fmt.Errorf("change an event: %w", err)
	}
	value, err := compact(string(content))
	if err != nil {
		return nil, fmt.Errorf("change an event: %w", err)
	}
	return slices.Concat(event[:at+from], value, event[at+to:]), nil
}

// textBefore changes the content of a text.
func textBefore(content []byte, before string) ([]byte, error) {
	from, to, err := Member(content, "text")
	if err != nil {
		return nil, withoutText(err)
	}
	var text string
	if err := json.Unmarshal(content[from:to], &text); err != nil {
		return nil, errNoPlace
	}
	value, err := compact(before + text)
	if err != nil {
		return nil, err
	}
	return slices.Concat(content[:from], value, content[to:]), nil
}

// paragraphBefore changes the content of a post, in both its forms (docs/feishu.md 3.2).
func paragraphBefore(content []byte, before string) ([]byte, error) {
	paragraph, err := compact([]map[string]string{{"tag": "text", "text": strings.TrimRight(before, "\n")}})
	if err != nil {
		return nil, err
	}
	found := false
	for _, key := range []string{"content", "content_v2"} {
		from, to, err := Member(content, key)
		if err != nil {
			return nil, withoutText(err)
		}
		list := content[from:to]
		if len(list) == 0 || list[0] != '[' {
			continue
		}
		rest := list[1:]
		if !bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte("]")) {
			rest = slices.Concat([]byte(","), rest)
		}
		content = slices.Concat(content[:from], []byte("["), paragraph, rest, content[to:])
		found = true
	}
	if !found {
		return nil, errNoPlace
	}
	return content, nil
}
