package mailbox

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// isoMillis is how we write times: RFC 3339 in UTC, with milliseconds.
const isoMillis = "2006-01-02T15:04:05.000Z07:00"

// errTime says what a time looks like.
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

// readTime reads a time as any of the three makes writes it: a text, or a number
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
