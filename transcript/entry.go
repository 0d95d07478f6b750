package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Roles of an entry.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant" // any bot
	// RoleNotice is a notice of the sidecars. Notices are in a folder of their own, since
	// readers of a transcript know only the other two roles.
	RoleNotice = "notice"
)

// MaxLine is the most bytes a line may have, with its newline. Writing cuts a
// longer content; reading skips a longer line.
const MaxLine = 1 << 20

// CutMark ends a content that was cut to fit; %d is its full size in bytes.
const CutMark = "\n… [cut by feishu-relay: the whole text has %d bytes]"

// Entry is one message of a group: a line of the transcript. A line always has
// the first five fields, in this order.
type Entry struct {
	Role      string `json:"role"` // RoleUser or RoleAssistant
	Content   string `json:"content"`
	Sender    string `json:"sender"` // a bot's agent name; a person's display name or open_id
	MessageID string `json:"message_id"`
	TS        int64  `json:"ts"` // Unix milliseconds; 0 is unknown

	SenderName string `json:"sender_name,omitempty"`
	ThreadID   string `json:"thread_id,omitempty"`
	ParentID   string `json:"parent_id,omitempty"`
	RootID     string `json:"root_id,omitempty"`
	UserTS     int64  `json:"user_ts,omitempty"` // ts of the newest user message the sender knew
	MsgType    string `json:"msg_type,omitempty"`
	PartOf     string `json:"part_of,omitempty"` // first message of the send of which this is a later piece
	// EditOf is the message, of the same sender, whose content this line replaces. Its ts is the
	// message's. Only [Store.Follow] and [Store.Back] return such lines.
	EditOf string `json:"edit_of,omitempty"`
	Files  Files  `json:"files,omitempty"` // pictures and other files of the message
	// Recalled: the message was recalled and its content removed.
	Recalled bool `json:"recalled,omitempty"`
	// Edited: the content is that of a later line. This field is never in a
	// file.
	Edited bool `json:"edited,omitempty"`
	*Mark       // of a notice
}

// File is a picture or another file of a message.
type File struct {
	Key  string `json:"key"`
	Type string `json:"type"` // image or file
	Name string `json:"name,omitempty"`
}

// Files are the files of a message, as the JSON text of a list, so that entries are comparable.
type Files string

// FilesOf converts a list to its form in an entry.
func FilesOf(list []File) Files {
	if len(list) == 0 {
		return ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(list); err != nil {
		return "" // unreachable: strings always encode
	}
	return Files(bytes.TrimSpace(b.Bytes()))
}

// List returns the files, nil for "".
func (f Files) List() []File {
	var list []File
	if f == "" || json.Unmarshal([]byte(f), &list) != nil {
		return nil
	}
	return list
}

// MarshalJSON writes the list.
func (f Files) MarshalJSON() ([]byte, error) {
	if f == "" {
		return []byte("[]"), nil
	}
	return []byte(f), nil
}

// UnmarshalJSON never fails: a value of another form, written by another program,
// becomes an empty list, so that the rest of the entry is kept.
func (f *Files) UnmarshalJSON(data []byte) error {
	var list []File
	if json.Unmarshal(data, &list) == nil {
		*f = FilesOf(list)
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

// actAnswer is the Act of an answer to the command that Of names.
const actAnswer = "answer"

// AnswerTo is the id of the command that m answers, "" if it answers none; m may be nil.
func (m *Mark) AnswerTo() string {
	if m == nil || m.Act != actAnswer {
		return ""
	}
	return m.Of
}

func (e *Entry) check() error {
	if e.Role != RoleUser && e.Role != RoleAssistant && e.Role != RoleNotice {
		return fmt.Errorf("%w: role is not user, assistant or notice", ErrEntry)
	}
	return nil
}

// size is about how many bytes e takes in memory.
func (e *Entry) size() int {
	return recentCost + len(e.Files) + len(e.Content) + len(e.Sender) + len(e.MessageID) + len(e.SenderName) +
		len(e.ThreadID) + len(e.ParentID) + len(e.RootID) + len(e.MsgType) + len(e.PartOf) + len(e.EditOf)
}

// outline returns e without its content and files, as a copy that does not keep the line it
// was read from in memory.
func (e *Entry) outline() Entry {
	short := *e
	short.Content, short.Files, short.Mark = "", "", nil
	for _, text := range []*string{&short.Role, &short.Sender, &short.MessageID, &short.SenderName, &short.ThreadID,
		&short.ParentID, &short.RootID, &short.MsgType, &short.PartOf, &short.EditOf} {
		*text = strings.Clone(*text)
	}
	return short
}

// encodeTo returns e as one line with its newline, at most MaxLine bytes, which are in
// b. It fails only if the other fields alone are too long.
func encodeTo(b *bytes.Buffer, e Entry) ([]byte, error) {
	whole := e.Content
	keep := len(whole) // bytes of the content to keep; escapes take more in the line
	if keep > MaxLine {
		keep = MaxLine
		e.Content = cut(whole, keep)
	}
	for {
		b.Reset()
		enc := json.NewEncoder(b)
		enc.SetEscapeHTML(false) // <at> tags remain readable
		if err := enc.Encode(&e); err != nil {
			return nil, fmt.Errorf("encode entry: %w", err)
		}
		line := b.Bytes()
		over := len(line) - MaxLine
		if over <= 0 {
			return line, nil
		}
		if keep == 0 {
			return nil, fmt.Errorf("%w: %d bytes besides its content, at most %d", ErrEntry, len(line), MaxLine)
		}
		// An escape turns one byte into at most six, so dropping a sixth of the
		// excess is never too much; dropping at least a tenth of keep bounds
		// the loop.
		keep = max(0, min(keep-over/6-64, keep*9/10))
		e.Content = cut(whole, keep)
	}
}

// cut keeps about the first keep bytes of s, in whole runes, and appends
// [CutMark].
func cut(s string, keep int) string {
	for keep > 0 && !utf8.RuneStart(s[keep]) {
		keep--
	}
	return s[:keep] + fmt.Sprintf(CutMark, len(s))
}
