package filerelay_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

func TestConformance(t *testing.T) {
	for name, opt := range map[string]filerelay.Options{
		"woken":       {},
		"polled":      {NoNotify: true, Recheck: time.Millisecond},
		"rotated":     {RotateSize: 4000, Recheck: 10 * time.Millisecond},
		"half polled": {RotateSize: 6000, NoNotify: true, Recheck: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			relaytest.Run(t, relaytest.Features{}, func(t *testing.T, agent string) relay.Backend {
				opt := opt
				opt.Dir, opt.Queue, opt.Agent = filepath.Join(dir, safefile.Name(t.Name())), "outbound", agent
				opt.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
				q, err := filerelay.New(opt)
				if err != nil {
					t.Fatal(err)
				}
				return q
			})
		})
	}
}
