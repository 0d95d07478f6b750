package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"feishu-relay/relay"
)

// maxLine is the most bytes a line may have, without its newline; a longer one is not
// read. An outcome has 300 to 400 bytes.
const maxLine = 16 << 10

var errTooLong = fmt.Errorf("has more than %d bytes", maxLine)

// shared is an outcome in a line.
type shared struct {
	*Outcome
	Seq relay.Seq `json:"seq"` // of the agent's outcomes, each one more than the one before
}

// encode returns o, which must be bounded, as a line without newline and
// signature.
func encode(o *Outcome, seq relay.Seq) ([]byte, error) { return relay.Marshal(shared{o, seq}) }

// noted returns the time at which the outcome in a line was noted.
func noted(line []byte) (relay.Millis, error) {
	var o struct {
		At relay.Millis `json:"at"`
	}
	err := json.Unmarshal(line, &o)
	return o.At, err
}

// decode reads a line. Unknown fields are ignored. An error does not quote the
// line.
func decode(line []byte, secret string, now time.Time) (o Outcome, err error) {
	if len(line) > maxLine {
		return o, errTooLong
	}
	if secret != "" {
		if err := relay.Verify(line, secret); err != nil {
			return o, err
		}
	}
	if json.Unmarshal(line, &o) != nil {
		return o, errors.New("not an outcome in JSON")
	}
	return bounded(o, now)
}
