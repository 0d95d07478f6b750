package transcript

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

const file = "feishu_oc_x.jsonl"

func open(tb testing.TB, dir string, o *Options) *Store {
	tb.Helper()
	s, err := Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func message(i int) Entry {
	return Entry{Role: relay.RoleAssistant, Content: fmt.Sprint("text ", i), Sender: "agent_a", MessageID: fmt.Sprint("om_", i), TS: 1795211093522 + int64(i)}
}

// lines returns entries as they are in a file.
func lines(tb testing.TB, entries ...Entry) (all string) {
	tb.Helper()
	for _, e := range entries {
		line, err := e.encode()
		must(tb, err)
		all += string(line) + "\n"
	}
	return all
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func messages(from, to int) (all []Entry) {
	for i := from; i < to; i++ {
		all = append(all, message(i))
	}
	return all
}

func add(tb testing.TB, s *Store, want bool, entries ...Entry) {
	tb.Helper()
	for _, e := range entries {
		got, err := s.Append("feishu", "oc_x", e)
		if err != nil {
			tb.Fatal(err)
		}
		if got != want {
			tb.Fatalf("append %s: added = %t, want %t", e.MessageID, got, want)
		}
	}
}

// expectTail compares the answers of the store, which may come from its memory,
// and of one that has none.
func expectTail(tb testing.TB, s *Store, n int, want []Entry) {
	tb.Helper()
	for _, r := range []*Store{s, open(tb, s.dir.Path, &Options{ReadOnly: true})} {
		got, err := r.Tail("feishu", "oc_x", n)
		if err != nil {
			tb.Fatal(err)
		}
		if diff := cmp.Diff(got, want); diff != "" && len(got)+len(want) > 0 {
			tb.Fatalf("tail %d (-got +want):\n%s", n, diff)
		}
	}
}

func writeFile(tb testing.TB, path, content string) {
	tb.Helper()
	must(tb, os.WriteFile(path, []byte(content), 0o600))
}

func addFile(tb testing.TB, path, content string) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	must(tb, err)
	_, err = f.WriteString(content)
	must(tb, errors.Join(err, f.Close()))
}

func TestLineHasTheFiveFieldsInOrder(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	add(t, s, true,
		Entry{Role: relay.RoleUser},
		Entry{Role: relay.RoleAssistant, Content: `<at id="x"></at> & so`, Sender: "a", MessageID: "om_1", TS: 5,
			SenderName: "A", ThreadID: "omt", ParentID: "om_p", RootID: "om_r", UserTS: 4, MsgType: "text"})
	got, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"role":"user","content":"","sender":"","message_id":"","ts":0}
{"role":"assistant","content":"<at id=\"x\"></at> & so","sender":"a","message_id":"om_1","ts":5,"sender_name":"A","thread_id":"omt","parent_id":"om_p","root_id":"om_r","user_ts":4,"msg_type":"text"}
`
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Error(diff)
	}
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ channel, chat, want string }{
		{"feishu", "oc_x", "feishu_oc_x.jsonl"},
		{"my_channel", "oc_x", "my%5Fchannel_oc_x.jsonl"},
		{"", "", "%_%.jsonl"},
		{"feishu", "../../etc/passwd", "feishu_%2E.%2F%2E.%2Fetc%2Fpasswd.jsonl"},
		{"feishu", "oc_x.jsonl.1", "feishu_oc_x.jsonl.1.jsonl"},
		{"a%5Fb", "群", "a%255Fb_%E7%BE%A4.jsonl"},
	} {
		name := fileName(c.channel, c.chat)
		if filepath.Base(name) != name {
			t.Errorf("%q is a path", name)
		}
		if c.chat != "../../etc/passwd" && name != c.want {
			t.Errorf("name of %q, %q = %q, want %q", c.channel, c.chat, name, c.want)
		}
		channel, chat, ok := parseName(name)
		if !ok || channel != c.channel || chat != c.chat {
			t.Errorf("parse %q = %q, %q, %t, want %q, %q", name, channel, chat, ok, c.channel, c.chat)
		}
		segment := segmentName(name, 7)
		if _, _, ok := parseName(segment); ok {
			t.Errorf("%q looks like a chat", segment)
		}
		if of, number, ok := splitSegment(segment); !ok || of != name || number != 7 {
			t.Errorf("split %q = %q, %d, %t", segment, of, number, ok)
		}
	}
	long := strings.Repeat("x", 500)
	if name := fileName(long, long); len(name) > 255-len(".999") {
		t.Errorf("a name of %d bytes", len(name))
	}
	for _, foreign := range []string{"notes.txt", "feishu.jsonl", "feishu_oc%zz.jsonl", "feishu_oc x.jsonl", "a.jsonl.01", "a.jsonl.x", "a.jsonl.-1"} {
		if _, _, ok := parseName(foreign); ok {
			t.Errorf("%q was taken for a chat", foreign)
		}
	}
}

func TestAppend(t *testing.T) {
	t.Run("once", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		add(t, s, true, messages(0, 10)...)
		add(t, s, false, messages(0, 10)...)
		expectTail(t, s, 100, messages(0, 10))
		expectTail(t, s, 3, messages(7, 10))
	})
	t.Run("once over stores", func(t *testing.T) {
		dir := t.TempDir()
		a, b := open(t, dir, nil), open(t, dir, nil)
		add(t, a, true, messages(0, 5)...)
		add(t, b, false, messages(0, 5)...)
		add(t, b, true, messages(5, 10)...)
		add(t, a, false, messages(0, 10)...)
		expectTail(t, a, 100, messages(0, 10))
	})
	t.Run("entries without id, at another time", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		e := message(1)
		e.MessageID = ""
		later := e
		later.TS += sameWithin + 1
		add(t, s, true, e, later)
		expectTail(t, s, 10, []Entry{e, later})
	})
	t.Run("chats apart", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		for _, chat := range []string{"oc_a", "oc_b"} {
			if added, err := s.Append("feishu", chat, message(1)); !added || err != nil {
				t.Error(chat, added, err)
			}
		}
	})
	t.Run("more chats than open files", func(t *testing.T) {
		s := open(t, t.TempDir(), &Options{maxOpen: 2})
		for round := range 3 {
			for i := range 10 {
				added, err := s.Append("feishu", fmt.Sprint("oc_", i), message(1))
				if err != nil || added != (round == 0) {
					t.Fatal(round, i, added, err)
				}
			}
		}
		if n := s.chats.Len(); n != 2 {
			t.Errorf("%d chats open, want 2", n)
		}
	})
	t.Run("refuses other roles", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		for _, role := range []string{"", "system"} {
			if _, err := s.Append("feishu", "oc_x", Entry{Role: role, Content: "secret"}); err == nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("role %q: error %v", role, err)
			}
		}
	})
	t.Run("invalid UTF-8 is replaced", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		e := message(1)
		e.Content = "a\xffb"
		add(t, s, true, e)
		e.Content = "a\ufffdb"
		expectTail(t, s, 1, []Entry{e})
	})
}

func TestLongContentIsCut(t *testing.T) {
	for name, content := range map[string]string{
		"runes":   strings.Repeat("界", relay.MaxLine),
		"escapes": strings.Repeat("\x01", relay.MaxLine/2),
		"barely":  strings.Repeat("x", relay.MaxLine-60),
		"quotes":  strings.Repeat(`"`, 3*relay.MaxLine),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, nil)
			e := message(1)
			e.Content = content
			add(t, s, true, e)
			add(t, s, false, e)
			info, err := os.Stat(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() > relay.MaxLine || info.Size() < relay.MaxLine*8/10 {
				t.Errorf("a line of %d bytes, want at most and about %d", info.Size(), relay.MaxLine)
			}
			got, err := s.Tail("feishu", "oc_x", 1)
			if err != nil || len(got) != 1 {
				t.Fatal(len(got), err)
			}
			kept, ok := strings.CutSuffix(got[0].Content, fmt.Sprintf(relay.CutMark, len(content)))
			if !ok || !strings.HasPrefix(content, kept) || !utf8.ValidString(kept) {
				t.Errorf("the cut is not marked or not clean (%d bytes kept)", len(kept))
			}
		})
	}
	t.Run("other fields are not", func(t *testing.T) {
		s := open(t, t.TempDir(), nil)
		if _, err := s.Append("feishu", "oc_x", Entry{Role: relay.RoleUser, Sender: strings.Repeat("x", relay.MaxLine)}); err == nil {
			t.Error("no error for a sender of 1 MiB")
		}
	})
}

// A message that a program without the lock wrote again is returned once.
func TestTailDropsRepeats(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, file), lines(t, messages(0, 3)...)+lines(t, message(1), message(3), message(3)))
	s := open(t, dir, nil)
	for range 2 { // cold, then warm
		got, err := s.Tail("feishu", "oc_x", 100)
		if all := strings.Fields(ids(got)); err != nil || len(all) != 4 || len(slices.Compact(slices.Sorted(slices.Values(all)))) != 4 {
			t.Errorf("the tail is %q, %v", all, err)
		}
		add(t, s, false, messages(0, 4)...)
	}
	addFile(t, filepath.Join(dir, file), lines(t, message(1)))
	if got, err := s.Tail("feishu", "oc_x", 100); err != nil || len(got) != 4 {
		t.Errorf("the tail is %q, %v", ids(got), err)
	}
}

func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "transcripts")
	if _, err := Open(dir, &Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("missing folder: %v", err)
	}
	add(t, open(t, dir, nil), true, message(1))
	s := open(t, dir, &Options{ReadOnly: true})
	expectTail(t, s, 5, messages(1, 2))
	if names, err := s.files(); len(names) != 1 || err != nil {
		t.Errorf("files: %v, %v", names, err)
	}
}

func TestClose(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	add(t, s, true, message(1))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err := s.Append("feishu", "oc_x", message(2))
	_, tailErr := s.Tail("feishu", "oc_x", 1)
	_, pageErr := s.Page("feishu", "oc_x", Query{Limit: 5})
	_, chatsErr := s.Chats()
	for _, err := range []error{err, tailErr, pageErr, chatsErr} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v, want os.ErrClosed", err)
		}
	}
}

func TestChats(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	for i, chat := range []string{"oc_a", "oc_b", "oc_c"} {
		if _, err := s.Append("feishu", chat, message(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, foreign := range []string{"notes.txt", "x.jsonl", "feishu_oc_a.jsonl.bak"} {
		writeFile(t, filepath.Join(dir, foreign), "x\n")
	}
	writeFile(t, filepath.Join(dir, "my%5Fchat_oc_d.jsonl.4"), "")
	chats, err := s.Chats()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, c := range chats {
		got[c.Channel+" "+c.ChatID] = c.LastTS
	}
	want := map[string]int64{"feishu oc_a": message(0).TS, "feishu oc_b": message(1).TS, "feishu oc_c": message(2).TS, "my_chat oc_d": 0}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}
