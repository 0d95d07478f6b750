package entry_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/entry"
)

// patience is how long a test waits for what must come; then it fails.
const patience = 30 * time.Second

// rig is an entry that listens, and what it said and counted.
type rig struct {
	*entry.Entry
	t    *testing.T
	addr string
	log  *journal

	mu     sync.Mutex
	events map[string]int
}

// journal is a log that may be read, and waited for, while it is written.
type journal struct {
	mu      sync.Mutex
	written sync.Cond
	buf     bytes.Buffer
}

func newJournal() *journal {
	j := &journal{}
	j.written.L = &j.mu
	return j
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.written.Broadcast()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

// await returns when the log says text.
func (j *journal) await(t *testing.T, text string) {
	t.Helper()
	late := false
	stop := time.AfterFunc(patience, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		late = true
		j.written.Broadcast()
	})
	defer stop.Stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	for !strings.Contains(j.buf.String(), text) {
		if late {
			t.Fatalf("never said %q:\n%s", text, j.buf.String())
		}
		j.written.Wait()
	}
}

// said is what the gateway behind the entry answers in these tests: how it was
// asked.
func said(w http.ResponseWriter, r *http.Request) {
	scheme, host := entry.Address(r)
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s|host=%s|url=%s|reached=%s://%s|proxy=%s|body=%s", r.Method, r.RequestURI, r.Host, r.URL, scheme, host,
		r.Header.Get("Proxy-Authorization")+r.Header.Get("Proxy-Connection"), body)
}

func newRig(t *testing.T, o entry.Options) *rig {
	t.Helper()
	r := &rig{t: t, log: newJournal(), events: map[string]int{}}
	if o.Handler == nil {
		o.Handler = http.HandlerFunc(said)
	}
	o.Logger = slog.New(slog.NewTextHandler(r.log, nil))
	o.Counter = func(event feishu.Counted) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events[string(event)]++
	}
	e, err := entry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Entry = e
	return r
}

// start serves on a port of the kernel's choice until the test ends.
func start(t *testing.T, o entry.Options) *rig {
	t.Helper()
	r := newRig(t, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := contextFor(patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return r
}

func (r *rig) counted(event string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[event]
}

func (r *rig) port() string {
	_, port, _ := net.SplitHostPort(r.addr)
	return port
}

// trusting is a TLS configuration that trusts the entry's CA and no other.
func (r *rig) trusting() *tls.Config {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(r.CA()) {
		r.t.Fatal("no CA")
	}
	return &tls.Config{RootCAs: pool}
}

// client is an HTTP client that uses proxy ("": none).
func client(t *testing.T, proxy string, config *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: config}
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil {
			t.Fatal(err)
		}
		tr.Proxy = http.ProxyURL(u)
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// ask returns status and body of a POST.
func ask(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	res, err := c.Post(url, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func wantBody(t *testing.T, c *http.Client, url string, parts ...string) {
	t.Helper()
	status, body := ask(t, c, url)
	if status != http.StatusOK {
		t.Errorf("%s: %d %s", url, status, body)
	}
	for _, part := range parts {
		if !strings.Contains(body, part) {
			t.Errorf("%s: got %q, want %q in it", url, body, part)
		}
	}
}

// raw sends bytes as they are and returns the first answer.
func raw(t *testing.T, addr, request string) (*http.Response, string) {
	t.Helper()
	c := dialTCP(t, addr)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	return answer(t, bufio.NewReader(c), strings.HasPrefix(request, "CONNECT"))
}

func answer(t *testing.T, in *bufio.Reader, connect bool) (*http.Response, string) {
	t.Helper()
	method := http.MethodPost
	if connect {
		method = http.MethodConnect
	}
	res, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	if connect && res.StatusCode == http.StatusOK {
		return res, ""
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func dialTCP(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// origin is a TLS server of somebody else, with a certificate of its own.
func origin(t *testing.T) (*httptest.Server, string) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "origin") }))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that only look at the tunnel
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, s.Listener.Addr().String()
}

func reader(c net.Conn) *bufio.Reader { return bufio.NewReader(c) }
