package sidecar_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/sidecar"
)

// A sidecar watches its queues, mailbox and groups file with one of the few inotify
// instances that a user has.
func TestOneInotifyInstance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newCluster(t, setup{bots: 2, change: func(i int, cfg *sidecar.Config) {
		cfg.GroupsFile = filepath.Join(dir, "groups.json")
		cfg.DedupSize = 5000
		cfg.Mailbox = sidecar.MailboxConfig{On: true, Dir: filepath.Join(dir, "mailboxes"), MaxTasks: 3,
			Heartbeat: time.Second, HeartbeatTimeout: 5 * time.Second, AckTimeout: 5 * time.Second,
			RetryBase: 100 * time.Millisecond, MaxRetries: 3, MaxExchanges: 10}
	}})
	c.talk(limited(t), 3, "oc_1")
	for _, b := range c.bots {
		var watchers []string
		fds := fmt.Sprintf("/proc/%d/fd", b.side.pid())
		entries, err := os.ReadDir(fds)
		must(t, err)
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && strings.Contains(target, "inotify") {
				watchers = append(watchers, e.Name())
			}
		}
		if len(watchers) != 1 {
			t.Errorf("%s has %d inotify instances, want 1", b.name, len(watchers))
		}
	}
}
