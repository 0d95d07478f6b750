package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/policy"
)

// judgeFunc is a judge made of a function.
type judgeFunc func(ctx context.Context, q policy.Question) (bool, error)

func (f judgeFunc) Judge(ctx context.Context, q policy.Question) (bool, error) { return f(ctx, q) }

var _ policy.Judge = judgeFunc(nil)

func says(allow bool, err error) policy.Judge {
	return judgeFunc(func(context.Context, policy.Question) (bool, error) { return allow, err })
}

func TestDecide(t *testing.T) {
	limits := policy.Limits{MaxDepth: 3, Threshold: 1, Check: true}
	unchecked := limits
	unchecked.Check = false
	lenient := limits
	lenient.OnErrorAllow = true
	asked := judgeFunc(func(context.Context, policy.Question) (bool, error) {
		t.Error("the judge was asked")
		return true, nil
	})
	broken := says(true, errors.New("no route"))
	for _, tt := range []struct {
		name   string
		limits policy.Limits
		depth  int
		judge  policy.Judge
		want   policy.Decision
	}{
		{"passes at the threshold without a judge", limits, 1, asked,
			policy.Decision{Allow: true, Tier: "threshold", Reason: "depth 1 <= threshold 1", Depth: 1}},
		{"passes below the threshold", limits, 0, asked,
			policy.Decision{Allow: true, Tier: "threshold", Reason: "depth 0 <= threshold 1"}},
		{"stops at the hard limit without a judge", limits, 3, asked,
			policy.Decision{Tier: "hard_limit", Reason: "max_depth", Detail: "depth 3 >= limit 3", Depth: 3}},
		{"stops beyond the hard limit", limits, 9, asked,
			policy.Decision{Tier: "hard_limit", Reason: "max_depth", Detail: "depth 9 >= limit 3", Depth: 9}},
		{"stops at the hard limit also with the check off", unchecked, 3, nil,
			policy.Decision{Tier: "hard_limit", Reason: "max_depth", Detail: "depth 3 >= limit 3", Depth: 3}},
		{"the hard limit comes before a threshold above it", policy.Limits{MaxDepth: 2, Threshold: 5}, 2, nil,
			policy.Decision{Tier: "hard_limit", Reason: "max_depth", Detail: "depth 2 >= limit 2", Depth: 2}},
		{"a limit of 0 stops everything", policy.Limits{Threshold: 1}, 1, nil,
			policy.Decision{Tier: "hard_limit", Reason: "max_depth", Detail: "depth 1 >= limit 0", Depth: 1}},
		{"passes between with the check off", unchecked, 2, asked,
			policy.Decision{Allow: true, Tier: "judge_off", Reason: "judge off", Depth: 2}},
		{"passes when the judge says YES", limits, 2, says(true, nil),
			policy.Decision{Allow: true, Tier: "judge", Reason: "judge: YES", Depth: 2}},
		{"stops when the judge says NO", limits, 2, says(false, nil),
			policy.Decision{Tier: "judge", Reason: "judge_no", Detail: "judge: NO", Depth: 2}},
		{"stops when the judge fails, with any answer", limits, 2, broken,
			policy.Decision{Tier: "judge", Reason: "judge_error", Detail: "no route", Depth: 2}},
		{"passes when the judge fails and that is configured", lenient, 2, broken,
			policy.Decision{Allow: true, Tier: "judge", Reason: "judge failed, passed as configured", Detail: "no route", Depth: 2}},
		{"a failing judge does not lift the hard limit", lenient, 3, broken,
			policy.Decision{Tier: "hard_limit", Reason: "max_depth", Detail: "depth 3 >= limit 3", Depth: 3}},
		{"a missing judge is an error", limits, 2, nil,
			policy.Decision{Tier: "judge", Reason: "judge_error", Detail: "no judge is configured", Depth: 2}},
		{"a panicking judge is an error", limits, 2, judgeFunc(func(context.Context, policy.Question) (bool, error) { panic("x") }),
			policy.Decision{Tier: "judge", Reason: "judge_error", Detail: "the judge panicked", Depth: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := policy.Decide(t.Context(), tt.limits, tt.depth, policy.Question{}, tt.judge)
			got.JudgeMS = 0
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("decision (-got +want):\n%s", diff)
			}
		})
	}
}

func TestDecideUser(t *testing.T) {
	limits := policy.Limits{MaxDepth: 3, Threshold: 1, Check: true}
	unchecked := policy.Limits{MaxDepth: 3, Threshold: 1}
	for _, tt := range []struct {
		name      string
		group     string
		addressed bool
		limits    policy.Limits
		judge     policy.Judge
		want      policy.Decision
	}{
		{"addressed, under auto", "auto", true, limits, says(false, nil), policy.Decision{Allow: true, Tier: "judge_off", Reason: "addressed"}},
		{"addressed, under mention", "mention", true, limits, says(false, nil), policy.Decision{Allow: true, Tier: "judge_off", Reason: "addressed"}},
		{"not addressed, under mention", "mention", false, limits, says(true, nil),
			policy.Decision{Tier: "judge_off", Reason: "not_mentioned", Detail: "group policy mention"}},
		{"not addressed, under open", "open", false, limits, says(false, nil), policy.Decision{Allow: true, Tier: "judge_off", Reason: "group policy open"}},
		{"auto, YES", "auto", false, limits, says(true, nil), policy.Decision{Allow: true, Tier: "judge", Reason: "judge: YES"}},
		{"auto, NO", "auto", false, limits, says(false, nil), policy.Decision{Tier: "judge", Reason: "judge_no", Detail: "judge: NO"}},
		{"an unknown policy is auto", "", false, limits, says(false, nil), policy.Decision{Tier: "judge", Reason: "judge_no", Detail: "judge: NO"}},
		{"auto with the check off", "auto", false, unchecked, nil, policy.Decision{Allow: true, Tier: "judge_off", Reason: "judge off"}},
		{"auto, failing judge", "auto", false, limits, says(true, errors.New("x")), policy.Decision{Tier: "judge", Reason: "judge_error", Detail: "x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := policy.DecideUser(t.Context(), tt.group, tt.addressed, tt.limits, policy.Question{}, tt.judge)
			got.JudgeMS = 0
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("decision (-got +want):\n%s", diff)
			}
		})
	}
	var q policy.Question
	policy.DecideUser(t.Context(), "auto", false, limits, policy.Question{}, judgeFunc(
		func(_ context.Context, got policy.Question) (bool, error) { q = got; return true, nil }))
	if !q.FromUser {
		t.Error("the judge was not told that a person asks")
	}
}

// A judge that hangs, even one that ignores its context, costs the time-out and
// no more.
func TestDecideIsBounded(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			deaf := judgeFunc(func(context.Context, policy.Question) (bool, error) { <-release; return true, nil })
			began := time.Now()
			l := policy.Limits{MaxDepth: 3, Threshold: 1, Check: true, Timeout: limit}
			got := policy.Decide(t.Context(), l, 2, policy.Question{}, deaf)
			want := limit
			if want == 0 {
				want = policy.DefaultTimeout
			}
			if took := time.Since(began); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
			if got.Allow || got.Reason != policy.StopJudgeError || got.JudgeMS != want.Milliseconds() ||
				got.Detail != "no answer within "+want.String() {
				t.Errorf("decision %+v", got)
			}
			close(release)
		})
	}
}

func TestDecideCancelledStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		obedient := judgeFunc(func(ctx context.Context, _ policy.Question) (bool, error) {
			<-ctx.Done()
			return true, ctx.Err()
		})
		l := policy.Limits{MaxDepth: 3, Threshold: 1, Check: true, OnErrorAllow: true}
		got := policy.Decide(ctx, l, 2, policy.Question{}, obedient)
		if got.Allow || got.Reason != policy.StopJudgeError || got.Detail != "cancelled" {
			t.Errorf("decision %+v", got)
		}
	})
}

func TestDecisionDetailIsBounded(t *testing.T) {
	l := policy.Limits{MaxDepth: 3, Threshold: 1, Check: true}
	got := policy.Decide(t.Context(), l, 2, policy.Question{}, says(false, errors.New(strings.Repeat("好", 10_000))))
	if len(got.Detail) > 310 || !utf8.ValidString(got.Detail) {
		t.Errorf("detail of %d bytes, valid %v", len(got.Detail), utf8.ValidString(got.Detail))
	}
}

// The names in JSON are a contract with watchers.
func TestDecisionJSON(t *testing.T) {
	for _, tt := range []struct {
		d    policy.Decision
		want string
	}{
		{policy.Decision{Allow: true, Tier: policy.TierThreshold, Reason: "r", Depth: 1},
			`{"allow":true,"tier":"threshold","reason":"r","depth":1}`},
		{policy.Decision{Tier: policy.TierJudge, Reason: "judge_no", Detail: "d", Depth: 2, JudgeMS: 7},
			`{"allow":false,"tier":"judge","reason":"judge_no","detail":"d","depth":2,"judge_ms":7}`},
	} {
		got, err := json.Marshal(tt.d)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != tt.want {
			t.Errorf("JSON %s, want %s", got, tt.want)
		}
	}
}
