package mailbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"feishu-relay/relay"
)

// object is a JSON object whose values are not looked into yet.
type object map[string]json.RawMessage

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
	_ = json.Unmarshal(raw, &s)
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

// atMost is the check of a text of at most limit bytes.
func atMost(limit int) func(string) error {
	return func(s string) error {
		if len(s) > limit {
			return Invalid("", "has %d bytes, at most %d", len(s), limit)
		}
		return nil
	}
}

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
func readTime(value any) (time.Time, error) {
	text, _ := value.(string)
	if n, ok := value.(json.Number); ok {
		text = n.String()
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
