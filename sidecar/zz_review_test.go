package sidecar

import (
	"fmt"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

func TestZZShownCost(t *testing.T) {
	s := shownSidecar(t, policy.Limits{MaxDepth: 100000, Threshold: 1, Check: true})
	for i := range 6000 {
		_, err := s.transcript.Append("feishu", "oc_x", transcript.Entry{Role: "assistant", Sender: "a", Content: fmt.Sprintf("%0500d", i), MessageID: fmt.Sprint("m", i), TS: int64(i + 1000)})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		began := time.Now()
		d, err := s.depth(where{channel: "feishu", chat: "oc_x"}, policy.Entry{Role: "assistant", Sender: "a", MessageID: "m5999", TS: 6999}, s.cfg.Limits)
		t.Log(d, err, time.Since(began))
	}
	s.cfg.Limits.MaxDepth = 3
	for range 3 {
		began := time.Now()
		d, err := s.depth(where{channel: "feishu", chat: "oc_x"}, policy.Entry{Role: "assistant", Sender: "a", MessageID: "m5999", TS: 6999}, s.cfg.Limits)
		t.Log(d, err, time.Since(began))
	}
}

func TestZZPrivate(t *testing.T) {
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	p := &passage{msg: relay.Message{Channel: "feishu", ChatID: "oc_p2p", RelayMsgID: "om_1", MessageID: "om_1", Role: relay.RoleUser,
		Metadata: relay.Metadata{"chat_type": quote("p2p")}}, key: "om_1"}
	s.noteDelivered(p, doorWebhook)
	if n := s.outcomes.Stats().Pending; n != 0 {
		t.Errorf("%d outcomes of a private chat are shared", n)
	}
}
