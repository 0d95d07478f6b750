package filebox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

// Mail of other makes (docs/protocol.md 6.4): any name counts, the oldest comes first,
// whatever unit its time is in.
func TestForeignNames(t *testing.T) {
	dir := t.TempDir()
	want := []string{
		"letter.msg.json",                         // no time: first
		"1745659200_a.msg.json",                   // seconds
		"1745659200001_a.msg.json",                // milliseconds, no suffix
		"1745659200001_a_b.msg.json",              // an underscore is no suffix
		"1745659200002_a_000007abcdefgh.msg.json", // two of ours in one millisecond
		"1745659200002_Z_000008abcdefgh.msg.json", //
		"1745659200003999_a.msg.json",             // microseconds
		"1745659201_a.msg.json",                   // the next second
		"1745659201000_a_999999abcdefgh.msg.json", //
		`1745659202_a\b "x".msg.json`,             // odd, and a name
		"1745659203_" + strings.Repeat("x", 200) + ".msg.json",
	}
	for i := range want {
		lay(t, filepath.Join(dir, "b", "inbox", want[len(want)-1-i]), mail(t, len(want)-1-i))
	}
	for _, name := range []string{"1_a.msg.json.tmp", "2_a.json", "3_a.msg.json~", ".tmp", "readme"} {
		lay(t, filepath.Join(dir, "b", "inbox", name), mail(t, 99))
	}
	s := open(t, dir)
	items := receive(t, s, "b")
	wantKeys(t, items, want...)
	nothing(t, items)
	for i, key := range want {
		item, err := s.Read(t.Context(), "b", key)
		if err != nil || !bytes.Equal(item.Raw, mail(t, i)) {
			t.Errorf("read %s: %.60q, %v", key, item.Raw, err)
		}
		must(t, s.Settle(t.Context(), "b", key, mailbox.Taken))
		if _, err := os.Stat(filepath.Join(dir, "b", "processed", key)); err != nil {
			t.Errorf("settled: %v", err)
		}
	}
}

// What we write is what docs/protocol.md 6.4 describes.
func TestOurNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	before := time.Now().UnixMilli()
	key, err := s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("re_searcher", "b", 1)))
	must(t, err)
	var ms int64
	var rest string
	if _, err := fmt.Sscanf(key, "%d_%s", &ms, &rest); err != nil || ms < before || ms > time.Now().UnixMilli()+1 {
		t.Errorf("%s does not begin with the time in milliseconds", key)
	}
	if !strings.HasPrefix(rest, "re_searcher_") || !strings.HasSuffix(rest, ".msg.json") {
		t.Errorf("%s is not <ms>_<from>_<suffix>.msg.json", key)
	}
	if got := list(t, filepath.Join(dir, "b", "inbox"), ""); len(got) != 1 || got[0] != key {
		t.Errorf("the inbox holds %q, want %s alone", got, key)
	}
}

// A program that writes in place is waited for; what stays no JSON is shown as
// it is, so that somebody sets it aside.
func TestHalfWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b", "inbox", "1_a.msg.json")
	whole := mail(t, 1)
	lay(t, path, nil)
	s := open(t, dir)
	items := receive(t, s, "b")
	nothing(t, items)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	for part := range bytes.SplitSeq(whole[:len(whole)-1], []byte(",")) {
		_, err := f.Write(append(part, ','))
		must(t, err)
	}
	nothing(t, items)
	must(t, os.WriteFile(path, whole, 0o600))
	if item := next(t, items); !bytes.Equal(item.Raw, whole) {
		t.Errorf("got %q", item.Raw)
	}
	old := time.Now().Add(-2 * filebox.Unfinished)
	for name, data := range map[string]string{"2_a.msg.json": `{"id":"x",`, "3_a.msg.json": "",
		"4_a.msg.json": "hello\x00"} {
		path := filepath.Join(dir, "b", "inbox", name)
		lay(t, path+".aside", []byte(data))
		must(t, os.Chtimes(path+".aside", old, old))
		must(t, os.Rename(path+".aside", path))
		item := next(t, items)
		if item.Key != name || string(item.Raw) != data {
			t.Errorf("got %s %q, want %s %q", item.Key, item.Raw, name, data)
		}
		must(t, s.Settle(t.Context(), "b", item.Key, mailbox.Malformed))
		kept, err := os.ReadFile(filepath.Join(dir, "b", "malformed", name))
		if err != nil || string(kept) != data {
			t.Errorf("kept %q, %v", kept, err)
		}
	}
}

// What cannot be a message is set aside and harms nothing.
func TestNoMessages(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	in := filepath.Join(dir, "b", "inbox")
	secret := filepath.Join(outside, "secret")
	lay(t, secret, []byte(`{"id":"secret"}`))
	lay(t, filepath.Join(in, "5_a.msg.json"), mail(t, 5))
	must(t, os.Symlink(secret, filepath.Join(in, "1_a.msg.json")))
	must(t, os.Symlink("5_a.msg.json", filepath.Join(in, "2_a.msg.json")))
	must(t, os.Symlink("nowhere", filepath.Join(in, "3_a.msg.json")))
	lay(t, filepath.Join(in, "4_a.msg.json", "inside"), []byte("x"))
	huge, err := os.Create(filepath.Join(in, "6_a.msg.json"))
	must(t, err)
	must(t, huge.Truncate(1<<40))
	must(t, huge.Close())
	lay(t, filepath.Join(in, "7_a.msg.json"), bytes.Repeat([]byte(" "), mailbox.MaxEnvelope+1))

	s := open(t, dir)
	if item, err := s.Read(t.Context(), "b", "1_a.msg.json"); err == nil {
		t.Errorf("a link was read: %q", item.Raw)
	}
	items := receive(t, s, "b")
	wantKeys(t, items, "5_a.msg.json")
	nothing(t, items)
	if got := list(t, filepath.Join(dir, "b", "malformed"), ""); len(got) != 6 {
		t.Errorf("set aside %q, want six", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "b", "malformed", "4_a.msg.json", "inside")); err != nil ||
		string(got) != "x" {
		t.Errorf("what lay in the folder: %q, %v", got, err)
	}
	if got := list(t, in, ""); len(got) != 1 {
		t.Errorf("in the inbox: %q", got)
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != `{"id":"secret"}` {
		t.Errorf("the link's target: %q, %v", got, err)
	}
}

// An agent's folder that is a link leads nowhere outside.
func TestLinkedFolder(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.MkdirAll(filepath.Join(outside, "inbox"), 0o700))
	must(t, os.Symlink(outside, filepath.Join(dir, "b")))
	s := open(t, dir)
	if key, err := s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "b", 1))); err == nil {
		t.Errorf("put as %s outside of the mailbox", key)
	}
	if err := s.Receive(t.Context(), "b", func(mailbox.Item) {}, nil); err == nil {
		t.Error("received from outside of the mailbox")
	}
}

// A name that another program uses again, as those that count seconds do, is new mail.
func TestNameUsedAgain(t *testing.T) {
	for name, deaf := range map[string]bool{"noticed": false, "by the clock": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			if deaf {
				filebox.WithoutNotices(s)
			}
			items := receive(t, s, "b")
			path := filepath.Join(dir, "b", "inbox", "1745659200_a.msg.json")
			for i := range 5 {
				lay(t, path+".tmp", mail(t, i))
				must(t, os.Rename(path+".tmp", path))
				if item := next(t, items); !bytes.Equal(item.Raw, mail(t, i)) {
					t.Fatalf("got %q, want message %d", item.Raw, i)
				}
				if i%2 == 0 {
					must(t, s.Settle(t.Context(), "b", filepath.Base(path), mailbox.Taken))
				}
			}
			nothing(t, items)
			if got := list(t, filepath.Join(dir, "b", "processed"), ".msg.json"); len(got) != 3 {
				t.Errorf("processed holds %q, want all three that were taken under one name", got)
			}
		})
	}
}

// A folder that is listed while messages come may show the later of two and not
// the earlier: the order holds all the same.
func TestOrderWhileListing(t *testing.T) {
	const n = 1200
	dir := t.TempDir()
	s := unclosed(t, dir, 100*time.Microsecond)
	t.Cleanup(func() { must(t, s.Close()) })
	filebox.WithoutNotices(s)
	items := receive(t, s, "b")
	sent := make(chan []string, 1)
	go func() {
		var keys []string
		for i := range n {
			key, err := s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "b", i)))
			if err != nil {
				t.Error(err)
				break
			}
			keys = append(keys, key)
		}
		sent <- keys
	}()
	var got []string
	for range n {
		got = append(got, next(t, items).Key)
	}
	if want := <-sent; !slices.Equal(got, want) {
		t.Error("the order is not that of putting")
	}
}

// Folders that are removed under us are made again.
func TestRemovedFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mailboxes")
	s := open(t, dir)
	must(t, s.SetCard(t.Context(), mailboxtest.Card("b", 1)))
	items := receive(t, s, "b")
	key, err := s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "b", 0)))
	must(t, err)
	wantKeys(t, items, key)
	paths := []string{"b/inbox", "b", ".", "b/inbox", "."}
	for i := range 10 * len(paths) {
		gone := filepath.Join(t.TempDir(), "gone")
		must(t, os.Rename(filepath.Join(dir, paths[i%len(paths)]), gone))
		// What the store had begun to write when the folder was renamed, it still
		// writes there.
		relaytest.Eventually(t, "the folder is removed", func() bool { return os.RemoveAll(gone) == nil })
		key, err := s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "b", i)))
		must(t, err)
		wantKeys(t, items, key)
		must(t, s.Settle(t.Context(), "b", key, mailbox.Taken))
	}
	must(t, os.Rename(dir, dir+".moved"))
	key, err = open(t, dir).Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "b", 9)))
	must(t, err)
	wantKeys(t, items, key)
}

// Taken mail does not pile up, and the same name twice is kept twice.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	now := time.Now()
	done, bad, in := filepath.Join(dir, "b", "processed"), filepath.Join(dir, "b", "malformed"),
		filepath.Join(dir, "b", "inbox")
	one := filepath.Join(dir, "one") // links to it are made faster than files
	lay(t, one, nil)
	must(t, os.MkdirAll(done, 0o700))
	must(t, os.MkdirAll(bad, 0o700))
	for i := range filebox.MaxProcessed + 20 {
		must(t, os.Link(one, filepath.Join(done, fmt.Sprintf("%d_a.msg.json", 1745659200000+i))))
	}
	for i := range filebox.MaxMalformed + 5 {
		must(t, os.Link(one, filepath.Join(bad, fmt.Sprintf("%d_a.msg.json", 1745659200000+i))))
	}
	lay(t, filepath.Join(done, "1_notes.txt"), nil)
	lay(t, filepath.Join(bad, "0_a.msg.json", "inside"), nil)
	old := now.Add(-filebox.MaxAge - time.Hour)
	for i := 20; i < 25; i++ {
		path := filepath.Join(done, fmt.Sprintf("%d_a.msg.json", 1745659200000+i))
		must(t, os.Remove(path))
		lay(t, path, nil)
		must(t, os.Chtimes(path, old, old))
	}
	for name, at := range map[string]time.Time{"1_a.msg.json.tmp": now.Add(-filebox.DeadTemp - time.Hour),
		"2_a.msg.json.tmp": now, "1_a.msg.json": old, "x.tmp": old} {
		lay(t, filepath.Join(in, name), nil)
		must(t, os.Chtimes(filepath.Join(in, name), at, at))
	}
	filebox.Prune(s, "b")
	if got := list(t, done, ".msg.json"); len(got) != filebox.MaxProcessed-5 || got[0] != "1745659200025_a.msg.json" {
		t.Errorf("processed holds %d from %s on", len(got), got[0])
	}
	if got := list(t, bad, "_a.msg.json"); len(got) != filebox.MaxMalformed+1 || got[0] != "0_a.msg.json" ||
		got[1] != "1745659200005_a.msg.json" {
		t.Errorf("malformed holds %d from %s on", len(got), got[:2])
	}
	if got := fmt.Sprint(list(t, in, "")); got != "[1_a.msg.json 2_a.msg.json.tmp x.tmp]" {
		t.Errorf("the inbox holds %s", got)
	}
	if len(list(t, done, "notes.txt")) != 1 {
		t.Error("somebody's notes are gone")
	}
	// What waited longer than mail is kept is young when it was taken.
	must(t, s.Settle(t.Context(), "b", "1_a.msg.json", mailbox.Taken))
	filebox.Prune(s, "b")
	if got, err := s.Where(t.Context(), "b", "1_a.msg.json"); err != nil || got != mailbox.Processed {
		t.Errorf("what was taken now is at place %d, %v", got, err)
	}
}

// An inbox is full at mailbox.MaxInbox messages, whoever laid them there.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "b", "inbox")
	one := filepath.Join(in, "1_a.msg.json")
	lay(t, one, mail(t, 1))
	lay(t, filepath.Join(in, "readme"), nil) // is no message
	for i := 2; i < mailbox.MaxInbox-1; i++ {
		must(t, os.Link(one, filepath.Join(in, fmt.Sprintf("%d_a.msg.json", i)))) // made faster than files
	}
	s := open(t, dir)
	put := func() (string, error) {
		return s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "b", 0)))
	}
	var keys []string
	for range 2 {
		key, err := put()
		must(t, err)
		keys = append(keys, key)
	}
	for range 2 {
		if _, err := put(); !errors.Is(err, mailbox.ErrFull) {
			t.Fatalf("with %d messages: %v, want ErrFull", len(list(t, in, ".msg.json")), err)
		}
	}
	_, err := s.Again(t.Context(), keys[0], mailboxtest.Sealed(mailboxtest.Envelope("a", "b", 0)))
	must(t, err) // needs no room
	must(t, open(t, dir).Settle(t.Context(), "b", keys[1], mailbox.Taken))
	_, err = put()
	must(t, err)
	if _, err := put(); !errors.Is(err, mailbox.ErrFull) {
		t.Errorf("full again: %v, want ErrFull", err)
	}
}

// Faults of the file system come through as what they are.
func TestFaults(t *testing.T) {
	dir := t.TempDir()
	lay(t, filepath.Join(dir, "file"), nil)
	if _, err := filebox.Open(filepath.Join(dir, "file"), nil); err == nil {
		t.Error("opened a file as a mailbox")
	}
	s := open(t, filepath.Join(dir, "box"))
	lay(t, filepath.Join(dir, "box", "b"), nil)
	lay(t, filepath.Join(dir, "box", "c", "inbox"), nil)
	for _, to := range []mailbox.AgentID{"b", "c"} {
		if _, err := s.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", to, 1))); err == nil ||
			errors.Is(err, mailbox.ErrFull) || !strings.Contains(err.Error(), "inbox of "+string(to)) {
			t.Errorf("put where a file is in the way: %v", err)
		}
		if err := s.Receive(t.Context(), to, func(mailbox.Item) {}, nil); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("receive where a file is in the way: %v", err)
		}
	}
	closed := unclosed(t, filepath.Join(dir, "box"), time.Minute)
	must(t, closed.Close())
	if _, err := closed.Put(t.Context(), mailboxtest.Sealed(mailboxtest.Envelope("a", "d", 1))); err == nil {
		t.Error("put after Close")
	}
}
