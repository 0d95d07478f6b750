package judge_test

import (
	"testing"

	"feishu-relay/policy"
	"feishu-relay/policy/judge"
)

// What is no courtesy in spite of such words is in content_test.go.
func TestRulesStopFamilies(t *testing.T) {
	for _, tt := range []struct{ ours, text string }{
		{"", "Thanks a lot! That is about all I needed for now."},
		{"", "This was everything we wanted to know, bye"},
		{"", "I won't be needing any further help today, thank you"},
		{"", "Nothing else I need, thanks"},
		{"", "I've got to run now, talk to you another day!"},
		{"", "Do have yourself a truly lovely evening"},
		{"", "Please enjoy the rest of your trip!"},
		{"", "I wish you a very pleasant weekend"},
		{"", "Have a wonderful time at the festival"},
		{"", "You've helped us out a lot, thanks"},
		{"", "You have really made everything so much simpler for me"},
		{"", "Your support has been invaluable"},
		{"", "Thank you for setting that up for us so quickly"},
		{"", "Thanks for letting me help"},
		{"", "I hope I was of some use to you"},
		{"", "In that case, have a good night"},
		{"", "That is it. Thank you so much!"},
		{"", "我们的问题都问完了，多谢"},
		{"", "太可惜了，不过还是谢谢你"},
		{"", "谢谢 你们了"},
		{"", "多谢你的推荐啦"},
		{"", "祝你们玩得尽兴，吃得开心"},
		{"No, thank you, that's all.", "Happy to help!"},
		{"Nothing else, thanks. Bye!", "Glad to be of service"},
		{"就去这家吧，谢谢", "不用客气！"},
		{"I think that will do, thank you.", "You're welcome!"},
		{"No, thanks.", "Enjoy your day!"},
		{"OK, enjoy!", "OK, enjoy!"},
		{"Great, have fun!", "Great, have fun!"},
	} {
		q := labelled{Text: tt.text}.question()
		if tt.ours != "" {
			e := policy.Entry{Sender: q.AgentName, MessageID: "om_ours", Content: tt.ours}
			q.Transcript = append(q.Transcript, e)
		}
		if allow, _ := (judge.Rules{}).Judge(t.Context(), q); allow {
			t.Errorf("%q after %q passes", tt.text, tt.ours)
		}
	}
}
