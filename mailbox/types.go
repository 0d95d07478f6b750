package mailbox

import "slices"

// types lists all types.
var types = []Type{
	TypeMessage, TypeQuestion, TypeAnswer, TypeNotification,
	TypeTask, TypeTaskUpdate, TypeTaskAssign, TypeTaskComplete, TypeTaskFailed,
	TypeCodeReviewRequest, TypeCodeReviewResult, TypeTestRequest, TypeTestResult,
	TypeStatusReport, TypeHeartbeat, TypeError,
	TypeAck, TypeNack, TypePing, TypePong, TypeRegister, TypeRegistered,
}

// taskStates lists all states, in the order of a task's life.
var taskStates = []TaskState{Pending, Accepted, Working, Completed, Failed, Rejected}

// TaskStates returns all states, in the order of a task's life.
func TaskStates() []TaskState { return slices.Clone(taskStates) }

// Known reports whether s is one of the states.
func (s TaskState) Known() bool { return slices.Contains(taskStates, s) }

// Known reports whether t is one of the types.
func (t Type) Known() bool { return slices.Contains(types, t) }

// DefaultPriority is the priority of a type that names none (docs/protocol.md 6.2).
func (t Type) DefaultPriority() Priority {
	switch t {
	case TypeError:
		return 1
	case TypeTask, TypeTaskAssign, TypeTaskComplete, TypeTaskFailed:
		return 2
	case TypeStatusReport:
		return 4
	case TypeHeartbeat, TypePing, TypePong:
		return 5
	}
	return 3
}

// Result reports whether a callback is honoured on t (docs/protocol.md 6.2).
func (t Type) Result() bool {
	switch t {
	case TypeTaskUpdate, TypeTaskComplete, TypeTaskFailed, TypeAnswer:
		return true
	}
	return false
}

// Answers reports whether t answers something: then it is no forwarding.
func (t Type) Answers() bool {
	switch t {
	case TypeCodeReviewResult, TypeTestResult, TypeAck, TypeNack, TypePong, TypeRegistered:
		return true
	}
	return t.Result()
}

// Control reports whether t is dealt with by mailboxes themselves, whose bots and
// models do not see it.
func (t Type) Control() bool {
	switch t {
	case TypeHeartbeat, TypeAck, TypeNack, TypePing, TypePong, TypeRegister, TypeRegistered:
		return true
	}
	return false
}

// GivesTask reports whether t gives a task.
func (t Type) GivesTask() bool { return t == TypeTask || t == TypeTaskAssign }

// AboutTask reports whether t gives a task or is a step of one. Such an envelope is
// acknowledged when the receiver's mailbox has noted it, any other when the bot has it.
func (t Type) AboutTask() bool {
	switch t {
	case TypeTaskUpdate, TypeTaskComplete, TypeTaskFailed:
		return true
	}
	return t.GivesTask()
}

// talks reports whether an envelope of t is nothing without content.
func (t Type) talks() bool {
	switch t {
	case TypeMessage, TypeQuestion, TypeAnswer, TypeNotification:
		return true
	}
	return false
}
