package mention

import (
	"strings"

	"feishu-relay/feishu/content"
)

// parts splits a message into texts that are read separately. A content that is not the platform's JSON is one text.
func parts(t Text) []string {
	plain := t.MsgType == "" || t.MsgType == "text"
	if len(t.Content) <= MaxContent && strings.HasPrefix(strings.TrimSpace(t.Content), "{") {
		for _, kind := range []string{"text", "post", "interactive"} {
			if t.MsgType == "text" && kind != "text" || !plain && kind == "text" {
				continue
			}
			if parts := content.Parse(kind, t.Content, nil).Parts(); parts != nil {
				return parts
			}
		}
		if !plain {
			return nil
		}
	}
	return []string{clip(t.Content, MaxContent)}
}
