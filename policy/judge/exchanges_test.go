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

func TestRulesPassAnswersToOpenRequests(t *testing.T) {
	for _, tt := range []struct {
		ours, answer string
		want         bool
	}{
		{"Please confirm the booking", "Yes, that is correct", true},
		{"请确认：会议定在周四", "好的", true},
		{"等你确认后执行", "同意", true},
		{"请审批", "同意，辛苦了", true},
		{"要不要回滚", "嗯", true},
		{"Shall I merge it", "Sure, thanks!", true},
		{"Let me know if I should go on", "Absolutely", true},
		{"Waiting for your approval", "👍", true},
		{"Please verify the address", "All good!", true},
		{"周四发布吧", "好的", true},
		{"我已经确认过了", "好的，谢谢", false},
		{"@agent_b line 7 is yours, please fix it", "好的，谢谢！", false},
		{"Your booking is confirmed.", "Great, thanks!", false},
		{"Let me know if you need anything else.", "Sure, thanks!", false},
		{"还有什么可以帮您的", "没有了，谢谢", false},
		{"Can I help you with anything else?", "That's all, thanks", false},
		{"Please confirm the booking", "Have a nice day!", false},
	} {
		l := labelled{Text: tt.answer}
		q := l.question()
		q.Transcript = append(q.Transcript, policy.Entry{Sender: q.AgentName, MessageID: "om_ours", Content: tt.ours})
		if got, _ := (judge.Rules{}).Judge(t.Context(), q); got != tt.want {
			t.Errorf("%q after %q: allow = %v, want %v", tt.answer, tt.ours, got, tt.want)
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

func TestRulesOnShortPhrases(t *testing.T) {
	for text, want := range map[string]bool{
		"没有问题了": false, "恩": false, "慢走": false, "That will be all": false, "That is all, thank you": false,
		"Have a fine day": false, "感谢你的推荐": false, "谢谢 你们了": false, "多谢你的推荐啦": false, "BotB, thanks!": false,
		"Many thanks, everyone!": false, "Thanks, all": false, "**Thanks!**": false,
		"If you need anything else, let me know": false, "如有任何问题，请随时联系我": false,
		"let me know": true, "有问题": true, "BotB": true, "thanks everyone the tests fail": true, "dear team": true,
		"对吧": true, "好的，明白了吧": true, "记住": true, "请问你有什么问题": true, "辛苦确认一下": true, "好吧": false,
		"Thanks for the hint, but it fails": true, "祝好，附件在邮件里": true, "I'm glad the tests pass": true,
		"很高兴通知大家新版发布": true, "Happy to review it": true, "886 条记录": true,
	} {
		if got, _ := (judge.Rules{}).Judge(t.Context(), labelled{Text: text}.question()); got != want {
			t.Errorf("%q: allow = %v, want %v", text, got, want)
		}
	}
}
