package mailapi_test

import (
	"testing"

	"feishu-relay/mailbox"
)

// A bot need not say what the sidecar knows.
func TestShortFrames(t *testing.T) {
	s := newSwitchboard(t)
	p := s.dial()
	p.say(`{"type":"handshake.register"}`)
	if e := p.hear(); e.Type != mailbox.TypeRegistered || e.To != "agent_a" || mailbox.Original(e) == "" {
		t.Fatalf("got %+v, want handshake.ack", e)
	}
	line := <-s.attached
	p.say(`{"type":"ack","reply_to":"m1"}`)
	if e := <-line.taken; e.Type != mailbox.TypeAck || e.To != "agent_a" || mailbox.Original(e) != "m1" {
		t.Errorf("taken: %+v", e)
	}
	p.say(`{"to":"agent_b","type":"task_update","task":{"id":"t1","state":"completed"},"content":"done"}`)
	if e := <-line.taken; e.From != "agent_a" || e.To != "agent_b" || e.ID == "" || e.Timestamp.IsZero() || e.Task.State != mailbox.Completed || e.Text() != "done" {
		t.Errorf("taken: %+v", e)
	}
}
