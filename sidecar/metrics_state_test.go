package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

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
		m := newMetrics("agent_b")
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
	must(t, err)
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

// Where a value does not come, as from a disk that hangs, questions do not pile up.
func TestScrapesThatHangAreBounded(t *testing.T) {
	t.Parallel()
	m := newMetrics("agent_b")
	hangs, asked := make(chan struct{}), make(chan struct{}, 100)
	m.register.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hanging"},
		func() float64 { asked <- struct{}{}; <-hangs; return 0 }))
	handler := m.handler()
	scrape := func() int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Code
	}
	codes := make(chan int, maxScrapes+1)
	for range maxScrapes {
		go func() { codes <- scrape() }()
		<-asked
	}
	go func() { codes <- scrape() }()
	select {
	case got := <-codes:
		if got != http.StatusServiceUnavailable {
			t.Errorf("one more is answered %d", got)
		}
	case <-asked:
		t.Error("one more hangs, too")
	}
	close(hangs)
}

// A name that is no UTF-8 is no reason not to start.
func TestMetricsOfAnyName(t *testing.T) {
	t.Parallel()
	newMetrics("\xd0\xb4\xca\xd6")
}
