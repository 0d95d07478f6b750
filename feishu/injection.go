package feishu

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Bounds of what is read of the answer to a post behind its status.
const (
	drainWait  = time.Second
	drainBytes = 64 << 10
)

// Drain reads what is there of an answer's body and closes it, so that its connection
// can be used again. A bot may send its status and work on with the body open.
func Drain(body io.ReadCloser) {
	late := time.AfterFunc(drainWait, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, drainBytes))
	_ = body.Close()
}

// Injection is an event of ours that is written to the bot once.
type Injection struct {
	Event []byte // the JSON of its 2.0 envelope; kept until Inject returns
	Again bool   // it was written before, under the same ids
	// Written is called when the event is written whole. ended is closed with the
	// connection; nil for a post, which ends with its answer. May be nil.
	Written func(ended <-chan struct{})
	// Late is called when the bot acknowledges the event with 200 after Inject has returned: because
	// its context was done, or the connection ended. May be nil. It is kept for long.
	Late func()
}

// Wrote calls Written, if there is one.
func (in *Injection) Wrote(ended <-chan struct{}) {
	if in.Written != nil {
		in.Written(ended)
	}
}

// Errors of an injection.
var (
	// ErrNotInjected says that the bot was not reached.
	ErrNotInjected = errors.New("the bot was not reached")
	// ErrInjectionEnded says that the connection ended before the bot acknowledged.
	ErrInjectionEnded = errors.New("the connection ended before the bot acknowledged the event")
)

// AnswerError is an acknowledgement with a code other than 200.
type AnswerError struct{ Code int }

func (e *AnswerError) Error() string { return fmt.Sprintf("the bot answered %d", e.Code) }

// IsRefusal reports whether a code, of an acknowledgement or of HTTP, says that
// the bot will never take the message: 4xx other than 408 and 429.
func IsRefusal(code int) bool {
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}
