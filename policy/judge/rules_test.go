package judge_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// labelled is a line of testdata/judge.jsonl: a message that agent_b sends, what was said
// before, and what a judge on behalf of agent_c should say.
type labelled struct {
	Lang    string `json:"lang"`
	Text    string `json:"text"`
	Context []struct {
		Sender string `json:"sender"`
		Text   string `json:"text"`
	} `json:"context"`
	FromUser bool   `json:"from_user"`
	Want     string `json:"want"`
	Why      string `json:"why"`
}

func (l labelled) question() policy.Question {
	q := policy.Question{AgentName: "agent_c", BotName: "小C", FromUser: l.FromUser}
	// Names as a group has them.
	q.Transcript = []policy.Entry{{Role: policy.RoleUser, Sender: "Ann", Content: "大家开始吧", MessageID: "om_0"}}
	for i, c := range l.Context {
		q.Transcript = append(q.Transcript, policy.Entry{Role: policy.RoleAssistant, Sender: c.Sender,
			MessageID: "om_c" + string(rune('0'+i)), Content: c.Text})
	}
	q.Message = policy.Entry{Role: policy.RoleAssistant, Sender: "agent_b", SenderName: "BotB", MessageID: "om_m", Content: l.Text}
	if l.FromUser {
		q.Message.Role, q.Message.Sender, q.Message.SenderName = policy.RoleUser, "Ann", ""
	}
	return q
}

// corpus reads the labelled messages of a file, at least as many as least.
func corpus(t testing.TB, file string, least int) []labelled {
	t.Helper()
	f, err := os.Open("../testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []labelled
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var l labelled
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatalf("line %d: %v", len(out)+1, err)
		}
		if l.Want != "YES" && l.Want != "NO" || l.Why == "" {
			t.Fatalf("line %d has no label or no reason", len(out)+1)
		}
		out = append(out, l)
	}
	if len(out) < least {
		t.Fatalf("%d labelled cases, want at least %d", len(out), least)
	}
	return out
}

// What should pass always passes, and of the courtesies at least a share is stopped. Those of exchanges.jsonl are
// flowery: only one that is in the lists word for word is stopped. One that passes costs a turn.
func TestRulesOnLabelledMessages(t *testing.T) {
	for _, file := range []struct {
		name           string
		least, percent int // of messages; of courtesies that are stopped
	}{{"judge.jsonl", 150, 68}, {"exchanges.jsonl", 500, 9}} {
		courtesies, stopped := 0, 0
		for _, l := range corpus(t, file.name, file.least) {
			allow, err := judge.Rules{}.Judge(t.Context(), l.question())
			switch {
			case err != nil || l.Want == "YES" && !allow:
				t.Errorf("refused %q: %s, %v", l.Text, l.Why, err)
			case l.Want == "YES":
			case !allow:
				courtesies++
				stopped++
			default:
				courtesies++
				t.Logf("passed %q: %s", l.Text, l.Why)
			}
		}
		if stopped*100 < file.percent*courtesies {
			t.Errorf("%s: stopped %d of %d courtesies, want at least %d %%", file.name, stopped, courtesies, file.percent)
		}
	}
}

// Courtesies stay courtesies when they are joined, shouted, decorated or sent to
// somebody; a single word of content beside them is never refused.
func TestRulesOnCombinations(t *testing.T) {
	var refused []string
	for _, l := range corpus(t, "judge.jsonl", 150) {
		if l.Want == "NO" && !l.FromUser && l.Context == nil && l.Text != "" {
			if allow, _ := (judge.Rules{}).Judge(t.Context(), l.question()); allow {
				continue // one that the rules do not know
			}
			refused = append(refused, l.Text)
		}
	}
	says := func(text string) bool {
		allow, err := judge.Rules{}.Judge(t.Context(), labelled{Text: text}.question())
		if err != nil {
			t.Fatal(err)
		}
		return allow
	}
	for i := 0; i < len(refused); i += 16 {
		a, b := refused[i], refused[(i*7+3)%len(refused)]
		for _, text := range []string{a + "！" + b, a + " 🎉\n" + b, "@agent_b " + a, a + "～～～", strings.ToUpper(a)} {
			if says(text) {
				t.Errorf("passed %q", text)
			}
		}
		for _, content := range []string{"缓存", "42", "deploy now", "为什么？", "但是", "not yet", "失败"} {
			for _, text := range []string{a + "，" + content, content + "。" + a, a + " " + content} {
				if !says(text) {
					t.Errorf("refused %q", text)
				}
			}
		}
	}
}

func TestRulesOnMentions(t *testing.T) {
	for _, tt := range []struct {
		name string
		q    policy.Question
		want bool
	}{
		{"a person's courtesy to this agent", policy.Question{FromUser: true, Mentioned: true, Message: policy.Entry{Content: "谢谢"}}, true},
		{"a person asks all", policy.Question{FromUser: true, Message: policy.Entry{Content: "@all who can help?"}}, true},
		{"a bot's name that is a word, thanked", policy.Question{AgentName: "deploy", Message: policy.Entry{Content: "thanks deploy"}}, false},
		{"a bot's name that is a word, as a task", policy.Question{AgentName: "deploy", Message: policy.Entry{Content: "ok deploy"}}, true},
		{"a display name", policy.Question{Message: policy.Entry{Content: "谢谢小明"}, Transcript: []policy.Entry{{SenderName: "小明"}}}, false},
		{"a display name behind an @, without a space", policy.Question{Message: policy.Entry{Content: "@小明谢谢"}, Transcript: []policy.Entry{{SenderName: "小明"}}}, false},
		{"an unknown name without a space", policy.Question{Message: policy.Entry{Content: "@小明部署"}}, true},
		{"too long to be a courtesy", policy.Question{Message: policy.Entry{Content: strings.Repeat("谢谢。", 1000)}}, true},
		{"praise answers a question", policy.Question{AgentName: "c", Message: policy.Entry{Content: "Perfect, thanks!"},
			Transcript: []policy.Entry{{Sender: "c", MessageID: "y", Content: "Shall I publish it?"}}}, true},
		{"an answer to an older question", policy.Question{AgentName: "c", Message: policy.Entry{Content: "好的", ParentID: "x"},
			Transcript: []policy.Entry{{Sender: "c", MessageID: "y", Content: "发布吗？"}}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, _ := (judge.Rules{}).Judge(t.Context(), tt.q); got != tt.want {
				t.Errorf("allow = %v, want %v", got, tt.want)
			}
		})
	}
}

func FuzzRules(f *testing.F) {
	for i, l := range corpus(f, "judge.jsonl", 150) {
		if i%10 == 0 {
			f.Add(l.Text, "小明", l.FromUser)
		}
	}
	f.Fuzz(func(t *testing.T, text, name string, fromUser bool) {
		q := policy.Question{AgentName: name, FromUser: fromUser, Message: policy.Entry{Content: text},
			Transcript: []policy.Entry{{Sender: name, SenderName: text, Content: text}}}
		if _, err := (judge.Rules{}).Judge(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		q.FromUser = false
		q.Message.Content += " 42x7 "
		if allow, _ := (judge.Rules{}).Judge(t.Context(), q); !allow && !strings.Contains(name, "42x7") {
			t.Errorf("refused a text with a number: %q", q.Message.Content)
		}
	})
}

// An address without a text says "look here".
func TestRulesPassANudge(t *testing.T) {
	for _, text := range []string{"", " ", "@小C", `<at user_id="ou_c">小C</at>`, "@agent_c 👆"} {
		q := labelled{Text: text}.question()
		q.Mentioned = true
		if allow, _ := (judge.Rules{}).Judge(t.Context(), q); !allow {
			t.Errorf("stopped %q, which names this bot", text)
		}
	}
}

// Short messages, and what comes after something that this agent said.
func TestRulesOnPhrases(t *testing.T) {
	text, err := os.ReadFile("../testdata/phrases.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		want, message, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok || line[0] == '#' {
			continue
		}
		ours, answer, after := strings.Cut(message, " => ")
		q := labelled{Text: answer}.question()
		if after {
			q.Transcript = append(q.Transcript, policy.Entry{Sender: q.AgentName, MessageID: "om_ours", Content: ours})
		} else {
			q = labelled{Text: message}.question()
		}
		if got, _ := (judge.Rules{}).Judge(t.Context(), q); got != (want == "pass") {
			t.Errorf("%q after %q: allow = %v", q.Message.Content, ours, got)
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
