package sidecar

import (
	"fmt"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// A sidecar that was away finds in the shared transcript what the others went
// on to say. What stood before an old message counts all the same: it once
// looked at the newest lines alone, found nothing before the message there, and
// passed it as the first answer to a person.
func TestDepthOfAMessageThatIsReadLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := New(Config{Agent: "agent_b", ListenAddr: "127.0.0.1:0", Backend: "file", RelayDir: dir + "/relay",
		TranscriptDir: dir + "/transcripts", MaxAge: time.Minute, Limits: policy.Limits{MaxDepth: 3, Threshold: 1}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	const answers, later = 40, 20
	ts := time.Now().Add(-time.Minute).UnixMilli()
	say := func(role, id string) {
		t.Helper()
		ts++
		if _, err := s.chats.transcript.Append("feishu", "oc_x",
			transcript.Entry{Role: role, Sender: role, MessageID: id, TS: ts}); err != nil {
			t.Fatal(err)
		}
	}
	times := map[int]int64{}
	say(relay.RoleUser, "om_first")
	for i := range answers {
		say(relay.RoleAssistant, fmt.Sprint("om_", i+1))
		times[i+1] = ts
	}
	say(relay.RoleUser, "om_second")
	for i := range later {
		say(relay.RoleAssistant, fmt.Sprint("om_later_", i+1))
	}
	for _, want := range []int{1, 2, 30, answers} {
		got, err := s.decide.Decide(t.Context(), relay.Question{SenderAgentName: "agent_a", Outbound: relay.Outbound{
			ChatID: "oc_x", MessageID: relay.MessageID(fmt.Sprint("om_", want)), TS: relay.Millis(times[want])}})
		if err != nil {
			t.Fatal(err)
		}
		if d := got; d.Depth != want || d.Allow != (want < 3) {
			t.Errorf("answer %d: depth %d, allowed %t, want depth %d", want, d.Depth, d.Allow, want)
		}
	}
}
