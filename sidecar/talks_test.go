package sidecar

import (
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/relay"
)

// A message that is said to come from the future is no newer than now: what
// people say after it counts.
func TestTalkFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := aSidecar(t)
		now := relay.MillisOf(time.Now())
		s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_1", At: now * 1000}) // microseconds
		time.Sleep(time.Second)
		s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_2", At: now + 1000})
		if got, _ := s.chats.talk("feishu", "oc_1"); got.MessageID != "om_2" {
			t.Errorf("the newest message is %s, want om_2", got.MessageID)
		}
	})
}

// aSidecar is one that does not run.
func aSidecar(t *testing.T) *Sidecar {
	t.Helper()
	dir := t.TempDir()
	s, err := New(Config{Agent: "agent_b", ListenAddr: "127.0.0.1:0", Backend: "file", RelayDir: dir + "/relay",
		TranscriptDir: dir + "/transcripts", MaxAge: time.Minute}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
