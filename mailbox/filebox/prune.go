package filebox

import (
	"os"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

const (
	// maxProcessed and maxAge bound what was taken: what is older, and the
	// oldest beyond the number, is removed.
	maxProcessed = 10_000
	maxAge       = 30 * 24 * time.Hour
	// maxMalformed bounds the malformed messages; the oldest beyond it are removed.
	maxMalformed = 1000
	// pruneEvery is how many messages are taken, by one process, between two looks
	// at these bounds; pruneAfter is how much time passes at most.
	pruneEvery = 1000
	pruneAfter = time.Hour
	// deadTemp is when the temporary file of a killed writer is removed.
	deadTemp = 24 * time.Hour
)

// prune keeps an agent's folders within their bounds. What it cannot remove it
// leaves for the next time.
func (s *Store) prune(agent mailbox.AgentID) {
	root, err := s.agent(agent)
	if err != nil {
		return
	}
	defer root.Close()
	pruneFolder(root, processed, maxProcessed, maxAge)
	if n := pruneFolder(root, malformed, maxMalformed, 0); n > 0 {
		s.log.Warn("removed the oldest malformed messages", "count", n, "kept", maxMalformed)
	}
	if box, err := root.OpenRoot(inbox); err == nil {
		removeOld(box, func(name string) bool { return strings.HasSuffix(name, temp) && strings.Contains(name, suffix) })
		_ = box.Close()
	}
}

// pruneFolder removes the oldest messages beyond the number most, and from the
// oldest on those that are older than life (0: any age).
func pruneFolder(agent *os.Root, folder string, most int, life time.Duration) (removed int) {
	root, err := agent.OpenRoot(folder)
	if err != nil {
		return 0
	}
	defer root.Close()
	list, _ := mail(root)
	for i, name := range list {
		info, err := root.Lstat(name)
		if i >= len(list)-most && (life == 0 || err != nil || time.Since(info.ModTime()) < life) {
			break
		}
		if err == nil && !info.IsDir() && root.Remove(name) == nil {
			removed++
		}
	}
	return removed
}

// removeOld removes the temporary files of writers that were killed.
func removeOld(root *os.Root, is func(name string) bool) {
	list, _ := safefile.Names(root)
	for _, name := range list {
		if !is(name) {
			continue
		}
		if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > deadTemp {
			_ = root.Remove(name)
		}
	}
}
