//go:build unix

package sidecar_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// peakMemory is the most memory that the process had so far, as the kernel counts it.
func peakMemory(t *testing.T, p *process) string {
	t.Helper()
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid())) // on Linux only
	_, rest, _ := strings.Cut(string(data), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// A transcript that is no regular file is an error of that chat alone.
func TestASendInAChatWhoseTranscriptIsAFIFOIsAnswered(t *testing.T) {
	t.Parallel()
	ctx := limited(t)
	c := newCluster(t, setup{bots: 2})
	a, b := c.bots[0], c.bots[1]
	for _, chat := range []string{"oc_fifo", "oc_other"} {
		if chat == "oc_fifo" {
			must(t, syscall.Mkfifo(filepath.Join(c.folders[0], "feishu_"+chat+".jsonl"), 0o600))
		}
		a.says(ctx, t, chat, relay.MessageID("om_"+chat), "hello", nil)
	}
	eventually(ctx, t, "the other chat goes on", func() bool { return b.metric(ctx, t, "feishu_relay_delivered_total") == 1 })
	eventually(ctx, t, "the fault is shown", func() bool {
		st, err := a.status(ctx)
		return err == nil && strings.Contains(fmt.Sprint(st.Errors), "regular file")
	})
}

// A sidecar bounds its connections: others wait, and those that are there go on.
func TestConnectionsToTheLocalAPIAreBounded(t *testing.T) {
	t.Parallel()
	const many = 1200
	ctx := limited(t)
	c := newCluster(t, setup{bots: 1})
	b := c.bots[0]
	url, err := b.side.url(ctx)
	must(t, err)
	watching, err := http.Get(url + "/v1/events")
	must(t, err)
	defer watching.Body.Close()
	var strangers []net.Conn
	for range many {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		must(t, err)
		defer conn.Close()
		strangers = append(strangers, conn)
	}
	if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.side.pid())); err == nil && len(open) > 700 { // on Linux only
		t.Errorf("the sidecar holds %d files open", len(open))
	}
	t.Logf("peak memory %s", peakMemory(t, b.side))
	for _, conn := range strangers {
		_ = conn.Close()
	}
	if status, code, err := b.post(ctx, "/v1/outbound", map[string]any{"chat_id": "oc_x", "content": "hello"}); status != http.StatusAccepted && status != http.StatusOK {
		t.Errorf("the bot's own call: got %d %s %v", status, code, err)
	}
	if st, err := b.status(ctx); err != nil || st.Door.Connected == nil || !*st.Door.Connected {
		t.Errorf("the bot's stream was closed: %v", err)
	}
	if _, err := watching.Body.Read(make([]byte, 1)); err != nil {
		t.Errorf("a viewer's event stream was closed: %v", err)
	}
}

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
