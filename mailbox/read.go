package mailbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"feishu-relay/relay"
)

// object is a JSON object whose values are not looked into yet.
type object = map[string]json.RawMessage

// fields reads the fields of a JSON object from others, each with a check. The first
// mistake counts, under the name that the sender wrote or should have written.
type fields struct {
	in   object
	path string // of the object, with a dot at the end; "": the whole
	err  **Error

	// unbounded leaves out the checks of what has the right type: what was read before, or is
	// only looked at.
	unbounded bool
}

func newFields(in object) *fields { return &fields{in: in, err: new(*Error)} }

func (f *fields) wrong(path, format string, args ...any) {
	if *f.err == nil {
		*f.err = Invalid(path, format, args...)
	}
}

// find returns the first of the names that has a value, as a path, and the value.
// The first name is ours, and the path of what is missing.
func (f *fields) find(names ...string) (path string, value json.RawMessage) {
	for _, name := range names {
		if value := f.in[name]; !isNull(value) {
			return f.path + name, value
		}
	}
	return f.path + names[0], nil
}

// require reports a field that has none of the names.
func (f *fields) require(names ...string) {
	if path, value := f.find(names...); value == nil {
		f.wrong(path, "required")
	}
}

// text reads a text; what is missing is "". check returns an [*Error].
func (f *fields) text(check func(string) error, names ...string) string {
	return f.textIn(check, "want a text", names...)
}

// reference reads an id that may be null.
func (f *fields) reference(names ...string) string {
	return f.textIn(CheckID, "want a text or null", names...)
}

func (f *fields) textIn(check func(string) error, want string, names ...string) (s string) {
	if path, value := f.find(names...); value != nil {
		s = f.textOf(path, value, check, want)
	}
	return s
}

func (f *fields) textOf(path string, value json.RawMessage, check func(string) error, want string) string {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		f.wrong(path, "%s", want)
		return ""
	}
	if f.unbounded {
		return s
	}
	if err := check(s); err != nil {
		f.wrong(path, "%s", err.(*Error).Message)
		return ""
	}
	return s
}

// texts reads a list of texts.
func (f *fields) texts(most int, check func(string) error, names ...string) (texts []string) {
	path, value := f.find(names...)
	if value == nil {
		return nil
	}
	for i, value := range f.list(path, value, most) {
		texts = append(texts, f.textOf(path+"."+strconv.Itoa(i), value, check, "want a text"))
	}
	return texts
}

// list reads a list, of which no more than most are read.
func (f *fields) list(path string, value json.RawMessage, most int) (list []json.RawMessage) {
	if json.Unmarshal(value, &list) != nil {
		f.wrong(path, "want a list")
	}
	if len(list) > most && !f.unbounded {
		f.wrong(path, "want at most %d entries", most)
		return nil
	}
	return list
}

// whole reads a whole number; nil where it is missing. Numbers with a huge exponent are
// never computed.
func (f *fields) whole(least, most int, names ...string) *int {
	path, value := f.find(names...)
	if value == nil {
		return nil
	}
	n, err := strconv.ParseFloat(string(value), 64)
	switch {
	case err != nil || n != math.Trunc(n) || math.Abs(n) >= 1<<53:
		f.wrong(path, "want a whole number")
		return nil
	case n < float64(least) && !f.unbounded:
		f.wrong(path, "want at least %d", least)
	case n > float64(most) && !f.unbounded:
		f.wrong(path, "want at most %d", most)
	}
	return new(int(n))
}

// time reads a time; zero where it is missing.
func (f *fields) time(names ...string) (t time.Time) {
	path, value := f.find(names...)
	if value == nil {
		return t
	}
	t, err := readTime(value)
	if err != nil {
		f.wrong(path, "%v", err)
	}
	return t
}

// flag reads true or false.
func (f *fields) flag(names ...string) bool {
	path, value := f.find(names...)
	if value != nil && string(value) != "true" && string(value) != "false" {
		f.wrong(path, "want true or false")
	}
	return string(value) == "true"
}

// sub is the object in a field; nil where it is missing.
func (f *fields) sub(names ...string) *fields {
	path, value := f.find(names...)
	if value == nil {
		return nil
	}
	in, ok := asObject(value)
	if !ok {
		f.wrong(path, "want an object")
	}
	return &fields{in: in, path: path + ".", err: f.err}
}

// checkJSON refuses data that is not parsed at all.
func checkJSON(raw []byte, limit int) error {
	switch {
	case len(raw) > limit:
		return Invalid("", "has %d bytes, at most %d", len(raw), limit)
	case !utf8.Valid(raw):
		return Invalid("", "want UTF-8")
	case relay.Deeper(raw, maxDepth):
		return Invalid("", "lists and objects are nested more than %d deep", maxDepth)
	}
	return nil
}

// parseObject is the JSON object in raw, which has at most limit bytes.
func parseObject(raw []byte, limit int) (object, error) {
	if err := checkJSON(raw, limit); err != nil {
		return nil, err
	}
	in, ok := asObject(raw)
	if !ok {
		return nil, Invalid("", "want one JSON object")
	}
	return in, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func asObject(raw json.RawMessage) (object, bool) {
	var o object
	raw = bytes.TrimLeft(raw, " \t\r\n")
	ok := bytes.HasPrefix(raw, []byte{'{'}) && json.Unmarshal(raw, &o) == nil
	return o, ok
}

// asText is the text that raw is, or "".
func asText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// encoded is v as JSON; v is made of texts, numbers and JSON that was read.
func encoded(v any) json.RawMessage {
	raw, err := relay.Marshal(v)
	if err != nil {
		panic("mailbox: " + err.Error())
	}
	return raw
}

// optional accepts what check does, and "".
func optional(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

// oneOf is the word, which has to be one of the list.
func oneOf[W ~string](f *fields, path string, word W, list []W) W {
	if slices.Contains(list, word) {
		return word
	}
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	f.wrong(path, "want one of %s", strings.Join(words, ", "))
	return ""
}

// atMost is the check of a text of at most limit bytes.
func atMost(limit int) func(string) error {
	return func(s string) error {
		if len(s) > limit {
			return Invalid("", "has %d bytes, at most %d", len(s), limit)
		}
		return nil
	}
}

// checkWord is the check of an entry of a list of words.
func checkWord(s string) error {
	if s == "" {
		return Invalid("", "must not be empty")
	}
	return atMost(maxWord)(s)
}

// checkPath is the check of the path of a file.
func checkPath(s string) error { return checkText(s, maxPath) }

// isoMillis is how we write times: RFC 3339 in UTC, with milliseconds.
const isoMillis = "2006-01-02T15:04:05.000Z07:00"

// errTime describes the form of a time.
var errTime = errors.New("want a time such as 2026-04-26T10:00:00.000Z, from 1970 on")

func formatTime(t time.Time) string { return t.UTC().Format(isoMillis) }

// The forms of times that other programs write. Each may have a fraction of a
// second; without a zone they are UTC.
var layouts = []string{
	time.RFC3339,
	"2006-01-02T15:04:05",
	"2006-01-02T15:04:05Z0700",
	"2006-01-02T15:04:05Z07",
	"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04",
}

// parseTime reads a time from text, cut to milliseconds, in UTC.
func parseTime(text string) (time.Time, error) {
	if len(text) > 10 && text[10] == ' ' {
		text = text[:10] + "T" + strings.TrimLeft(text[11:], " ")
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return plausible(t)
		}
	}
	return time.Time{}, errTime
}

// readTime reads a time as any of the three mailboxes writes it: a text, or a number
// of seconds or milliseconds since 1970 (told apart by their size), also as a text.
func readTime(raw json.RawMessage) (time.Time, error) {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		if json.Unmarshal(raw, &text) != nil {
			return time.Time{}, errTime
		}
	}
	text = strings.TrimSpace(text)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return parseTime(text)
	}
	if math.Abs(f) < 1e11 {
		f *= 1000
	}
	if !(0 < f && f < 1e15) {
		return time.Time{}, errTime
	}
	return plausible(time.UnixMilli(int64(math.Round(f))))
}

// plausible refuses what RFC 3339 cannot write, and what is a missing value
// rather than a time.
func plausible(t time.Time) (time.Time, error) {
	t = t.UTC().Truncate(time.Millisecond)
	if t.UnixMilli() <= 0 || t.Year() > 9999 {
		return time.Time{}, errTime
	}
	return t, nil
}
