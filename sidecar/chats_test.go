package sidecar

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// openedChats opens the state of chats below dir; the returned function closes it.
func openedChats(t *testing.T, dir string) (*chats, func()) {
	t.Helper()
	b := newBase(Config{RelayDir: dir, TranscriptDir: filepath.Join(dir, "transcripts"), Agent: "agent_a",
		MembershipCheck: "on", BaseURL: &url.URL{}}, Options{})
	if err := b.openFolders(); err != nil {
		t.Fatal(err)
	}
	c, err := openChats(b)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}
}

// A person's line of a program that gives no ids counts for the time at which a person
// spoke last.
func TestLastUserOfALineWithoutAnID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, closeChats := openedChats(t, dir)
	defer closeChats()
	add := func(e transcript.Entry) {
		if _, err := c.transcript.Append("feishu", "oc_1", e); err != nil {
			t.Fatal(err)
		}
	}
	add(transcript.Entry{Role: relay.RoleUser, Content: "x", Sender: "Ann", MessageID: "u1", TS: 1000})
	add(transcript.Entry{Role: relay.RoleAssistant, Content: "x", Sender: "b", MessageID: "b1", TS: 2000, UserTS: 1000})
	f, err := os.OpenFile(filepath.Join(dir, "transcripts", "feishu_oc_1.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"role":"user","content":"y","sender":"Ann","ts":3000}` + "\n"); err != nil {
		t.Fatal(err)
	}
	add(transcript.Entry{Role: relay.RoleAssistant, Content: "x", Sender: "b", MessageID: "b2", TS: 4000})
	if got, err := c.lastUser("feishu", "oc_1", "", 5000); got != 3000 || err != nil {
		t.Errorf("a person spoke at %d, %v, want 3000", got, err)
	}
}
