//go:build unix

package sidecar_test

import (
	"os"
	"path/filepath"
	"testing"

	"feishu-relay/sidecar"
)

// A link in the place of one of a sidecar's folders leads nowhere: it is refused,
// and nothing is written through it.
func TestLinkedFoldersAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"offsets", "agents", "agents/agent_a", "side", "processed", "gateway", "gateway/agent_a"} {
		for _, target := range []string{t.TempDir(), "../elsewhere"} {
			t.Run(name+" to "+filepath.Base(target), func(t *testing.T) {
				dir := t.TempDir()
				link := filepath.Join(dir, "relay", name)
				must(t, os.MkdirAll(filepath.Dir(link), 0o700))
				must(t, os.Symlink(target, link))
				if !filepath.IsAbs(target) {
					target = filepath.Join(filepath.Dir(link), target)
					must(t, os.MkdirAll(target, 0o700))
				}
				s, err := sidecar.New(sidecar.Config{Agent: "agent_a", ListenAddr: "127.0.0.1:0", Backend: "file", RelayDir: filepath.Join(dir, "relay"),
					TranscriptDir: filepath.Join(dir, "transcripts"), Gateway: sidecar.GatewayConfig{Addr: "127.0.0.1:0"}}, sidecar.Options{})
				if err == nil {
					t.Errorf("the sidecar starts: %v", s.Addr())
				}
				entries, err := os.ReadDir(target)
				must(t, err)
				if len(entries) != 0 {
					t.Errorf("written through the link: %v", entries)
				}
			})
		}
	}
}
