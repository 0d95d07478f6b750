package entry_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"feishu-relay/feishu/entry"
	"feishu-relay/internal/test/programtest"
	"feishu-relay/internal/test/verify"
)

// TestNodeSDKOverTLS of package sidecar is that of Node.
const pythonScript = `
import os, ssl, urllib.request
port = os.environ['PORT']
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13
https = urllib.request.HTTPSHandler(context=context)
def ask(what, url, proxies):
    opener = urllib.request.build_opener(https, urllib.request.ProxyHandler(proxies))
    print(what, opener.open(url, data=b'{}', timeout=30).read().decode())
ask('name', f'https://localhost:{port}//a', {})
ask('ip', f'https://127.0.0.1:{port}//a', {})
ask('connect', 'https://open.feishu.cn//a', {'https': f'http://127.0.0.1:{port}'})
ask('absolute', 'http://open.feishu.cn//a', {'http': f'http://127.0.0.1:{port}'})
`

// Python verifies certificates more strictly than others.
func TestPython(t *testing.T) {
	verify.Only(t)
	dir := t.TempDir()
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: dir, Names: []string{"gateway.example", "10.0.0.1"}})
	cmd := exec.CommandContext(t.Context(), programtest.Find(t, "python3"), "-")
	cmd.Stdin = strings.NewReader(pythonScript)
	cmd.Env = append(os.Environ(), "PORT="+r.port(), "HTTPS_PROXY=", "HTTP_PROXY=", "https_proxy=", "http_proxy=",
		"SSL_CERT_FILE="+filepath.Join(dir, "ca.pem"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, line := range []string{
		"name POST //a|host=localhost:" + r.port() + "|",
		"ip POST //a|host=127.0.0.1:" + r.port() + "|",
		"connect POST //a|host=open.feishu.cn|url=//a|reached=http://" + r.addr + "|",
		"absolute POST //a|host=open.feishu.cn|url=//a|reached=http://" + r.addr + "|",
	} {
		if !strings.Contains(string(out), line) {
			t.Errorf("got:\n%swant in it: %s", out, line)
		}
	}
}
