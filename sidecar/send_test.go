package sidecar

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// A send that is refused is not in the transcript, however often it is tried.
func TestRefusedSendLeavesNoLine(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3, Threshold: 1})
	segment := filepath.Join(s.lanes.bots.folder, fmt.Sprintf("%020d.jsonl", 1))
	if err := os.Mkdir(segment, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if sent, err := s.send.Send(t.Context(), relay.Outbound{ChatID: "oc_x", Content: "hello"}); err == nil {
			t.Errorf("a send that cannot be written down is accepted: %+v", sent)
		}
	}
	if got := s.transcriptOf(t, "oc_x"); len(got) != 0 {
		t.Errorf("the transcript has %d lines of refused sends", len(got))
	}
	if err := os.Remove(segment); err != nil {
		t.Fatal(err)
	}
	if _, err := s.send.Send(t.Context(), relay.Outbound{ChatID: "oc_x", Content: "hello"}); err != nil {
		t.Fatal(err)
	}
	if got := s.transcriptOf(t, "oc_x"); len(got) != 1 {
		t.Errorf("the transcript has %d lines of an accepted send", len(got))
	}
}
