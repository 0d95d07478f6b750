package transcript

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A sidecar has as much memory for a hundred groups as for one.
func TestAllChatsShareOneMemory(t *testing.T) {
	const chats, each, budget = 30, 3, 2 << 20
	s := open(t, t.TempDir(), &Options{memory: budget})
	content := strings.Repeat("x", 150<<10)
	say := func(chat, i int, want bool) (name string) {
		name = fmt.Sprint("oc_", chat)
		e := message(i)
		e.Content = content
		if added, err := s.Append("feishu", name, e); err != nil || added != want {
			t.Fatal(added, err)
		}
		return name
	}
	before := heap()
	for i := range each {
		for chat := range chats {
			say(chat, i, true)
		}
	}
	if grown := heap() - before; grown > 4*budget {
		t.Errorf("%d chats take %d bytes of memory, with a budget of %d", chats, grown, budget)
	}
	for chat := range chats {
		name := say(chat, 0, false) // a repeat, of a chat that was forgotten
		if entries, err := s.Tail("feishu", name, 100); err != nil || len(entries) != each {
			t.Fatalf("%s has %d messages and %v, want %d", name, len(entries), err, each)
		}
	}
	runtime.KeepAlive(s)
}
