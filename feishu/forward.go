package feishu

import (
	"strings"

	"feishu-relay/feishu/content"
	"feishu-relay/internal/runes"
)

// Bounds of a merged forward in text.
const (
	maxChildren = 100
	maxChild    = 2 << 10  // bytes of a line
	maxForward  = 16 << 10 // bytes of all
)

// Forwarded returns the messages of a merged forward as text: a line each, with the name of its sender where it is
// known, behind the word for a forward. At most 100 messages and 16 KiB are written; "…" replaces the rest.
func Forwarded(children []Message) string {
	var out strings.Builder
	out.WriteString(content.Parse("merge_forward", "", nil).Text())
	for i := range children {
		line := runes.OneLine(children[i].Text())
		if name := runes.OneLine(children[i].Sender.Name); name != "" {
			line = name + ": " + line
		}
		line = runes.Cut(line, maxChild)
		if i == maxChildren || out.Len()+len(line) > maxForward {
			out.WriteString("\n…")
			break
		}
		out.WriteString("\n" + line)
	}
	return out.String()
}
