package outcome

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"feishu-relay/relay"
)

// maxLine is the most bytes a line may have, without its newline. A longer one
// is neither written nor read. An outcome has 300 to 400.
const maxLine = 16 << 10

var errTooLong = fmt.Errorf("has more than %d bytes", maxLine)

// encode is o, which is bounded, as a line without its newline, signed where
// there is a secret.
func encode(o *Outcome, secret string) ([]byte, error) {
	line, err := relay.Marshal(o)
	if err == nil && secret != "" {
		line, err = relay.Sign(line, secret)
	}
	if err == nil && len(line) > maxLine {
		err = errTooLong
	}
	return line, err
}

// decode reads a line. Fields that we do not know are left out. An error does
// not quote the line.
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
		return o, errors.New("no outcome in JSON")
	}
	return bounded(o, now)
}
