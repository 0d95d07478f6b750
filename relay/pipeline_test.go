package relay_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"feishu-relay/relay"
)

func TestPipeline(t *testing.T) {
	busy := errors.New("busy")
	for _, tt := range []struct {
		name      string
		why       relay.Reason
		err       error
		wantStage string
		wantRuns  []string
	}{
		{"passes behind the last stage", relay.Pass, nil, "", []string{"first", "second", "third"}},
		{"stops with the reason of a stage", relay.MaxDepth, nil, "second", []string{"first", "second"}},
		{"an error is no verdict", relay.Pass, busy, "second", []string{"first", "second"}},
		{"an error outweighs a reason", relay.MaxDepth, busy, "second", []string{"first", "second"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var runs []string
			stage := func(name string, why relay.Reason, err error) relay.Stage[string] {
				return relay.Stage[string]{Name: name, Apply: func(_ context.Context, got string) (relay.Reason, error) {
					if got != "value" {
						t.Errorf("%s was given %q", name, got)
					}
					runs = append(runs, name)
					return why, err
				}}
			}
			p := relay.Pipeline[string]{stage("first", relay.Pass, nil), stage("second", tt.why, tt.err), stage("third", relay.Pass, nil)}
			gotStage, why, err := p.Run(t.Context(), "value")
			if gotStage != tt.wantStage || !errors.Is(err, tt.err) {
				t.Errorf("got stage %q, %v; want %q, %v", gotStage, err, tt.wantStage, tt.err)
			}
			if want := tt.why; err == nil && why != want {
				t.Errorf("got %q, want %q", why, want)
			}
			if err != nil && (why != relay.Pass || err.Error() != "second: busy") {
				t.Errorf("got %q, %v; want no reason and the stage's name", why, err)
			}
			if !slices.Equal(runs, tt.wantRuns) {
				t.Errorf("ran %v, want %v", runs, tt.wantRuns)
			}
		})
	}
}

func TestReasonsAreDistinctWords(t *testing.T) {
	seen := map[relay.Reason]bool{relay.Pass: true}
	for _, why := range relay.Reasons() {
		if seen[why] {
			t.Errorf("%q occurs twice", why)
		}
		seen[why] = true
	}
	if got := len(relay.Reasons()); got != 17 {
		t.Errorf("%d reasons, want the 17 of the contract", got)
	}
}
