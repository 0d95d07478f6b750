package feishu

import (
	"encoding/json"
	"errors"

	"feishu-relay/internal/jsontree"
	"feishu-relay/relay"
)

// MaxAnswer is the most bytes an event or an answer of Feishu may have to be
// read; a longer one is an error (and passes the gateway unread).
const MaxAnswer = 4 << 20

// lenient decodes the JSON object data into v and omits the fields of
// another type than expected.
func lenient[T any](data []byte, v *T) error {
	if len(data) > MaxAnswer {
		return jsontree.ErrTooLarge
	}
	if relay.Deeper(data, jsontree.MaxDepth) {
		return jsontree.ErrTooDeep
	}
	err := relay.Unmarshal(data, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return nil
	}
	return jsontree.WithoutText(err)
}

// compact encodes v, strings, numbers, or structs and maps of them, as one line of JSON.
func compact(v any) []byte {
	line, _ := relay.Marshal(v) // it never fails for them
	return line
}
