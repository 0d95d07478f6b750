package sidecar

import (
	"context"
	"errors"
	"time"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// What came of a question to the judge.
const (
	judgeYes     = "yes"
	judgeNo      = "no"
	judgeTimeout = "timeout"      // no answer in BOT_REPLY_LLM_TIMEOUT
	judgeUnclear = "unclear"      // neither YES nor NO
	judgeBreaker = "breaker_open" // not asked, since it failed several times in a row
	judgeFailed  = "error"
)

var judgeResults = []string{judgeYes, judgeNo, judgeTimeout, judgeUnclear, judgeBreaker, judgeFailed}

// countedJudge counts the questions put to a judge. An answer remembered by the
// judge counts like a new one.
type countedJudge struct {
	judge   policy.Judge
	metrics *metrics
}

// Judge implements [policy.Judge].
func (c countedJudge) Judge(ctx context.Context, q policy.Question) (bool, error) {
	began := time.Now()
	allow, err := c.judge.Judge(ctx, q)
	if errors.Is(err, context.Canceled) {
		return allow, err // we are stopping, or the caller of /v1/decide has gone
	}
	c.metrics.judgeTime.Observe(time.Since(began).Seconds())
	c.metrics.judgeCalls.WithLabelValues(judgeResult(allow, err)).Inc()
	return allow, err
}

func judgeResult(allow bool, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return judgeTimeout
	case errors.Is(err, judge.ErrAnswer):
		return judgeUnclear
	case errors.Is(err, judge.ErrOpen):
		return judgeBreaker
	case err != nil:
		return judgeFailed
	case allow:
		return judgeYes
	}
	return judgeNo
}
