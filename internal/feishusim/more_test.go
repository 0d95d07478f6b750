package feishusim

import "testing"

// TestOldMessagesAreForgotten keeps memory bounded in long runs.
func TestOldMessagesAreForgotten(t *testing.T) {
	s, a, _, in := testRoom()
	defer s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	in.mode = modeTopic
	for range maxMessages + 10 {
		if _, err := s.create(draft{chat: in, sender: a.ID, msgType: "text", content: textOf("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.sent) != maxMessages || len(s.messages) != maxMessages || len(s.threads) != maxMessages {
		t.Errorf("%d messages, %d by id, %d topics", len(s.sent), len(s.messages), len(s.threads))
	}
	if n := len(s.apps[s.order[1]].pending); n > maxPending {
		t.Errorf("%d events wait", n)
	}
}
