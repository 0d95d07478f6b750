package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strconv"

	"feishu-relay/internal/jsontree"
	"feishu-relay/relay"
)

// MaxAnswer is the most bytes an event or an answer of Feishu may have to be
// read; a longer one is an error (and passes the gateway unread).
const MaxAnswer = 4 << 20

// lenient decodes the JSON object data into v and omits the fields of
// another type than expected.
func lenient(data []byte, v any) error {
	if len(data) > MaxAnswer {
		return jsontree.ErrTooLarge
	}
	if relay.Deeper(data, jsontree.MaxDepth) {
		return jsontree.ErrTooDeep
	}
	err := json.Unmarshal(data, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return nil
	}
	return jsontree.WithoutText(err)
}

// compact encodes v as one line of JSON in the form of JSON.stringify, without needless
// escapes: Node's SDK verifies signatures over its own encoding
// (docs/feishu.md 2.3).
func compact(v any) []byte {
	line, err := relay.Marshal(v)
	if err != nil {
		panic(err) // a programming error: strings, numbers, and structs and maps of them always encode
	}
	return rawSeparators(line)
}

var escapeRE = regexp.MustCompile(`\\(?:u202[89]|.)`)

// rawSeparators undoes the two escapes that encoding/json always makes.
func rawSeparators(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u202`)) {
		return data
	}
	return escapeRE.ReplaceAllFunc(data, func(escape []byte) []byte {
		switch string(escape) {
		case `\u2028`:
			return []byte("\u2028")
		case `\u2029`:
			return []byte("\u2029")
		}
		return escape
	})
}

// jsonSpace is the white space of JSON.
const jsonSpace = " \t\r\n"

// span is where a JSON value is.
type span struct{ from, to int }

// values yields the values of the JSON object or list at a place in data, which is valid JSON, with the keys of an
// object.
func values(data []byte, at span) iter.Seq2[string, span] {
	return func(yield func(string, span) bool) {
		d := json.NewDecoder(bytes.NewReader(data[at.from:at.to]))
		open, _ := d.Token()
		if open != json.Delim('{') && open != json.Delim('[') {
			return
		}
		for d.More() {
			key := ""
			if open == json.Delim('{') {
				t, _ := d.Token()
				key, _ = t.(string)
			}
			var value json.RawMessage
			if d.Decode(&value) != nil {
				return
			}
			to := at.from + int(d.InputOffset())
			if !yield(key, span{to - len(value), to}) {
				return
			}
		}
	}
}

// Member returns where the value of a member of the JSON object data is: data[from:to], empty where it
// is missing. Of several the last counts, as for decoders.
func Member(data []byte, key string) (from, to int, err error) {
	if !json.Valid(data) || bytes.TrimLeft(data, jsonSpace)[0] != '{' {
		return 0, 0, jsontree.ErrNotObject
	}
	for name, at := range values(data, span{0, len(data)}) {
		if name == key {
			from, to = at.from, at.to
		}
	}
	return from, to, nil
}

// SetMember replaces or adds a member of the JSON object data. Nothing else changes.
func SetMember(data []byte, key string, value []byte) ([]byte, error) {
	from, to, err := Member(data, key)
	if err != nil {
		return nil, err
	}
	if from < to {
		return slices.Concat(data[:from], value, data[to:]), nil
	}
	end := bytes.LastIndexByte(data, '}')
	head := bytes.TrimRight(data[:end], jsonSpace)
	comma := []byte(",")
	if bytes.HasSuffix(head, []byte("{")) {
		comma = nil
	}
	return slices.Concat(head, comma, strconv.AppendQuote(nil, key), []byte(":"), value, data[end:]), nil
}
