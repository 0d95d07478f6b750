// Package sse reads server-sent events, as a bot does from GET /v1/stream.
package sse

import (
	"bufio"
	"io"
	"iter"
	"strings"
)

// maxLine is the most bytes of a line; a longer one is an error.
const maxLine = 8 << 20

// Event is one server-sent event.
type Event struct {
	Kind, ID string // "": without
	Data     []byte
}

// Read yields the events of r that have data, and then the error that ended them: [io.EOF] at the end of r. What
// follows the last empty line is no event.
func Read(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxLine)
		var e Event
		for lines.Scan() {
			if lines.Text() == "" {
				if len(e.Data) > 0 && !yield(e, nil) {
					return
				}
				e = Event{}
				continue
			}
			field, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				e.Kind = value
			case "id":
				e.ID = value
			case "data":
				e.Data = append(e.Data, value...)
			}
		}
		err := lines.Err()
		if err == nil {
			err = io.EOF
		}
		yield(Event{}, err)
	}
}
