package steer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"feishu-relay/relay"
)

// Kind is what a [Mark] is.
type Kind string

// The kinds. The last three are the sidecars' own and are shown nowhere.
const (
	Command  Kind = "command"  // a person's command, or one over the API
	Notice   Kind = "notice"   // what the sidecars showed the group: that bots were stopped, an answer
	Recalled Kind = "recalled" // the text of the message Of is gone
	Edited   Kind = "edited"   // the text of the message Of is another now

	Wanted Kind = "wanted" // something is to be shown: what, is Once
	Failed Kind = "failed" // a sidecar could not show it: another one tries
	Taken  Kind = "taken"  // one of several bots gets the message Of, or has it
	State  Kind = "state"  // values of the record: a membership, or what an emptied backend lacks
)

// Act is what a mark is about.
type Act string

// The acts.
const (
	Stop     Act = "stop"     // bots were stopped
	Continue Act = "continue" // what was stopped is released
	Change   Act = "set"      // settings
	Answer   Act = "answer"   // the answer to a command
)

// Mark is a line that the sidecars of a group share beside its messages.
type Mark struct {
	ID       string          `json:"id"` // each mark once
	Kind     Kind            `json:"kind"`
	Act      Act             `json:"act,omitempty"`
	Once     string          `json:"once,omitempty"` // names what is shown once, of a Wanted, Failed and Notice
	Try      int             `json:"try,omitempty"`  // of a Failed: which one failed, from 0
	Agent    relay.AgentName `json:"agent"`          // whose sidecar wrote it
	Channel  string          `json:"channel"`
	ChatID   relay.ChatID    `json:"chat_id"`
	ThreadID string          `json:"thread_id,omitempty"`
	// MessageID is that of the message in Feishu, else begins with "notice:".
	MessageID relay.MessageID   `json:"message_id"`
	Of        relay.MessageID   `json:"of,omitempty"` // the message that it is about
	By        string            `json:"by,omitempty"` // who gave the command, or wrote the message
	Sender    relay.AgentName   `json:"sender,omitempty"`
	Bots      []relay.AgentName `json:"bots,omitempty"` // stopped, or released; none: all
	Set       Set               `json:"set,omitempty"`
	Record    Record            `json:"record,omitempty"` // of a State
	Reason    relay.Reason      `json:"reason,omitempty"` // of a stop
	Chinese   bool              `json:"chinese,omitempty"`
	Text      string            `json:"text,omitempty"`  // as it is shown, or the new text of an edit
	Round     relay.Millis      `json:"round,omitempty"` // of a stop: when the round began
	Said      relay.Millis      `json:"said,omitempty"`  // of a stop: ts of the message that stopped
	TS        relay.Millis      `json:"ts"`
}

// MaxMark is the most bytes of a mark's line, without its newline.
const MaxMark = 256 << 10

// ErrMark is wrapped by the error of a line that is no mark.
var ErrMark = errors.New("not a mark")

// Encode is m as a line without its newline and signature.
func (m *Mark) Encode() ([]byte, error) {
	line, err := relay.Marshal(m)
	if err == nil && len(line) > MaxMark {
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrMark, len(line), MaxMark)
	}
	return line, err
}

// DecodeMark reads a line. Its error does not quote it.
func DecodeMark(line []byte) (m Mark, err error) {
	if len(line) > MaxMark {
		return m, fmt.Errorf("%w: %d bytes, at most %d", ErrMark, len(line), MaxMark)
	}
	if json.Unmarshal(line, &m) != nil {
		return m, fmt.Errorf("%w: no JSON of its shape", ErrMark)
	}
	if m.ID == "" || len(m.ID) > maxValue || m.Kind == "" || m.Channel == "" || m.ChatID == "" || m.TS <= 0 ||
		len(m.ChatID) > maxValue || !utf8.ValidString(m.ID) {
		return m, fmt.Errorf("%w: id, kind, channel, chat_id or ts is missing or out of bounds", ErrMark)
	}
	return m, nil
}

// Shown reports whether people see marks of this kind.
func (m *Mark) Shown() bool { return m.Kind == Command || m.Kind == Notice }
