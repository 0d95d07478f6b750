package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"feishu-relay/internal/runes"
)

// Question is what a [Judge] is asked: does Message need an answer of this agent?
type Question struct {
	Transcript []Entry // earlier messages, oldest first
	Message    Entry
	AgentName  string // the agent that would answer
	AgentRole  string // the agent's purpose, in the operator's words
	BotName    string // its display name
	Mentioned  bool   // Message addresses this agent
	// FromUser asks the other question: whether a person's message that does not
	// address this agent concerns it.
	FromUser bool
}

// Judge answers a [Question]: true is YES. It is safe for concurrent use and
// returns when ctx is done; a Judge that does not must itself bound how many of
// its calls can hang, since nothing waits for them. Its errors hold no message
// text.
type Judge interface {
	Judge(ctx context.Context, q Question) (allow bool, err error)
}

// Decide decides whether a bot's message of the given depth is passed on.
// [Limits] define when it asks j. j may be nil if it is not asked; else the
// verdict is judge_error. Decide returns within Limits.Timeout, even if j does
// not.
//
// If ctx is cancelled meanwhile the verdict is a stop, regardless of
// Limits.OnErrorAllow. The caller should not settle the message then, since the
// judge did not answer.
func Decide(ctx context.Context, l Limits, depth int, q Question, j Judge) Decision {
	switch {
	case depth >= l.MaxDepth:
		return Decision{Tier: TierHardLimit, Reason: StopMaxDepth, Depth: depth,
			Detail: fmt.Sprintf("depth %d >= limit %d", depth, l.MaxDepth)}
	case depth <= l.Threshold:
		return Decision{Allow: true, Tier: TierThreshold, Depth: depth,
			Reason: fmt.Sprintf("depth %d <= threshold %d", depth, l.Threshold)}
	case !l.Check:
		return Decision{Allow: true, Tier: TierJudgeOff, Reason: "judge off", Depth: depth}
	}
	d := ask(ctx, l, q, j)
	d.Depth = depth
	return d
}

// DecideUser decides whether this bot should answer a person's message. An
// addressed bot always should. Otherwise it depends on groupPolicy: "open", yes;
// "mention", no; anything else is "auto", which asks the judge unless
// Limits.Check is off. The depth of the decision is 0.
func DecideUser(ctx context.Context, groupPolicy string, addressed bool, l Limits, q Question, j Judge) Decision {
	pass := func(reason string) Decision {
		return Decision{Allow: true, Tier: TierJudgeOff, Reason: reason}
	}
	switch {
	case addressed:
		return pass("addressed")
	case groupPolicy == "open":
		return pass("group policy open")
	case groupPolicy == "mention":
		return Decision{Tier: TierJudgeOff, Reason: StopNotMentioned, Detail: "group policy mention"}
	case !l.Check:
		return pass("judge off")
	}
	q.FromUser = true
	return ask(ctx, l, q, j)
}

var errNoJudge = errors.New("no judge is configured")

// ask puts q to j and waits at most for the timeout.
func ask(ctx context.Context, l Limits, q Question, j Judge) Decision {
	timeout := l.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	type answer struct {
		allow bool
		err   error
	}
	answered := make(chan answer, 1) // buffered for an answer after the timeout
	began := time.Now()
	go func() {
		var a answer
		defer func() {
			if recover() != nil {
				a = answer{err: errors.New("the judge panicked")}
			}
			answered <- a
		}()
		if j == nil {
			a.err = errNoJudge
			return
		}
		a.allow, a.err = j.Judge(limited, q)
	}()
	var a answer
	select {
	case a = <-answered:
	case <-limited.Done():
		a.err = limited.Err()
	}

	d := Decision{Tier: TierJudge, JudgeMS: time.Since(began).Milliseconds()}
	switch {
	case a.err != nil && errors.Is(ctx.Err(), context.Canceled):
		d.Reason, d.Detail = StopJudgeError, "cancelled"
	case a.err != nil && l.OnErrorAllow:
		d.Allow, d.Reason, d.Detail = true, "judge failed, passed as configured", explain(a.err, timeout)
	case a.err != nil:
		d.Reason, d.Detail = StopJudgeError, explain(a.err, timeout)
	case a.allow:
		d.Allow, d.Reason = true, "judge: YES"
	default:
		d.Reason, d.Detail = StopJudgeNo, "judge: NO"
	}
	return d
}

// maxDetail is the most bytes of a judge's error in a decision; the rest is cut.
const maxDetail = 300

func explain(err error, timeout time.Duration) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", timeout)
	}
	return runes.Short(err.Error(), maxDetail)
}
