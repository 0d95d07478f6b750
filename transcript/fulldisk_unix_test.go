//go:build unix

package transcript

import (
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"feishu-relay/relay"
)

// onFullDisk runs in a process of its own, since it limits the size of all the
// files it writes: beyond it, a write is cut short and then refused, as on a
// full disk.
func onFullDisk(s *Store, dir, chat string) {
	signal.Ignore(syscall.SIGXFSZ)
	entry := func(id, content string) Entry {
		return Entry{Role: relay.RoleUser, Content: content, MessageID: id, TS: 1}
	}
	big, small := entry("om_big", strings.Repeat("x", 10_000)), entry("om_small", "small")
	_, err := s.Append("feishu", chat, entry("om_first", ""))
	check(err)
	var limit syscall.Rlimit
	check(syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	unlimited := limit
	limit.Cur = 5_000
	check(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	for range 3 {
		if added, err := s.Append("feishu", chat, big); added || !errors.Is(err, syscall.EFBIG) {
			check(fmt.Errorf("append on a full disk: %t, %w", added, err))
		}
	}
	_, err = s.Tail("feishu", chat, 10)
	check(err)
	check(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited))
	for _, e := range []Entry{small, big, small} {
		_, err := s.Append("feishu", chat, e)
		check(err)
	}
	entries, err := s.Tail("feishu", chat, 10)
	check(err)
	fmt.Println(filepath.Base(dir), ids(entries), s.Skipped() > 0)
}
