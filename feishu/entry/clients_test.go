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

// The bots' languages, each with its own way to be given a CA.

const nodeScript = `
const https = require('https'), tls = require('tls'), net = require('net');
const port = +process.env.PORT;
const ask = options => new Promise((resolve, reject) => {
	const r = https.request({port, method: 'POST', path: '//a', agent: false, ...options}, res => {
		let body = '';
		res.on('data', d => body += d).on('end', () => resolve(body));
	});
	r.on('error', reject);
	r.end('{}');
});
const tunnel = host => new Promise((resolve, reject) => {
	const s = net.connect(port, '127.0.0.1', () => s.write('CONNECT ' + host + ':443 HTTP/1.1\r\nHost: ' + host + '\r\n\r\n'));
	s.on('error', reject).once('data', () => {
		const inner = tls.connect({socket: s, servername: host}, () => resolve(inner)).on('error', reject);
	});
});
(async () => {
	console.log('name', await ask({host: 'localhost'}));
	console.log('ip', await ask({host: '127.0.0.1'}));
	console.log('alias', await ask({host: '127.0.0.1', servername: 'open.feishu.cn', headers: {host: 'open.feishu.cn'}}));
	const socket = await tunnel('open.larksuite.com');
	console.log('connect', await ask({agent: undefined, createConnection: () => socket, host: 'open.larksuite.com', port: 443}));
})().catch(e => { console.error(e); process.exit(1); });
`

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

func runScript(t *testing.T, r *rig, program, script string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programtest.Find(t, program), "-")
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = append(append(os.Environ(), "PORT="+r.port(), "HTTPS_PROXY=", "HTTP_PROXY=", "https_proxy=", "http_proxy="), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func wantLines(t *testing.T, out string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(out, line) {
			t.Errorf("got:\n%swant in it: %s", out, line)
		}
	}
}

func TestNode(t *testing.T) {
	verify.Only(t)
	dir := t.TempDir()
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: dir, Names: []string{"gateway.example", "10.0.0.1"}})
	out := runScript(t, r, "node", nodeScript, "NODE_EXTRA_CA_CERTS="+filepath.Join(dir, "ca.pem"))
	wantLines(t, out,
		"name POST //a|host=localhost:"+r.port()+"|",
		"ip POST //a|host=127.0.0.1:"+r.port()+"|",
		"alias POST //a|host=open.feishu.cn|url=//a|reached=https://open.feishu.cn|",
		"connect POST //a|host=open.larksuite.com:443|url=//a|reached=http://"+r.addr+"|")
}

func TestPython(t *testing.T) {
	verify.Only(t)
	dir := t.TempDir()
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: dir, Names: []string{"gateway.example", "10.0.0.1"}})
	out := runScript(t, r, "python3", pythonScript, "SSL_CERT_FILE="+filepath.Join(dir, "ca.pem"))
	wantLines(t, out,
		"name POST //a|host=localhost:"+r.port()+"|",
		"ip POST //a|host=127.0.0.1:"+r.port()+"|",
		"connect POST //a|host=open.feishu.cn|url=//a|reached=http://"+r.addr+"|",
		"absolute POST //a|host=open.feishu.cn|url=//a|reached=http://"+r.addr+"|")
}
