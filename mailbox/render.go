package mailbox

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// EscapeText keeps what somebody wrote from closing the element that it is in.
func EscapeText(s string) string { return escaper.Replace(s) }

// EscapeValue does so for what is between quotes, on one line.
func EscapeValue(s string) string { return escaper.Replace(oneLine(s)) }

// WriteAttribute writes an attribute of an element that is being written, unless the value is
// empty. What others wrote cannot pass for markup in it.
func WriteAttribute(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, ` %s="%s"`, name, EscapeValue(value))
	}
}

// Render writes messages for a model: "# PEER MESSAGES" and one <peer-message>
// each, escaped (docs/protocol.md 6.7). What is not a plain message says its type, and a
// task its id, state and deadline. No messages are "".
func Render(list []Envelope) string {
	if len(list) == 0 {
		return ""
	}
	lines := []string{"# PEER MESSAGES"}
	for _, e := range list {
		lines = append(lines, openTag(e), EscapeText(renderParts(e)), "</peer-message>")
	}
	return strings.Join(lines, "\n")
}

func openTag(e Envelope) string {
	var b strings.Builder
	b.WriteString("<peer-message")
	WriteAttribute(&b, "from", string(e.From))
	WriteAttribute(&b, "sent_at", sentAt(e.Timestamp))
	WriteAttribute(&b, "correlation_id", e.Metadata.CorrelationID)
	if e.Type != TypeMessage {
		WriteAttribute(&b, "type", string(e.Type))
	}
	if e.Task != nil {
		WriteAttribute(&b, "task_id", e.Task.ID)
		WriteAttribute(&b, "state", string(e.Task.State))
		WriteAttribute(&b, "deadline", sentAt(e.Task.Deadline))
	}
	b.WriteByte('>')
	return b.String()
}

// renderParts is what e says, a line or more for each part.
func renderParts(e Envelope) string {
	var lines []string
	for _, p := range e.Content.Parts {
		switch p.Type {
		case PartText:
			lines = append(lines, p.Text)
		case PartFile:
			lines = append(lines, "file: "+oneLine(p.Path))
		default:
			lines = append(lines, string(p.Data))
		}
	}
	return strings.Join(lines, "\n")
}

// sentAt is t as RFC 3339 with a numeric zone, and a fraction where it has one; "" for the zero time.
func sentAt(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	layout := "2006-01-02T15:04:05-07:00"
	if t.Nanosecond() >= int(time.Millisecond) {
		layout = "2006-01-02T15:04:05.000-07:00"
	}
	return t.UTC().Format(layout)
}

// oneLine has spaces for line breaks and other control characters.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}
