package filebox_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/filebox"
	"feishu-relay/mailbox/mailboxtest"
)

func TestConformance(t *testing.T) {
	for name, recheck := range map[string]time.Duration{"woken": time.Hour, "rechecked": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			mailboxtest.Run(t, func(t *testing.T) mailbox.Store {
				s, err := filebox.Open(filepath.Join(dir, safefile.Name(t.Name())), &filebox.Options{
					Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
					Recheck: recheck,
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}
