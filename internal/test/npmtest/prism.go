package npmtest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/internal/loopback"
)

// Prism runs Prism until the test ends, and returns its address. It forwards calls to the URL upstream. In place of an
// answer that is not as docs/openapi.yaml says it answers application/problem+json, and so it does in place of a call
// that is not, which it does not forward, unless options has "--validate-request=false". Streams, WebSockets and
// redirects do not pass through it. root is the path of the repository.
func Prism(t *testing.T, root, upstream string, options ...string) (addr string) {
	t.Helper()
	dir := Installed(t, filepath.Join(root, "internal", "npmtest", "testdata", "prism", "package.json"), "@stoplight/prism-cli")
	document, err := filepath.Abs(filepath.Join(root, "docs", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	addr, err = loopback.Addr()
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(Node(dir), append([]string{"node_modules/@stoplight/prism-cli/dist/index.js", "proxy", document, upstream,
		"--errors", "--verboseLevel", "fatal", "--host", host, "--port", port}, options...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only when it has ended
		<-ended
	})
	late := time.After(prismWait)
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return addr
		}
		select {
		case <-ended:
			t.Fatalf("Prism ended: %s", &log)
		case <-late:
			t.Fatalf("Prism does not listen after %s", prismWait)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// prismWait is how long Prism may take to start. Only a test that fails waits so long.
const prismWait = 5 * time.Minute
