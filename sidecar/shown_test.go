package sidecar

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

func shownSidecar(t *testing.T, limits policy.Limits) *Sidecar {
	t.Helper()
	dir := t.TempDir()
	groupsFile := filepath.Join(dir, "groups.json")
	if err := os.WriteFile(groupsFile, []byte(`{"groups":{"oc_own":{"name":"研发群","max_bot_reply_depth":6,"bot_reply_llm_check":false},
		"oc_half":{"bot_reply_llm_threshold":2}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Agent: "agent_b", ListenAddr: "127.0.0.1:0", Backend: "file", RelayDir: dir + "/relay", GroupsFile: groupsFile,
		TranscriptDir: dir + "/transcripts", MaxAge: time.Minute, Limits: limits}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	return s
}

// A page shows the depths that decisions on its messages go by.
func TestDepthsShownAreThoseDecidedBy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := shownSidecar(t, policy.Limits{MaxDepth: 1000, Threshold: 1000,
			Count: policy.Count{Turns: seed%2 == 0, IdleReset: time.Duration(seed%3) * 50 * time.Second}})
		var entries []transcript.Entry
		ts := time.Now().UnixMilli()
		for i := range 60 {
			ts += 1 + r.Int64N(60_000)
			e := transcript.Entry{Role: relay.RoleAssistant, Sender: fmt.Sprint("agent_", r.IntN(3)), MessageID: fmt.Sprint("om_", i), TS: ts,
				ThreadID: []string{"", "", "omt_1"}[r.IntN(3)]}
			switch r.IntN(8) {
			case 0:
				e.Role, e.Sender = relay.RoleUser, "Ann"
			case 1:
				e.ParentID = fmt.Sprint("om_", r.IntN(i+1))
			case 2:
				e.UserTS = ts - r.Int64N(60_000)
			}
			entries = append(entries, e)
			if _, err := s.chats.transcript.Append("feishu", "oc_x", e); err != nil {
				t.Fatal(err)
			}
		}
		given := slices.Clone(entries)
		got := s.decide.depthsShown(entries)
		for i, e := range given {
			want := 0
			if e.Role == relay.RoleAssistant {
				decision, err := s.decide.Decide(t.Context(), relay.Question{SenderAgentName: relay.AgentName(e.Sender), Outbound: relay.Outbound{
					ChatID: "oc_x", MessageID: relay.MessageID(e.MessageID), TS: relay.Millis(e.TS)}})
				if err != nil {
					t.Fatal(err)
				}
				want = decision.Depth
			}
			if got[i] != want {
				t.Errorf("seed %d, message %d: depth %d is shown, %d was decided by", seed, i, got[i], want)
			}
		}
	}
}
