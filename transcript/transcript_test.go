package transcript

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	must(tb, err)
	tb.Cleanup(func() { must(tb, s.Close()) })
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
		if got, err := s.Append("feishu", "oc_x", e); err != nil || got != want {
			tb.Fatalf("append %s: %t, %v, want %t", e.MessageID, got, err, want)
		}
	}
}

// expectTail compares the last n messages.
func expectTail(tb testing.TB, s *Store, n int, want []Entry) {
	tb.Helper()
	got := tail(tb, s, n)
	if diff := cmp.Diff(got, want); diff != "" && len(got)+len(want) > 0 {
		tb.Fatalf("tail %d (-got +want):\n%s", n, diff)
	}
}

// tail is the last n messages of oc_x.
func tail(tb testing.TB, s *Store, n int) []Entry {
	tb.Helper()
	got, err := s.Tail("feishu", "oc_x", n)
	must(tb, err)
	return got
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
	must(t, err)
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

func TestMoreChatsThanOpenFiles(t *testing.T) {
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
}

func TestLongContentIsCut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	e := message(1)
	e.Content = strings.Repeat(`界"`, relay.MaxLine)
	add(t, s, true, e)
	add(t, s, false, e)
	info, err := os.Stat(filepath.Join(dir, file))
	must(t, err)
	if info.Size() > relay.MaxLine || info.Size() < relay.MaxLine*8/10 {
		t.Errorf("a line of %d bytes, want at most and about %d", info.Size(), relay.MaxLine)
	}
	kept, ok := strings.CutSuffix(tail(t, s, 1)[0].Content, fmt.Sprintf(relay.CutMark, len(e.Content)))
	if !ok || !strings.HasPrefix(e.Content, kept) || !utf8.ValidString(kept) {
		t.Errorf("the cut is not marked or not clean (%d bytes kept)", len(kept))
	}
	_, err = s.Append("feishu", "oc_x", Entry{Role: relay.RoleUser, Sender: strings.Repeat("x", relay.MaxLine)})
	if !errors.Is(err, relay.ErrTooLarge) {
		t.Errorf("a sender of 1 MiB: %v", err)
	}
}

// A message that a program without the lock wrote again is returned once.
func TestRepeatsAreDropped(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, file), lines(t, messages(0, 3)...)+lines(t, message(1), message(3), message(3)))
	s := open(t, dir, nil)
	for range 2 { // and once more behind another repeat
		for _, all := range [][]Entry{tail(t, s, 4), page(t, s, Query{Limit: 4}).Entries} {
			if ids(all) != "om_0 om_2 om_1 om_3" {
				t.Errorf("the end is %q", ids(all))
			}
		}
		add(t, s, false, messages(0, 4)...)
		addFile(t, filepath.Join(dir, file), lines(t, message(3)))
	}
}

func TestClose(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	add(t, s, true, message(1))
	for range 2 {
		must(t, s.Close())
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
	for i, content := range []string{"", strings.Repeat("字", 200), strings.Repeat("字", 201)} {
		e := message(i)
		e.Content = content
		_, err := s.Append("feishu", fmt.Sprint("oc_", i), e)
		must(t, err)
	}
	for _, foreign := range []string{"notes.txt", "x.jsonl", "feishu_oc_0.jsonl.bak"} {
		writeFile(t, filepath.Join(dir, foreign), "x\n")
	}
	writeFile(t, filepath.Join(dir, "my%5Fchat_oc_d.jsonl.4"), "")
	chats, err := s.Chats()
	must(t, err)
	got := make(map[string]int64)
	for _, c := range chats {
		got[c.Channel+" "+c.ChatID] = c.LastTS
		if c.ChatID == "oc_1" && c.Last.Content != strings.Repeat("字", 200) ||
			c.ChatID == "oc_2" && c.Last.Content != strings.Repeat("字", 200)+"…" {
			t.Errorf("the last message of %s is %q", c.ChatID, c.Last.Content)
		}
	}
	want := map[string]int64{"feishu oc_0": message(0).TS, "feishu oc_1": message(1).TS, "feishu oc_2": message(2).TS, "my_chat oc_d": 0}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}
