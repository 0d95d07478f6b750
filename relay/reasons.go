package relay

// Reason is why a message was stopped. The log, the metric, the API and the
// viewer use the same word. The empty reason passes the message on.
type Reason string

// The stop reasons.
const (
	Pass            Reason = ""
	OwnMessage      Reason = "own_message"
	NotAMember      Reason = "not_a_member"
	Duplicate       Reason = "duplicate"
	BadSignature    Reason = "bad_signature"
	Malformed       Reason = "malformed"
	Expired         Reason = "expired"
	Recalled        Reason = "recalled"
	Muted           Reason = "muted"
	Paused          Reason = "paused"
	StoppedByPerson Reason = "stopped_by_person"
	NotForMe        Reason = "not_for_me"
	NotMentioned    Reason = "not_mentioned"
	Budget          Reason = "budget"
	MaxDepth        Reason = "max_depth"
	JudgeNo         Reason = "judge_no"
	JudgeError      Reason = "judge_error"
	Undeliverable   Reason = "undeliverable"
)

// Why a person's message is not for a bot, besides Muted and NotForMe.
const (
	Command  Reason = "command"
	Continue Reason = "continue"
)

// Reasons lists every stop reason.
func Reasons() []Reason {
	return []Reason{OwnMessage, NotAMember, Duplicate, BadSignature, Malformed, Expired,
		Recalled, Muted, Paused, StoppedByPerson, NotForMe, NotMentioned, Budget, MaxDepth,
		JudgeNo, JudgeError, Undeliverable}
}
