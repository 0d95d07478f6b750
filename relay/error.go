package relay

import (
	"fmt"
	"time"
)

// Error is a refusal whose reason the caller gets. The HTTP API answers its
// code and its message; any other error is only logged.
type Error struct {
	Code    Code
	Message string // what is wrong and how to fix it

	Field      string        // the request's field that is wrong; "": none in particular
	RetryAfter time.Duration // 0: unknown
	Status     int           // of the HTTP answer; 0: that of the code
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf returns an [*Error] with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Code is the kind of an [Error], for programs to compare.
type Code string

// The reasons for which a message is not accepted, recorded, sent or settled, or its
// file not served.
const (
	CodeInvalidRequest        Code = "invalid_request"
	CodeTooLarge              Code = "too_large"
	CodeTranscriptUnavailable Code = "transcript_unavailable"
	CodeOutboxFull            Code = "outbox_full"
	CodeOutboxUnavailable     Code = "outbox_unavailable"
	CodeFeishuUnavailable     Code = "feishu_unavailable"
	CodeFeishuRefused         Code = "feishu_refused"
	CodeUnknownMessage        Code = "unknown_message"
	CodeSettled               Code = "settled"
	CodeUnknownFile           Code = "unknown_file"
	CodeRecalled              Code = "recalled"
	CodeNoCredentials         Code = "no_credentials"
	CodeUnknownGroup          Code = "unknown_group"
	CodeLocked                Code = "locked"
	CodeConflict              Code = "conflict"
)
