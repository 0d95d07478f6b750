package judge_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// exchanges reads messages between agents with what this agent said before them, in the form of
// testdata/judge.jsonl. Why is their kind.
func exchanges(t *testing.T) []labelled {
	t.Helper()
	f, err := os.Open("../testdata/exchanges.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []labelled
	for s := bufio.NewScanner(f); s.Scan(); {
		var l labelled
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("line %d: %v", len(list)+1, err)
		}
		list = append(list, l)
	}
	return list
}

// heldOut reports whether an exchange is in the half that the phrases were not tuned on.
func heldOut(l labelled) bool {
	text := l.Text
	for _, c := range l.Context {
		text = c.Text + "\n" + text
	}
	return sha256.Sum256([]byte(text))[0]%2 == 1
}

// minCourtesies is in percent. It is low: these are flowery, and only a courtesy that is in the lists word for
// word is stopped. One that passes costs a turn.
const minCourtesies = 9

// TestRulesOnExchanges measures the rules on the exchanges. It fails if they stop less than minCourtesies, or
// anything with content.
func TestRulesOnExchanges(t *testing.T) {
	type count struct{ all, stopped int }
	counts := map[string]count{}
	for _, l := range exchanges(t) {
		half, group := "tuned on", "others"
		if heldOut(l) {
			half = "held out"
		}
		switch {
		case l.Want == "NO":
			group = "courtesies"
		case strings.HasPrefix(l.Why, "answer w"), l.Why == "answer":
			group = "yes or no"
		}
		allow, err := judge.Rules{}.Judge(t.Context(), l.question())
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{half + ", " + group, half + ", " + group + ", " + l.Lang} {
			c := counts[key]
			c.all++
			if !allow {
				c.stopped++
			}
			counts[key] = c
		}
	}
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: stopped %d of %d", key, counts[key].stopped, counts[key].all)
	}
	for _, half := range []string{"tuned on", "held out"} {
		courtesies, answers, others := counts[half+", courtesies"], counts[half+", yes or no"], counts[half+", others"]
		if courtesies.all < 100 || answers.all < 40 || others.all < 100 {
			t.Fatalf("%s: too few exchanges", half)
		}
		if courtesies.stopped*100 < minCourtesies*courtesies.all {
			t.Errorf("%s: stopped %d of %d courtesies, want at least %d %%", half, courtesies.stopped,
				courtesies.all, minCourtesies)
		}
		if answers.stopped > 0 {
			t.Errorf("%s: stopped %d of %d answers", half, answers.stopped, answers.all)
		}
		if others.stopped > 0 {
			t.Errorf("%s: stopped %d messages with content", half, others.stopped)
		}
	}
}

// An answer may come after others have spoken, if it is a reply to the request.
func TestRulesPassReplyToOlderRequest(t *testing.T) {
	q := labelled{Text: "好的"}.question()
	q.Transcript = append(q.Transcript,
		policy.Entry{Sender: q.AgentName, MessageID: "om_ours", Content: "请审批"},
		policy.Entry{Sender: "agent_d", MessageID: "om_other", Content: "我在看"})
	for parent, want := range map[string]bool{"om_ours": true, "om_other": false, "": false} {
		q.Message.ParentID = parent
		if got, _ := (judge.Rules{}).Judge(t.Context(), q); got != want {
			t.Errorf("reply to %q: allow = %v, want %v", parent, got, want)
		}
	}
}
