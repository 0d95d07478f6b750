//go:build unix

package transcript

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/relay"
)

// onFullDisk finds the disk full, and then not.
func onFullDisk(args []string) error {
	dir, chat := args[0], args[1]
	s, err := opened(dir, 1<<30)
	if err != nil {
		return err
	}
	entry := func(id, content string) Entry {
		return Entry{Role: relay.RoleUser, Content: content, MessageID: id, TS: 1}
	}
	big, small := entry("om_big", strings.Repeat("x", 10_000)), entry("om_small", "small")
	_, err = s.Append("feishu", chat, entry("om_first", ""))
	if err = errors.Join(err, childtest.LimitFiles(5_000)); err != nil {
		return err
	}
	for range 3 {
		if added, err := s.Append("feishu", chat, big); added || !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("append on a full disk: %t, %w", added, err)
		}
	}
	_, err = s.Tail("feishu", chat, 10)
	err = errors.Join(err, childtest.LimitFiles(0))
	for _, e := range []Entry{small, big, small} {
		_, appended := s.Append("feishu", chat, e)
		err = errors.Join(err, appended)
	}
	entries, read := s.Tail("feishu", chat, 10)
	fmt.Println(filepath.Base(dir), ids(entries), s.Skipped() > 0)
	return errors.Join(err, read)
}
