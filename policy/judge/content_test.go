package judge_test

import (
	"os"
	"strings"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// Nothing with content is stopped.
func TestRulesPassContent(t *testing.T) {
	text, err := os.ReadFile("../testdata/content.txt")
	if err != nil {
		t.Fatal(err)
	}
	count, kind := 0, ""
	for line := range strings.Lines(string(text)) {
		if rest, begins := strings.CutPrefix(line, "== "); begins || line[0] == '#' {
			kind = rest
			continue
		}
		ours, answers, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		for answer := range strings.SplitSeq(answers, " / ") {
			count++
			q := labelled{Text: answer}.question()
			e := policy.Entry{Sender: q.AgentName, MessageID: "om_ours", Content: ours}
			q.Transcript = append(q.Transcript, e)
			if allow, _ := (judge.Rules{}).Judge(t.Context(), q); !allow {
				t.Errorf("%s: stopped %q after %q", kind, answer, ours)
			}
		}
	}
	if count < 1083 {
		t.Errorf("only %d messages were read", count)
	}
}

// A request may be long, and this agent may have gone on speaking after it.
func TestRulesPassAnswersToRequestsFurtherUp(t *testing.T) {
	steps := strings.Repeat("第一步检查主库日志并记录位点。", 40)
	for _, tt := range []struct {
		answer string
		ours   []string
	}{
		{"同意", []string{"请审批以下方案：\n" + steps}},
		{"Agreed", []string{"Please approve this plan:\n" + strings.Repeat("Step: check the log and note it. ", 60)}},
		{"好的", []string{"请确认：会议定在周四", "附件已上传。"}},
		{"好的", []string{steps + steps + "请确认", "附件已上传。"}},
		{"OK", []string{"Shall I merge it?", "The branch is green.", "So is staging."}},
	} {
		q := labelled{Text: tt.answer}.question()
		for _, content := range tt.ours {
			e := policy.Entry{Sender: q.AgentName, MessageID: "om_" + content[:3], Content: content}
			q.Transcript = append(q.Transcript, e)
		}
		if allow, _ := (judge.Rules{}).Judge(t.Context(), q); !allow {
			t.Errorf("stopped %q after %.60q", tt.answer, tt.ours)
		}
	}
}
