package sidecar

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// A line whose handling panics, wherever that is, is quarantined and settled, and the next
// one is handled: read again after a restart, it would end every sidecar again.
func TestALineThatPanicsIsQuarantined(t *testing.T) {
	t.Parallel()
	boom := func(context.Context, *passage) (relay.Reason, error) { panic("boom") }
	pass := func(context.Context, *passage) (relay.Reason, error) { return relay.Pass, nil }
	stop := func(context.Context, *passage) (relay.Reason, error) { return relay.Expired, nil }
	stages := func(arrive, decide func(context.Context, *passage) (relay.Reason, error)) way {
		return way{queue: outboundQueue, arrive: relay.Pipeline[*passage]{{Name: "arrive", Apply: arrive}},
			decide: relay.Pipeline[*passage]{{Name: "decide", Apply: decide}}}
	}
	for _, tt := range []struct {
		name   string
		way    way
		broken func(*Sidecar) (repair func())
		native bool
	}{
		{name: "in a stage before the transcript", way: stages(boom, pass)},
		{name: "in a stage of the chat", way: stages(pass, boom)},
		{name: "while its time is read", way: stages(pass, pass), broken: func(s *Sidecar) func() {
			p := s.peers
			s.peers = nil
			return func() { s.peers = p }
		}},
		{name: "while its group is looked up", way: stages(pass, pass), broken: func(s *Sidecar) func() {
			g := s.groups
			s.groups = nil
			return func() { s.groups = g }
		}},
		{name: "while its end is reported", way: stages(stop, pass), broken: func(s *Sidecar) func() {
			e := s.events
			s.events = nil
			return func() { s.events = e }
		}},
		{name: "while a native message waits for its copy", native: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := New(Config{Agent: "agent_b", ListenAddr: "127.0.0.1:0", Backend: "file", RelayDir: dir + "/relay",
				TranscriptDir: dir + "/transcripts", MaxAge: time.Minute, Limits: policy.Limits{MaxDepth: 3, Threshold: 1}}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			var settled atomic.Int32
			delivery := func(id string) relay.Delivery {
				return relay.Delivery{Line: fmt.Appendf(nil, `{"relay_msg_id":%q,"chat_id":"oc_x","content":"hi","sender_agent_name":"agent_a","ts":99999999999999}`, id),
					Settle: func() { settled.Add(1) }}
			}
			if tt.native {
				s.native = nil
				s.receiveNative(t.Context(), delivery("om_panics"))
			} else {
				repair := func() {}
				if tt.broken != nil {
					repair = tt.broken(s)
				}
				s.receive(t.Context(), tt.way, delivery("om_panics"))
				s.chats.wait()
				repair()
			}
			if got := settled.Load(); got == 0 {
				t.Error("the line is not settled")
			}
			kept, err := os.ReadFile(filepath.Join(dir, "relay", "processed", "agent_b.malformed.jsonl"))
			if err != nil || strings.Count(string(kept), "om_panics") != 1 {
				t.Errorf("quarantined: %q, %v", kept, err)
			}
			s.receive(t.Context(), stages(pass, pass), delivery("om_next"))
			s.chats.wait()
			if got := settled.Load(); got < 2 {
				t.Error("the next line is not handled")
			}
		})
	}
}
