package sidecar_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// smallDisk makes dir a file system of 16 MiB of its own, and skips the test
// where that is not allowed.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("no file system can be mounted here (%v); TestFaultFileSize tests the same with less", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// fill leaves no room in dir, and returns how to make it again.
func fill(t *testing.T, dir string) (empty func()) {
	t.Helper()
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return func() { must(t, os.Remove(ballast)) }
}

// long is a message that fits into no room which a full disk may still have: the
// rest of a file's last page, or a page that was given back since.
func (b *bot) long(chat string) (relay.MessageID, string) {
	id, content := b.message(chat)
	return id, strings.TrimSuffix(content, ".") + strings.Repeat("and so on ", 4<<10) + "."
}

// refused says a message to a sidecar that cannot keep it, wants a clear answer,
// and leaves it to be said again.
func (b *bot) refused(t *testing.T, chat string) func() {
	t.Helper()
	ctx := limited(t)
	id, content := b.long(chat)
	body := map[string]any{"chat_id": chat, "content": content, "message_id": id}
	status, code, err := b.post(ctx, "/v1/outbound", body)
	must(t, err)
	if status != http.StatusServiceUnavailable || code != "outbox_unavailable" {
		t.Errorf("got %d %s, want %d outbox_unavailable", status, code, http.StatusServiceUnavailable)
	}
	if st, err := b.status(ctx); err != nil || len(st.Errors) == 0 {
		t.Errorf("the status shows no error (%v)", err)
	}
	return func() { must(t, b.sayThis(ctx, chat, id, content, nil)) }
}

// The disk of the relay folder is full: a send is refused with a clear answer,
// nothing that was accepted is lost, and it works again when there is room.
func TestFaultFullDisk(t *testing.T) {
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			disk := filepath.Join(dir, "disk")
			smallDisk(t, disk)
			c := newCluster(t, onBackend(t, backend, setup{bots: 2, separate: true, change: func(i int, cfg *sidecar.Config) {
				if i == 0 || backend == "file" {
					cfg.RelayDir = disk
				}
			}}))
			c.torn = 2 * rounds
			ctx := limited(t)
			for range rounds {
				for _, b := range c.bots {
					_, err := b.say(ctx, "oc_1")
					must(t, err)
				}
				empty := fill(t, disk)
				again := c.bots[0].refused(t, "oc_1")
				empty()
				again()
			}
			c.verify(ctx)
		})
	}
}

// rounds is how often a disk is filled.
const rounds = 5

// The disk of the transcripts is full: the bot's message goes out all the same,
// the others' wait, and in the end the transcript is complete.
func TestFaultFullTranscripts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk := filepath.Join(dir, "disk")
	smallDisk(t, disk)
	c := newCluster(t, setup{bots: 2, separate: true, change: func(i int, cfg *sidecar.Config) {
		if i == 0 {
			cfg.TranscriptDir = disk
		}
	}})
	c.folders[0] = disk
	c.torn = 10
	ctx := limited(t)
	c.talk(ctx, 1, "oc_1")
	empty := fill(t, disk)
	own, content := c.bots[0].long("oc_1")
	must(t, c.bots[0].sayThis(ctx, "oc_1", own, content, nil))
	must(t, c.h.await(ctx, func() bool { return c.h.times["agent_b"][own] == 1 }))
	other, content := c.bots[1].long("oc_1")
	must(t, c.bots[1].sayThis(ctx, "oc_1", other, content, nil))
	heard := map[string]any{"chat_id": "oc_1", "content": content, "sender": "u", "message_id": "om_u"}
	if status, code, err := c.bots[0].post(ctx, "/v1/inbound", heard); err != nil || status != http.StatusAccepted {
		t.Errorf("a user's message is answered with %d %s (%v), want %d", status, code, err, http.StatusAccepted)
	}
	if c.h.received("agent_a", other) != 0 {
		t.Error("a message was delivered before it stood in the transcript")
	}
	empty()
	c.h.reported("om_u", "u", "oc_1", content)
	c.talk(ctx, 1, "oc_1")
	c.verify(ctx)
}
