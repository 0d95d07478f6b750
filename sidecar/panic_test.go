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
	boom := func(context.Context, *arrival) (relay.Reason, error) { panic("boom") }
	pass := func(context.Context, *arrival) (relay.Reason, error) { return relay.Pass, nil }
	stop := func(context.Context, *arrival) (relay.Reason, error) { return relay.Expired, nil }
	stages := func(arrive, decide func(context.Context, *arrival) (relay.Reason, error)) path {
		return path{queue: outboundQueue, arrive: relay.Pipeline[*arrival]{{Name: "arrive", Apply: arrive}},
			decide: relay.Pipeline[*arrival]{{Name: "decide", Apply: decide}}}
	}
	for _, tt := range []struct {
		name   string
		path   path
		broken func(*Sidecar) (repair func())
		native bool
	}{
		{name: "in a stage before the transcript", path: stages(boom, pass)},
		{name: "in a stage of the chat", path: stages(pass, boom)},
		{name: "while its time is read", path: stages(pass, pass), broken: func(s *Sidecar) func() {
			p := s.chats.peers
			s.chats.peers = nil
			return func() { s.chats.peers = p }
		}},
		{name: "while its group is looked up", path: stages(pass, pass), broken: func(s *Sidecar) func() {
			g := s.chats.groups
			s.chats.groups = nil
			return func() { s.chats.groups = g }
		}},
		{name: "while its end is reported", path: stages(stop, pass), broken: func(s *Sidecar) func() {
			e := s.watch.events
			s.watch.events = nil
			return func() { s.watch.events = e }
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
				broken := &native{base: s.base, receive: s.receive}
				broken.receiveNative(t.Context(), delivery("om_panics"))
			} else {
				repair := func() {}
				if tt.broken != nil {
					repair = tt.broken(s)
				}
				s.receive.take(t.Context(), tt.path, delivery("om_panics"))
				s.receive.workers.wait()
				repair()
			}
			if got := settled.Load(); got == 0 {
				t.Error("the line is not settled")
			}
			kept, err := os.ReadFile(filepath.Join(dir, "relay", "processed", "agent_b.malformed.jsonl"))
			if err != nil || strings.Count(string(kept), "om_panics") != 1 {
				t.Errorf("quarantined: %q, %v", kept, err)
			}
			s.receive.take(t.Context(), stages(pass, pass), delivery("om_next"))
			s.receive.workers.wait()
			if got := settled.Load(); got < 2 {
				t.Error("the next line is not handled")
			}
		})
	}
}
