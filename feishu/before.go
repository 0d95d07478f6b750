package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"feishu-relay/internal/jsontree"
)

var errNotTextOrPost = errors.New("is not a text or post")

// WithBefore returns an event with before in front of its message, a text or post; see
// [Passage]. The rest of the JSON stays as it is. An error quotes nothing.
func WithBefore(event []byte, before string) ([]byte, error) {
	out, err := withBefore(event, harmless(before))
	if err != nil {
		return nil, fmt.Errorf("change an event: it %w", err)
	}
	return out, nil
}

func withBefore(event []byte, before string) ([]byte, error) {
	message, at := event, 0
	for _, key := range []string{"event", "message"} {
		from, to, err := Member(message, key)
		if err != nil {
			return nil, err
		}
		message, at = message[from:to], at+from
	}
	var m struct {
		Type    string `json:"message_type"`
		Content string `json:"content"`
	}
	err := json.Unmarshal(message, &m)
	if err != nil {
		return nil, jsontree.WithoutText(err)
	}
	content := []byte(m.Content)
	switch m.Type {
	case "text":
		content, err = textBefore(content, before)
	case "post":
		content, err = paragraphBefore(content, before)
	default:
		err = errNotTextOrPost
	}
	if err != nil {
		return nil, err
	}
	changed, err := SetMember(message, "content", compact(string(content)))
	return slices.Concat(event[:at], changed, event[at+len(message):]), err
}

// textBefore changes the content of a text.
func textBefore(content []byte, before string) ([]byte, error) {
	from, to, err := Member(content, "text")
	if err != nil {
		return nil, err
	}
	var text string
	if json.Unmarshal(content[from:to], &text) != nil {
		return nil, errNotTextOrPost
	}
	return slices.Concat(content[:from], compact(before+text), content[to:]), nil
}

// paragraphBefore changes the content of a post, in both its forms (docs/feishu.md 3.2).
func paragraphBefore(content []byte, before string) ([]byte, error) {
	paragraph := fmt.Appendf(nil, `[{"tag":"text","text":%s}]`, compact(strings.TrimRight(before, "\n")))
	found := false
	for _, key := range []string{"content", "content_v2"} {
		from, to, err := Member(content, key)
		if err != nil {
			return nil, err
		}
		rest, isList := bytes.CutPrefix(content[from:to], []byte("["))
		if !isList {
			continue
		}
		if !bytes.HasPrefix(bytes.TrimLeft(rest, jsonSpace), []byte("]")) {
			rest = slices.Concat([]byte(","), rest)
		}
		content = slices.Concat(content[:from], []byte("["), paragraph, rest, content[to:])
		found = true
	}
	if !found {
		return nil, errNotTextOrPost
	}
	return content, nil
}
