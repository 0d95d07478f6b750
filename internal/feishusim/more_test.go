package feishusim

import (
	"os"
	"testing"
)

func TestFilesAreBoundedAndRemoved(t *testing.T) {
	s := New(Options{})
	first, err := s.AddFile("0.png", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for range maxFiles {
		if _, err := s.AddFile("a.bin", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	dir := s.files.dir
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != maxFiles || s.files.find(first) != nil {
		t.Errorf("%d files, %v", len(entries), err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	if _, err := s.AddFile("a.bin", []byte("x")); err == nil {
		t.Error("a closed server takes files")
	}
}

// TestOldMessagesAreForgotten keeps memory bounded in long runs.
func TestOldMessagesAreForgotten(t *testing.T) {
	s, a, _, in := testRoom()
	defer s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	in.mode = modeTopic
	for range maxMessages + 10 {
		if _, err := s.create(draft{chat: in, sender: a.ID, msgType: "text", content: textOf("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.sent) != maxMessages || len(s.messages) != maxMessages || len(s.threads) != maxMessages {
		t.Errorf("%d messages, %d by id, %d topics", len(s.sent), len(s.messages), len(s.threads))
	}
	if n := len(s.apps[s.order[1]].pending); n > maxPending {
		t.Errorf("%d events wait", n)
	}
}
