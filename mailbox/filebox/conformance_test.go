package filebox_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
)

func TestConformance(t *testing.T) {
	t.Run("by notices alone", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		mailboxtest.Run(t, func(t *testing.T) mailbox.Store {
			if raceDetector && strings.Contains(t.Name(), "full") {
				t.Skip("10,000 messages take long; TestFull does the same with fewer")
			}
			return unclosed(t, filepath.Join(dir, safefile.Name(t.Name())), time.Hour)
		})
	})
	t.Run("by the clock alone", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		mailboxtest.Run(t, func(t *testing.T) mailbox.Store {
			if name := t.Name(); strings.Contains(name, "full") || strings.Contains(name, "eight") {
				t.Skip("long, and the same as by notices")
			}
			s := unclosed(t, filepath.Join(dir, safefile.Name(t.Name())), 5*time.Millisecond)
			filebox.WithoutNotices(s)
			return s
		})
	})
}
