package transcript

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"feishu-relay/relay"
)

func openMany(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func say(t testing.TB, s *Store, chat string, id int, content string) {
	t.Helper()
	_, err := s.Append("feishu", chat, Entry{Role: relay.RoleAssistant, Sender: "a", Content: content,
		MessageID: fmt.Sprintf("om_%s_%d", chat, id), TS: int64(1795211093522 + id)})
	if err != nil {
		t.Fatal(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A sidecar has as much memory for a hundred groups as for one.
func TestAllChatsShareOneMemory(t *testing.T) {
	const chats, each, budget = 30, 3, 2 << 20
	s := openMany(t, t.TempDir(), Options{memory: budget})
	content := strings.Repeat("x", 150<<10)
	before := heap()
	for i := range each {
		for chat := range chats {
			say(t, s, fmt.Sprintf("oc_%d", chat), i, content)
		}
	}
	if grown := heap() - before; grown > 4*budget {
		t.Errorf("%d chats take %d bytes of memory, with a budget of %d", chats, grown, budget)
	}
	for chat := range chats {
		name := fmt.Sprintf("oc_%d", chat)
		say(t, s, name, 0, content) // a repeat, of a chat that was forgotten
		entries, err := s.Tail("feishu", name, 100)
		if err != nil || len(entries) != each {
			t.Fatalf("%s has %d messages and %v, want %d", name, len(entries), err, each)
		}
	}
	runtime.KeepAlive(s)
}
