package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// judgeOf is a judge with one answer.
type judgeOf func() (bool, error)

func (j judgeOf) Judge(context.Context, policy.Question) (bool, error) { return j() }

func TestJudgeIsCountedByResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		allow  bool
		err    error
		result string // "": not counted
	}{
		{true, nil, "yes"},
		{false, nil, "no"},
		{false, fmt.Errorf("judge: %w", context.DeadlineExceeded), "timeout"},
		{false, fmt.Errorf("judge: %w", judge.ErrAnswer), "unclear"},
		{false, fmt.Errorf("judge: %w", judge.ErrOpen), "breaker_open"},
		{false, errors.New("HTTP 500"), "error"},
		{false, fmt.Errorf("judge: %w", context.Canceled), ""},
	} {
		m := newMetrics("agent_b", "1.2.3")
		allow, err := countedJudge{judgeOf(func() (bool, error) { return c.allow, c.err }), m}.Judge(t.Context(), policy.Question{})
		if allow != c.allow || !errors.Is(err, c.err) {
			t.Errorf("%v, %v became %v, %v", c.allow, c.err, allow, err)
		}
		for _, result := range judgeResults {
			want := 0.0
			if result == c.result {
				want = 1
			}
			if got := counterValue(t, m, "judge_calls_total", result); got != want {
				t.Errorf("%v, %v: %s is %v, want %v", c.allow, c.err, result, got, want)
			}
		}
	}
}

// counterValue is the value of the series of a counter that has a label's value.
func counterValue(t *testing.T, m *metrics, name, label string) (sum float64) {
	t.Helper()
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, series := range family.GetMetric() {
			for _, pair := range series.GetLabel() {
				if family.GetName() == "feishu_relay_"+name && pair.GetValue() == cmp.Or(label, "agent_b") {
					sum += series.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
