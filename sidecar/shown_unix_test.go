//go:build unix

package sidecar

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"feishu-relay/httpapi"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// A bot that sends does not wait for what watchers are shown: the depth that a
// transcript on a disk that hangs does not tell.
func TestNobodyWaitsForWhatWatchersAreShown(t *testing.T) {
	t.Parallel()
	s := shownSidecar(t, policy.Limits{MaxDepth: 3, Threshold: 1})
	server := httptest.NewServer(httpapi.New(httpapi.Options{Events: s.watch.events, Ready: s.Ready}))
	defer server.Close()
	resp, err := server.Client().Get(server.URL + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	file := filepath.Join(s.cfg.TranscriptDir, "feishu_oc_x.jsonl")
	hang := func(*relay.Message) {
		if err := unix.Mkfifo(file, 0o600); err != nil { // to open it for reading hangs
			t.Error(err)
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := s.send.accept(relay.Outbound{ChatID: "oc_x", Content: "hello"}, hang)
		answered <- err
	}()
	hung := false
	select {
	case err = <-answered:
	case <-time.After(5 * time.Minute): // only a test that fails waits for it
		hung = true
	}
	end, openErr := os.OpenFile(file, os.O_RDWR, 0) // lets go on what hangs
	if hung || err != nil || openErr != nil {
		t.Fatalf("the bot's send: hung %v, %v (%v)", hung, err, openErr)
	}
	_ = os.Remove(file)
	_ = end.Close()
	s.watch.counting.Wait()
	shown := make([]byte, 4096)
	for text := ""; !strings.Contains(text, `"content":"hello"`); {
		n, err := resp.Body.Read(shown)
		if err != nil {
			t.Fatalf("watchers are not shown it: %v", err)
		}
		text += string(shown[:n])
	}
}
