package book

import (
	"bytes"
	"encoding/json"
	"strconv"

	fastjson "github.com/segmentio/encoding/json"
)

// line is a record in a file.
type line struct {
	Kind  string          `json:"k"`
	Key   string          `json:"id"`   // missing: ""
	Time  int64           `json:"t"`    // of the commit, in Unix seconds
	More  bool            `json:"more"` // the batch goes on in the next line
	Value json.RawMessage `json:"v"`    // missing: the record is deleted
}

// appendHead appends a line up to its value.
func appendHead(b []byte, kind, key string, time int64, more bool) []byte {
	b = append(fastjson.AppendEscape(append(b, `{"k":`...), kind, 0), `,"id":`...)
	b = strconv.AppendInt(append(fastjson.AppendEscape(b, key, 0), `,"t":`...), time, 10)
	if more {
		b = append(b, `,"more":true`...)
	}
	return b
}

// parsed is a line that was read. Its slices are parts of the line.
type parsed struct {
	kind, key []byte
	time      int64
	more      bool
	value     json.RawMessage // nil: the record is deleted
}

// parse reads a line. It reads what Commit writes five times as fast as the decoder does,
// since a start waits for it; the decoder reads what people have written.
func parse(text []byte) (parsed, bool) {
	if p, ok := parsePlain(text); ok && (p.value == nil || json.Valid(p.value)) {
		return p, true
	}
	var l line
	if json.Unmarshal(text, &l) != nil || l.Kind == "" {
		return parsed{}, false
	}
	return parsed{[]byte(l.Kind), []byte(l.Key), l.Time, l.More, l.Value}, true
}

// parsePlain reads a line that is written as Commit does, with a kind and a key that have
// no escapes. It does not check the value.
func parsePlain(text []byte) (p parsed, ok bool) {
	if p.kind, text, ok = plainField(text, `{"k":"`); !ok || len(p.kind) == 0 {
		return p, false
	}
	if p.key, text, ok = plainField(text, `,"id":"`); !ok {
		return p, false
	}
	text, ok = bytes.CutPrefix(text, []byte(`,"t":`))
	digits := bytes.IndexAny(text, ",}")
	if !ok || digits < 0 {
		return p, false
	}
	var err error
	if p.time, err = strconv.ParseInt(string(text[:digits]), 10, 64); err != nil {
		return p, false
	}
	text, p.more = bytes.CutPrefix(text[digits:], []byte(`,"more":true`))
	if string(text) == "}" {
		return p, true
	}
	text, ok = bytes.CutPrefix(text, []byte(`,"v":`))
	value, closed := bytes.CutSuffix(text, []byte("}"))
	p.value = value
	return p, ok && closed
}

// plainField cuts a string field that begins with prefix and has no escapes.
func plainField(text []byte, prefix string) (value, rest []byte, ok bool) {
	text, ok = bytes.CutPrefix(text, []byte(prefix))
	end := bytes.IndexAny(text, `"\`)
	if !ok || end < 0 || text[end] == '\\' {
		return nil, text, false
	}
	return text[:end], text[end+1:], true
}
