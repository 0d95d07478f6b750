package transcript

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// rawEntry is a line in the form that encode writes, split into its fields without
// copying.
type rawEntry struct {
	role, content, sender, messageID text
	senderName, threadID, parentID   text
	rootID, msgType, partOf, editOf  text
	ts, userTS                       int64
}

// text is a JSON string.
type text struct {
	raw   []byte // between the quotes
	at    int    // where it begins in the line
	plain bool   // it has no escapes
}

// scan splits a flat object without spaces, of known keys, strings and whole
// numbers, and refuses other lines. Each sidecar reads every line of all others,
// and encoding/json would cost more than the rest of an append.
func scan(line []byte) (v rawEntry, ok bool) {
	s := scanner{b: line}
	if !s.byte('{') {
		return v, false
	}
	for {
		key, ok := s.text()
		if !ok || !key.plain || !s.byte(':') {
			return v, false
		}
		switch string(key.raw) {
		case "role":
			v.role, ok = s.text()
		case "content":
			v.content, ok = s.text()
		case "sender":
			v.sender, ok = s.text()
		case "message_id":
			v.messageID, ok = s.text()
		case "ts":
			v.ts, ok = s.number()
		case "sender_name":
			v.senderName, ok = s.text()
		case "thread_id":
			v.threadID, ok = s.text()
		case "parent_id":
			v.parentID, ok = s.text()
		case "root_id":
			v.rootID, ok = s.text()
		case "user_ts":
			v.userTS, ok = s.number()
		case "msg_type":
			v.msgType, ok = s.text()
		case "part_of":
			v.partOf, ok = s.text()
		case "edit_of":
			v.editOf, ok = s.text()
		default:
			ok = false
		}
		if !ok {
			return v, false
		}
		if s.byte(',') {
			continue
		}
		return v, s.byte('}') && s.i == len(s.b)
	}
}

// entry copies the line once; the fields are parts of that copy.
func (v *rawEntry) entry(line []byte) (e Entry, ok bool) {
	e.TS, e.UserTS = v.ts, v.userTS
	whole := string(line)
	for _, f := range [...]struct {
		from *text
		to   *string
	}{
		{&v.role, &e.Role}, {&v.content, &e.Content}, {&v.sender, &e.Sender}, {&v.messageID, &e.MessageID},
		{&v.senderName, &e.SenderName}, {&v.threadID, &e.ThreadID}, {&v.parentID, &e.ParentID},
		{&v.rootID, &e.RootID}, {&v.msgType, &e.MsgType}, {&v.partOf, &e.PartOf}, {&v.editOf, &e.EditOf},
	} {
		if f.from.plain {
			*f.to = whole[f.from.at : f.from.at+len(f.from.raw)]
		} else if *f.to, ok = f.from.string(); !ok {
			return Entry{}, false
		}
	}
	return e, true
}

// string decodes t; it fails on an escape that JSON does not know.
func (t *text) string() (string, bool) {
	if len(t.raw) == 0 {
		return "", true
	}
	quoted := t.raw[:len(t.raw)+1] // with its closing quote
	var s string
	err := json.Unmarshal(append([]byte{'"'}, quoted...), &s)
	return s, err == nil
}

// id returns the message_id of a whole and valid entry; false if the line must
// be decoded to get it.
func (v *rawEntry) id() ([]byte, bool) {
	role := string(v.role.raw)
	return v.messageID.raw, v.messageID.plain && (role == RoleUser || role == RoleAssistant)
}

type scanner struct {
	b []byte
	i int
}

func (s *scanner) byte(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// text reads a string; it fails on characters that JSON does not allow in one
// and on invalid UTF-8.
func (s *scanner) text() (t text, ok bool) {
	if !s.byte('"') {
		return t, false
	}
	end := endOfString(s.b[s.i:])
	if end < 0 {
		return t, false
	}
	t.raw, t.at = s.b[s.i:s.i+end], s.i
	s.i += end + 1
	var bits byte
	for _, c := range t.raw {
		if c < 0x20 {
			return t, false
		}
		bits |= c
	}
	if bits >= utf8.RuneSelf && !utf8.Valid(t.raw) {
		return t, false
	}
	t.plain = bytes.IndexByte(t.raw, '\\') < 0
	return t, t.plain || knownEscapes(t.raw)
}

func knownEscapes(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return true
		}
		b = b[i+1:]
		if b[0] == 'u' {
			if len(b) < 5 || !isHex(b[1:5]) {
				return false
			}
		} else if bytes.IndexByte([]byte(`"\/bfnrt`), b[0]) < 0 {
			return false
		}
		b = b[1:] // the escaped character may be a backslash
	}
}

func isHex(b []byte) bool {
	_, err := strconv.ParseUint(string(b), 16, 16)
	return err == nil
}

// endOfString returns the index of the first quote that is not escaped, or -1.
func endOfString(b []byte) int {
	for from := 0; ; from++ {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return -1
		}
		from += i
		escapes := 0
		for escapes < from && b[from-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return from
		}
	}
}

// number reads milliseconds as encode writes them; a number that may mean
// seconds, or has a sign or a leading zero, is left to decodeAny.
func (s *scanner) number() (n int64, ok bool) {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' && s.i-start < 15 {
		n = n*10 + int64(s.b[s.i]-'0')
		s.i++
	}
	digits := s.i - start
	return n, digits > 0 && (digits == 1 || s.b[start] != '0') && (n < 1e9 || n >= 1e11)
}
