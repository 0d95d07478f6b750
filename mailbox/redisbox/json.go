package redisbox

import (
	"bytes"
	"encoding/json"
)

// encode writes v as one line of JSON, without a newline; <, > and & stand for
// themselves.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}
