package sidecar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// A recall that is read before the bot is known to be in the group counts for the text that comes
// later, and in no other group.
func TestRecallBeforeTheBotIsInTheGroup(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	if s.chats.in("feishu", "oc_new") {
		t.Fatal("the bot is in the group")
	}
	s.steer.take(new(recalled{"feishu", "oc_new", "om_1"}.mark(1)), true)
	s.chats.saw("feishu", "oc_new", 1)
	m := relay.Message{MessageID: "om_1", RelayMsgID: "om_1", Channel: "feishu", ChatID: "oc_new", Content: "secret"}
	if why, err := s.steer.steered(&m, m.TS.Time()); why != relay.Recalled || err != nil {
		t.Errorf("it stops for %q, %v", why, err)
	}
	if _, err := s.chats.record(s.chats.transcript.Append, "feishu", "oc_new", entryOf(&m, m.TS.Time())); err != nil {
		t.Fatal(err)
	}
	list, err := s.chats.transcript.Tail("feishu", "oc_new", 9)
	if err != nil || len(list) != 1 || !list[0].Recalled || list[0].Content != "" {
		t.Errorf("the transcript has %+v, %v", list, err)
	}
	if m.ChatID = "oc_own"; s.chats.wasRecalled(&m) {
		t.Error("it is recalled in another group")
	}
}

// The gateway answers for a message that the bot was given until that is recalled.
func TestInjectedIsRecalled(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3})
	h := host{chats: s.chats, door: newGatewayDoor(s.app, s.deliver)}
	h.door.shown.Add("om_1", feishu.Message{ID: "om_1", ChatID: "oc_own"})
	if _, ok := h.Injected("om_1"); !ok {
		t.Error("it is not known")
	}
	s.steer.take(new(recalled{"feishu", "oc_own", "om_1"}.mark(1)), true)
	if _, ok := h.Injected("om_1"); ok {
		t.Error("it is answered for")
	}
}

// Nothing brings back the text of a recalled message that was held: no edit, no release, no line of
// before.
func TestHeldIsRecalled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBase(Config{RelayDir: dir, Agent: "agent_b"}, Options{})
	if err := b.openFolders(); err != nil {
		t.Fatal(err)
	}
	h, err := openHeld(b)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		id := relay.MessageID(fmt.Sprint("om_", i))
		m := relay.Message{MessageID: id, RelayMsgID: id, Channel: "feishu", ChatID: "oc_1", Content: "secret", SenderAgentName: "agent_a"}
		line, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := h.note(heldMessage{Key: string(id), Line: json.RawMessage(line)}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			h.forget(string(id)) // its line is in the journal
		}
		var all sync.WaitGroup
		m.Content = "secret edit"
		all.Go(func() { h.edit(string(id), &m) })
		all.Go(func() { h.recall(id) })
		all.Wait()
		data, err := os.ReadFile(filepath.Join(dir, "steer", "held", "agent_b.jsonl"))
		if err != nil || bytes.Contains(data, []byte("secret")) || len(h.byKey) > 0 {
			t.Fatalf("%s: %v, %s", id, err, data)
		}
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
}
