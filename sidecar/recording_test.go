package sidecar

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// relayed hands s a message as its backend does, and reports when it is settled.
func relayed(ctx context.Context, t *testing.T, s *Sidecar, along path, m relay.Message) *atomic.Bool {
	t.Helper()
	m.Channel, m.Content, m.Metadata = "feishu", string(m.RelayMsgID), relay.Metadata{"chat_type": quote("group")}
	m.TS = relay.MillisOf(time.Now())
	line, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	s.chats.saw(m.Channel, m.ChatID, m.TS)
	settled := &atomic.Bool{}
	s.receive.take(ctx, along, relay.Delivery{Line: line, Settle: func() { settled.Store(true) }})
	return settled
}

func (s *Sidecar) transcriptOf(t *testing.T, chat string) (entries []transcript.Entry) {
	t.Helper()
	entries, err := s.chats.transcript.Tail("feishu", chat, 100)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// A message whose transcript cannot be written is kept for longer than
// RELAY_MAX_AGE: it is settled when its line is written.
func TestMessageWaitsForItsTranscript(t *testing.T) {
	for name, tt := range map[string]struct {
		path func(*Sidecar) path
		msg  relay.Message
	}{
		"another bot's": {(*Sidecar).botsPath, relay.Message{RelayMsgID: "om_1", ChatID: "oc_x", SenderAgentName: "agent_a"}},
		"a person's":    {(*Sidecar).usersPath, relay.Message{RelayMsgID: "om_1", ChatID: "oc_x", SenderAgentName: "agent_a", Role: relay.RoleUser, SenderID: "ou_1"}},
		"its own":       {(*Sidecar).botsPath, relay.Message{RelayMsgID: "om_1", ChatID: "oc_x", SenderAgentName: "agent_b"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := shownSidecar(t, policy.Limits{MaxDepth: 3, Threshold: 1})
				ctx, cancel := context.WithCancel(t.Context())
				file := filepath.Join(s.cfg.TranscriptDir, "feishu_oc_x.jsonl")
				if err := os.Mkdir(file, 0o700); err != nil {
					t.Fatal(err)
				}
				settled := relayed(ctx, t, s, tt.path(s), tt.msg)
				time.Sleep(10 * s.cfg.MaxAge)
				if settled.Load() {
					t.Error("it is settled, and its line is lost")
				}
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * retryMax)
				if got := s.transcriptOf(t, "oc_x"); len(got) != 1 || got[0].MessageID != "om_1" || !settled.Load() {
					t.Errorf("with the disk back the transcript has %v, settled: %t", got, settled.Load())
				}
				cancel()
				s.receive.workers.wait()
			})
		})
	}
}

// A process that is paused with the lock of a chat's transcript holds up that
// chat and no other. Its messages keep their order.
func TestLockedTranscriptHoldsUpItsChatAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shownSidecar(t, policy.Limits{MaxDepth: 3, Threshold: 1})
		ctx, cancel := context.WithCancel(t.Context())
		f, err := os.OpenFile(filepath.Join(s.cfg.TranscriptDir, "feishu_oc_x.jsonl"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if ok, err := safefile.TryLock(f); !ok {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range 20 {
			relayed(ctx, t, s, s.botsPath(), relay.Message{RelayMsgID: relay.MessageID(fmt.Sprint("om_x", i)), ChatID: "oc_x", SenderAgentName: "agent_a"})
			relayed(ctx, t, s, s.botsPath(), relay.Message{RelayMsgID: relay.MessageID(fmt.Sprint("om_y", i)), ChatID: "oc_y", SenderAgentName: "agent_a"})
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("reading the queue took %v", took)
		}
		if got := s.transcriptOf(t, "oc_y"); len(got) != 20 {
			t.Errorf("the other chat has %d messages, want 20", len(got))
		}
		time.Sleep(15 * time.Second)
		if err := safefile.Unlock(f); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		got := s.transcriptOf(t, "oc_x")
		if len(got) != 20 {
			t.Errorf("with the lock free the chat has %d messages, want 20", len(got))
		}
		for i, e := range got {
			if e.MessageID != fmt.Sprint("om_x", i) {
				t.Errorf("message %d is %s", i, e.MessageID)
			}
		}
		cancel()
		s.receive.workers.wait()
	})
}

// A program in the same transcript folder that writes no ids does not raise the depth.
func TestLinesWithoutIDsDoNotRaiseTheDepth(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 5, Threshold: 5})
	ts := time.Now().UnixMilli()
	file, err := os.OpenFile(filepath.Join(s.cfg.TranscriptDir, "feishu_oc_x.jsonl"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i, e := range []transcript.Entry{
		{Role: relay.RoleUser, Sender: "Ann", Content: "who?", MessageID: "om_0"},
		{Role: relay.RoleAssistant, Sender: "agent_a", Content: "I", MessageID: "om_1"},
		{Role: relay.RoleAssistant, Sender: "agent_c", Content: "and I", MessageID: "om_2"},
		{Role: relay.RoleAssistant, Sender: "agent_a", Content: "good", MessageID: "om_3"},
	} {
		e.TS = ts + int64(i)*10_000
		if _, err := fmt.Fprintf(file, `{"role": %q, "content": %q, "sender": %q, "ts": %d}`+"\n", e.Role, e.Content, e.Sender, e.TS+900); err != nil {
			t.Fatal(err)
		}
		if _, err := s.chats.transcript.Append("feishu", "oc_x", e); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		decision, err := s.decide.Decide(t.Context(), relay.Question{SenderAgentName: relay.AgentName(e.Sender), Outbound: relay.Outbound{
			ChatID: "oc_x", Content: e.Content, MessageID: relay.MessageID(e.MessageID), TS: relay.Millis(e.TS)}})
		if err != nil {
			t.Fatal(err)
		}
		if got := decision.Depth; got != i {
			t.Errorf("the depth of %q is %d, want %d", e.Content, got, i)
		}
	}
}
