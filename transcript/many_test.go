package transcript_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/transcript"
)

func openMany(t testing.TB, dir string, opts transcript.Options) *transcript.Store {
	t.Helper()
	s, err := transcript.Open(dir, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func say(t testing.TB, s *transcript.Store, chat string, id int, content string) {
	t.Helper()
	_, err := s.Append("feishu", chat, transcript.Entry{Role: transcript.RoleAssistant, Sender: "a", Content: content,
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
	s := openMany(t, t.TempDir(), transcript.Options{Memory: budget})
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

// What is remembered of a folder is forgotten when another process rotates a file in it.
func TestReadersNoticeEveryRotation(t *testing.T) {
	dir := t.TempDir()
	writer := openMany(t, dir, transcript.Options{RotateSize: 1, Keep: 100})
	reader := openMany(t, dir, transcript.Options{ReadOnly: true})
	for i := range 50 {
		say(t, writer, "oc_x", i, "hello")
		entries, err := reader.Tail("feishu", "oc_x", 1000)
		if err != nil || len(entries) != i+1 {
			t.Fatalf("got %d messages and %v, want %d", len(entries), err, i+1)
		}
	}
}

// Many groups make the reading of one no dearer: the ratio should be near 1.
func BenchmarkTailAmongManyFiles(b *testing.B) {
	tail := func(files int) *transcript.Store {
		dir := b.TempDir()
		s := openMany(b, dir, transcript.Options{})
		for i := range 5 {
			say(b, s, "oc_x", i, "hello")
		}
		for i := range files {
			name := fmt.Sprintf("feishu_oc_%d.jsonl", i)
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				b.Fatal(err)
			}
		}
		old := time.Now().Add(-time.Hour) // nothing changes in the folder
		if err := os.Chtimes(dir, old, old); err != nil {
			b.Fatal(err)
		}
		return openMany(b, dir, transcript.Options{ReadOnly: true})
	}
	few, many := tail(0), tail(3000)
	took := func(s *transcript.Store) time.Duration {
		start := time.Now()
		if entries, err := s.Tail("feishu", "oc_x", 50); err != nil || len(entries) != 5 {
			b.Fatalf("got %d messages and %v", len(entries), err)
		}
		return time.Since(start)
	}
	var all [2][]time.Duration
	for b.Loop() {
		all[0], all[1] = append(all[0], took(few)), append(all[1], took(many))
	}
	for i := range all {
		slices.Sort(all[i])
	}
	b.ReportMetric(float64(all[1][len(all[1])/2])/float64(all[0][len(all[0])/2]), "many/few")
}
