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
func onFullDisk(dir, chat string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(dir, nil)
	if err != nil {
		return err
	}
	big := Entry{Role: relay.RoleUser, Content: strings.Repeat("x", 10_000), MessageID: "om_big", TS: 1}
	small := Entry{Role: relay.RoleUser, Content: "small", MessageID: "om_small", TS: 2}
	if _, err := s.Append("feishu", chat, Entry{Role: relay.RoleUser, MessageID: "om_first", TS: 1}); err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	unlimited := limit
	limit.Cur = 5_000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	for range 3 {
		added, err := s.Append("feishu", chat, big)
		if added || err == nil || !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("append on a full disk: %t, %w", added, err)
		}
	}
	if _, err := s.Tail("feishu", chat, 10); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		return err
	}
	for _, e := range []Entry{small, big, small} {
		if _, err := s.Append("feishu", chat, e); err != nil {
			return fmt.Errorf("with room again: %w", err)
		}
	}
	entries, err := s.Tail("feishu", chat, 10)
	if err != nil {
		return err
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.MessageID)
	}
	fmt.Println(filepath.Base(dir), strings.Join(ids, " "), s.Skipped() > 0)
	return s.Close()
}
