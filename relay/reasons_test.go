package relay_test

import (
	"testing"

	"feishu-relay/relay"
)

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
