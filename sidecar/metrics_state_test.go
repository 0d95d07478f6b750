package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
	"feishu-relay/relay"
)

// backendOf is a backend whose answers a test gives.
type backendOf func(lines [][]byte) error

func (b backendOf) Publish(_ context.Context, lines [][]byte, _ relay.Receipt) (relay.Receipt, error) {
	return "", b(lines)
}

// An outbox is stalled from the first try on that took nothing until one takes
// something; that a message is asked about is no try.
func TestOutboxStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var answer error
		var progress publishing
		traced := 0
		w := watched{backendOf(func([][]byte) error { return answer }), &progress, func(string) { traced++ }}
		began := time.Now()
		for _, step := range []struct {
			what    string
			lines   int
			err     error
			stalled time.Duration // a minute later
			last    time.Duration // after the start; 0: never
		}{
			{"nothing to publish", 0, away, 0, 0},
			{"it is away", 1, away, time.Minute, 0},
			{"it is still away", 2, away, 2 * time.Minute, 0},
			{"it is asked", 0, nil, 3 * time.Minute, 0},
			{"it is back", 2, nil, 0, 4 * time.Minute},
			{"it is away again", 1, away, time.Minute, 4 * time.Minute},
		} {
			answer = step.err
			if _, err := w.Publish(t.Context(), make([][]byte, step.lines), ""); !errors.Is(err, step.err) {
				t.Fatalf("%s: %v", step.what, err)
			}
			time.Sleep(time.Minute) // of the test's own clock
			if got := progress.stalled(time.Now()); got != step.stalled {
				t.Errorf("%s: stalled for %s, want %s", step.what, got, step.stalled)
			}
			if got := progress.last.Load(); step.last == 0 && got != 0 || step.last > 0 && got != began.Add(step.last).UnixNano() {
				t.Errorf("%s: last published at %d", step.what, got)
			}
		}
		if traced != 1 {
			t.Errorf("published is traced %d times, want once", traced)
		}
	})
}

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
