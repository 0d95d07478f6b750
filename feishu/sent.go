package feishu

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNotAccepted is wrapped by the errors about an answer that is not
// Feishu's "done": with a [*CodeError] where Feishu said why.
var ErrNotAccepted = errors.New("Feishu did not accept the call")

// CodeError is an answer {"code":…,"msg":…} with a code other than 0 (the codes:
// docs/feishu.md 6.2).
type CodeError struct {
	Code int
	Msg  string
}

// maxMsg is how much of a msg an error shows.
const maxMsg = 200

func (e *CodeError) Error() string {
	msg := oneLine(strings.ToValidUTF8(e.Msg[:min(len(e.Msg), maxMsg)], ""))
	return fmt.Sprintf("code %d: %s", e.Code, msg)
}

// CodeOf returns the code of Feishu's refusal in err; 0 if there is none.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*CodeError](err); ok {
		return e.Code
	}
	return 0
}

// answer is the frame of Feishu's answers.
type answer[T any] struct {
	Code json.RawMessage `json:"code"`
	Msg  string          `json:"msg"`
	Data T               `json:"data"`
}

// ReadAnswer reads body and returns its data.
func ReadAnswer[T any](body []byte) (data T, err error) {
	var a answer[T]
	if err := lenient(body, &a); err != nil {
		return data, fmt.Errorf("%w: the answer %w", ErrNotAccepted, err)
	}
	code, err := strconv.Atoi(string(a.Code))
	if err != nil {
		return data, fmt.Errorf("%w: the answer has no code", ErrNotAccepted)
	}
	if code != 0 {
		return data, fmt.Errorf("%w: %w", ErrNotAccepted, &CodeError{Code: code, Msg: a.Msg})
	}
	return a.Data, nil
}

// ParseSent reads Feishu's answer to a create, reply, edit or forward of a message
// (docs/feishu.md 5), of at most 4 MiB. An accepted call whose answer carries no
// message (a card's PATCH) gives the zero Message. Errors wrap [ErrNotAccepted].
func ParseSent(body []byte) (Message, error) {
	data, err := ReadAnswer[struct {
		wireMessage
		Message json.RawMessage `json:"message"` // merge_forward has it one level down
	}](body)
	if err != nil {
		return Message{}, err
	}
	w := data.wireMessage
	if w.MessageID == "" && len(data.Message) > 0 {
		_ = lenient(data.Message, &w)
	}
	m, err := w.message()
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrNotAccepted, err)
	}
	return m, nil
}

// ParseHistory reads Feishu's answer to GET im/v1/messages and to
// GET im/v1/messages/{id} (docs/feishu.md 5.3), of at most 4 MiB. Items without usable
// ids are left out. Errors wrap [ErrNotAccepted].
func ParseHistory(body []byte) ([]Message, error) {
	data, err := ReadAnswer[struct {
		Items []wireMessage `json:"items"`
	}](body)
	if err != nil {
		return nil, err
	}
	messages := make([]Message, 0, len(data.Items))
	for _, w := range data.Items {
		if m, err := w.message(); err == nil && m.ID != "" {
			messages = append(messages, m)
		}
	}
	return messages, nil
}
