package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
)

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
	head := bytes.TrimRight(data[:end], " \t\r\n")
	comma := []byte(",")
	if bytes.HasSuffix(head, []byte("{")) {
		comma = nil
	}
	return slices.Concat(head, comma, strconv.AppendQuote(nil, key), []byte(":"), value, data[end:]), nil
}

// Member returns where the value of a member of the JSON object data is: data[from:to], empty where it
// is missing. Of several the last counts, as for decoders.
func Member(data []byte, key string) (from, to int, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, errors.New("not a JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return 0, 0, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, 0, err
		}
		if name == key {
			to = int(d.InputOffset())
			from = to - len(value)
		}
	}
	if _, err := d.Token(); err != nil {
		return 0, 0, err
	}
	if _, err := d.Token(); err != io.EOF {
		return 0, 0, errors.New("more than a JSON object")
	}
	return from, to, nil
}
