package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
)

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

var errNotObject = errors.New("is not a JSON object")

// Member returns where the value of a member of the JSON object data is: data[from:to], empty where it
// is missing. Of several the last counts, as for decoders.
func Member(data []byte, key string) (from, to int, err error) {
	if !json.Valid(data) || bytes.TrimLeft(data, jsonSpace)[0] != '{' {
		return 0, 0, errNotObject
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
