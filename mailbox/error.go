package mailbox

import "fmt"

// Code says why something was refused (docs/protocol.md 6.8).
type Code string

// The codes.
const (
	AgentBusy      Code = "AGENT_BUSY"
	AgentOffline   Code = "AGENT_OFFLINE"
	InvalidMessage Code = "INVALID_MESSAGE"
	TaskNotFound   Code = "TASK_NOT_FOUND"
	Unauthorized   Code = "UNAUTHORIZED"
	RateLimited    Code = "RATE_LIMITED"

	// BadSignature is never sent to another agent: who did not sign is not answered.
	BadSignature Code = "BAD_SIGNATURE"
)

// Retriable reports whether a message refused with c is sent again.
func (c Code) Retriable() bool { return c == AgentBusy || c == AgentOffline || c == RateLimited }

// Error is a refusal.
type Error struct {
	Code    Code
	Field   string // of the envelope, such as "task.deadline"; "" where it is about no field
	Message string // says how to fix it
}

func (e *Error) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("%s: %s: %s", e.Code, e.Field, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Refused is a refusal with a code, about a field or no field ("").
func Refused(code Code, field, format string, args ...any) *Error {
	return &Error{code, field, fmt.Sprintf(format, args...)}
}

// Invalid is a refusal for a field that is not as it should be.
func Invalid(field, format string, args ...any) *Error {
	return Refused(InvalidMessage, field, format, args...)
}
