package transcript

import (
	"bytes"
	"encoding/json"
	"strings"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// RoleNotice is the role of a notice of the sidecars, which the API shows among the messages. A
// transcript has only [relay.RoleUser] and [relay.RoleAssistant], which is any bot.
const RoleNotice = "notice"

// Entry is one message of a group: a line of the transcript. A line always has
// the first five fields, in this order.
type Entry struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Sender    string `json:"sender"` // a bot's agent name; a person's display name or open_id
	MessageID string `json:"message_id"`
	TS        int64  `json:"ts"` // Unix milliseconds; 0 is unknown

	SenderName string `json:"sender_name,omitempty"`
	ThreadID   string `json:"thread_id,omitempty"`
	ParentID   string `json:"parent_id,omitempty"`
	RootID     string `json:"root_id,omitempty"`
	FinalTS    int64  `json:"final_ts,omitempty"` // when its text was final, if that was long after ts
	UserTS     int64  `json:"user_ts,omitempty"`  // ts of the newest user message the sender knew
	MsgType    string `json:"msg_type,omitempty"`
	PartOf     string `json:"part_of,omitempty"` // first message of the send of which this is a later piece
	// EditOf is the message, of the same sender, whose content this line replaces. Its ts is the
	// message's. Readers do not get such lines, but the message.
	EditOf string `json:"edit_of,omitempty"`
	Files  Files  `json:"files,omitempty"` // pictures and other files of the message
	// Recalled: the message was recalled and its content removed.
	Recalled bool `json:"recalled,omitempty"`
	// Edited: the content is that of a later line. This field is never in a
	// file.
	Edited bool `json:"edited,omitempty"`
	*Mark       // of a notice; never in a file
}

// Files are the files of a message.
type Files []relay.File

// UnmarshalJSON never fails: a value of another form, written by another program,
// becomes an empty list, so that the rest of the entry is kept.
func (f *Files) UnmarshalJSON(data []byte) error {
	var list []relay.File
	if json.Unmarshal(data, &list) == nil {
		*f = list
	}
	return nil
}

// Mark is what a notice records.
type Mark struct {
	Kind string          `json:"kind"`           // command or notice
	Act  string          `json:"act"`            // stop, continue, set or answer
	Of   string          `json:"of,omitempty"`   // the message that it is about
	By   string          `json:"by,omitempty"`   // the person who gave the command
	Set  json.RawMessage `json:"set,omitempty"`  // the settings that it changed
	Bots []string        `json:"bots,omitempty"` // stopped, or released; none: all
}

// AnswerTo is the id of the command that m answers, "" if it answers none; m may be nil.
func (m *Mark) AnswerTo() string {
	if m == nil || m.Act != "answer" {
		return ""
	}
	return m.Of
}

// Contains reports whether the content, the sender or the sender's name has a text in it,
// ignoring case.
func (e *Entry) Contains(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(strings.ToLower(e.Content), text) || strings.Contains(strings.ToLower(e.Sender), text) ||
		strings.Contains(strings.ToLower(e.SenderName), text)
}

// Short returns e with at most 600 bytes of its content; "…" stands for the rest.
func (e Entry) Short() Entry {
	e.Content = runes.Short(e.Content, 600)
	return e
}

func (e *Entry) valid() bool { return e.Role == relay.RoleUser || e.Role == relay.RoleAssistant }

// encode returns e as one line without its newline, shorter than [relay.MaxLine]. It cuts a content that does not fit.
func (e *Entry) encode() ([]byte, error) { return relay.EncodeCut(e, &e.Content, relay.MaxLine-1) }

// entryStart begins every line that encode writes. It cannot occur inside a
// string, where its quotes would be escaped.
var entryStart = []byte(`{"role":"`)

// parse reads one line without its newline. whole reports that it is an entry
// and nothing else. found reports that it contains an entry, which may follow
// the part of a line that a killed writer left.
func parse(line []byte) (e Entry, found, whole bool) {
	if e, ok := decode(line); ok {
		return e, true, true
	}
	if i := bytes.LastIndex(line, entryStart); i > 0 {
		e, found = decode(line[i:])
	}
	return e, found, false
}

// decode reads an entry; ok is false if the line is not an entry. Times as other programs write them take a second
// look: each sidecar reads all lines.
func decode(line []byte) (e Entry, ok bool) {
	if relay.Unmarshal(line, &e) != nil || isOdd(float64(e.TS)) || isOdd(float64(e.UserTS)) {
		var w struct {
			Entry
			TS     relay.LenientMillis `json:"ts"`
			UserTS relay.LenientMillis `json:"user_ts"`
		}
		if json.Unmarshal(line, &w) != nil {
			return Entry{}, false
		}
		e, e.TS, e.UserTS = w.Entry, int64(w.TS), int64(w.UserTS)
	}
	return e, e.valid()
}

// isOdd reports whether a time is in seconds, those of the years 2001 to 5138, or was too large for a number.
func isOdd(t float64) bool { return t >= 1e9 && t < 1e11 || t > 1e17 }

// edits are the newest contents of messages that were edited after they were recorded, by
// message and sender. A reader goes from the newest line back, so it reads an edit before
// its message.
type edits map[[2]string]Entry

// take adds e if it is an edit, and reports whether it is.
func (d *edits) take(e *Entry) bool {
	if e.EditOf == "" {
		return false
	}
	if *d == nil {
		*d = edits{}
	}
	key := [2]string{e.EditOf, e.Sender}
	if _, newer := (*d)[key]; !newer {
		(*d)[key] = *e
	}
	return true
}

// shown returns e with its newest content. A recalled message has no content, even if it
// was edited.
func (d edits) shown(e Entry) Entry {
	if now, ok := d[[2]string{e.MessageID, e.Sender}]; ok && !e.Recalled {
		e.Content, e.Files, e.Edited, e.Recalled = now.Content, now.Files, !now.Recalled, now.Recalled
	}
	if e.Recalled {
		e.Content, e.Files = "", nil
	}
	return e
}
