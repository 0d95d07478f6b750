package relay

import (
	"context"
	"fmt"
)

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

// Stage is one step in the pipeline of a message. T is what the stages share: the
// message and the facts known of it so far.
type Stage[T any] struct {
	Name string
	// Apply passes the message on or stops it with a reason. An error is
	// neither: the step could not be done now and should be retried.
	Apply func(ctx context.Context, t T) (Reason, error)
}

// Pipeline is a list of stages in their order.
type Pipeline[T any] []Stage[T]

// Run takes t through the stages until one stops it. It returns that stage's
// name and reason, or Pass after the last; an error names its stage.
func (p Pipeline[T]) Run(ctx context.Context, t T) (stage string, why Reason, err error) {
	for _, s := range p {
		why, err := s.Apply(ctx, t)
		if err != nil {
			return s.Name, Pass, fmt.Errorf("%s: %w", s.Name, err)
		}
		if why != Pass {
			return s.Name, why, nil
		}
	}
	return "", Pass, nil
}
