package agent

import (
	"errors"
	"strings"
	"testing"

	"feishu-relay/mailbox"
)

var states = []mailbox.TaskState{mailbox.Pending, mailbox.Accepted, mailbox.Working,
	mailbox.Completed, mailbox.Failed, mailbox.Rejected}

// The whole table: a row for the state a task is in, a column for the next one,
// both in the order of states.
var table = []string{
	// P A W C F R
	"  . + . . . +", // pending
	"  . . + + + +", // accepted
	"  . . + + + .", // working
	"  . . . . . .", // completed
	"  . . . . . .", // failed
	"  . . . . . .", // rejected
}

func TestStep(t *testing.T) {
	for i, from := range states {
		row := strings.Fields(table[i])
		for j, to := range states {
			err := checkStep(from, to)
			if got, want := err == nil, row[j] == "+"; got != want {
				t.Errorf("%s to %s: %v", from, to, err)
			}
			if err != nil {
				wantError(t, err, mailbox.InvalidMessage, "state", string(from), string(to))
			}
		}
	}
}

func TestStepSaysWhatIsPossible(t *testing.T) {
	for _, tt := range []struct {
		from, to mailbox.TaskState
		want     string
	}{
		{mailbox.Pending, mailbox.Completed, "want accepted or rejected"},
		{mailbox.Working, mailbox.Accepted, "want working or completed or failed"},
		{mailbox.Completed, mailbox.Working, "its end"},
		{mailbox.Pending, "done", `no state "done": want one of pending, accepted, working, completed, failed, rejected`},
		{"open", mailbox.Accepted, `no state "open": want one of pending`},
		{mailbox.Pending, "", "want one of pending"},
		{mailbox.Pending, mailbox.TaskState(strings.Repeat("x", 1000)), strings.Repeat("x", 40) + `":`},
	} {
		wantError(t, checkStep(tt.from, tt.to), mailbox.InvalidMessage, "state", tt.want)
	}
}

func wantError(t *testing.T, err error, code mailbox.Code, field string, texts ...string) {
	t.Helper()
	e, ok := errors.AsType[*mailbox.Error](err)
	if !ok || e.Code != code || e.Field != field {
		t.Errorf("got %v, want %s about %q", err, code, field)
		return
	}
	for _, text := range texts {
		if !strings.Contains(e.Message, text) {
			t.Errorf("%q does not say %q", e.Message, text)
		}
	}
}
