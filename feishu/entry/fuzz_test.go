package entry_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"feishu-relay/feishu/entry"
)

// Whatever a connection begins with, it comes to an end, and its token to the
// next one. Nothing leaves the machine: every host is one that is opened.
func FuzzFirstBytes(f *testing.F) {
	for _, seed := range []string{
		"", "G", "\x16", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "\x16\x03\x01\xff\xff", "\x80\x2e\x01\x00\x02", "\x00\x16",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST //a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"CONNECT open.feishu.cn:443 HTTP/1.1\r\nHost: x\r\n\r\n\x16\x03\x01", "CONNECT a:80 HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET https://open.feishu.cn?x HTTP/1.1\r\nHost: x\r\n\r\n", "GET http:a HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://[::1%25x]:/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://a@/ HTTP/1.1\r\nHost: x\r\n\r\n", "PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n",
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, mode := range []string{entry.ModeOff, entry.ModeAuto} {
			e, err := entry.New(entry.Options{Mode: mode, DataDir: dir, Loopback: true, Open: func(string) bool { return true }, Handler: http.HandlerFunc(said)})
			if err != nil {
				t.Fatal(err)
			}
			e.SetProxy("none:") // nothing is dialled
			l := &pipes{conns: make(chan net.Conn, 1), done: make(chan struct{})}
			served := make(chan error, 1)
			go func() { served <- e.Serve(l) }()
			near, bot := net.Pipe()
			l.conns <- near
			_ = bot.SetDeadline(time.Now().Add(patience))
			go func() {
				_, _ = bot.Write(data)
				_, _ = bot.Write([]byte("\r\n\r\n"))
				bot.Close()
			}()
			if _, err := io.Copy(io.Discard, bot); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("it did not end: %v", err)
			}
			if err := e.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	})
}
