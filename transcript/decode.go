package transcript

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

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

// decode reads an entry; ok is false if the line is not an entry.
func decode(line []byte) (Entry, bool) {
	if len(line) >= MaxLine || len(line) == 0 {
		return Entry{}, false
	}
	if e, ok := decodeOwn(line); ok {
		return e, e.check() == nil
	}
	return decodeAny(line)
}

// decodeAny reads lines written by other programs or by hand.
func decodeAny(line []byte) (Entry, bool) {
	var w struct {
		Entry
		TS     millis `json:"ts"`
		UserTS millis `json:"user_ts"`
	}
	if json.Unmarshal(line, &w) != nil {
		return Entry{}, false
	}
	w.Entry.TS, w.Entry.UserTS = int64(w.TS), int64(w.UserTS)
	return w.Entry, w.check() == nil
}

// millis is a time as other programs write it: a number or a string of one,
// perhaps with a fraction, in milliseconds or seconds. An invalid time becomes
// 0, so that the rest of the entry is kept.
type millis int64

func (m *millis) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `" `)
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || f != f || f > 1e15 || f < -1e15:
		*m = 0
	case f >= 1e9 && f < 1e11: // the years 2001 to 5138 in seconds
		*m = millis(math.Round(f * 1000))
	default:
		*m = millis(f)
	}
	return nil
}

// decodeOwn reads a line of the form that encode writes. It refuses other
// lines, which decodeAny then reads. For lines it accepts, both return the
// same, which a fuzz test checks.
func decodeOwn(line []byte) (Entry, bool) {
	v, ok := scan(line)
	if !ok {
		return Entry{}, false
	}
	return v.entry(line)
}
