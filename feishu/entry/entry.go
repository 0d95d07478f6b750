// Package entry is the port where a bot reaches the gateway. It serves all three
// ways to direct a bot to the gateway (docs/frameworks.md, Ways to connect):
//
//   - base URL: requests go to the [Options] Handler as they came, also
//     `//callback/…`, which no router has tidied up;
//   - HTTPS_PROXY: requests to Feishu's and Lark's hosts go to the Handler, in a CONNECT
//     tunnel as well as in absolute form, which older axios sends; every other host is
//     tunnelled unread;
//   - host alias: open.feishu.cn resolves to the sidecar, and its certificate
//     is from this package.
//
// # Protocols
//
// The first byte of a connection shows whether it is TLS or plain HTTP, also in a
// CONNECT tunnel to Feishu. Such a tunnel becomes one more connection of
// the same server, so that keep-alive, WebSockets and limits are the same
// everywhere. [Address] returns how a request reached the gateway.
//
// # Certificates
//
// Mode "auto" creates a CA once, in a folder that sidecars may share;
// mode "file" serves a certificate that somebody else renews; mode "off" has
// none, and a tunnel to Feishu then passes unread. The CA may sign only for
// the names it is made for (name constraints), so that whoever steals its
// key can read Feishu's traffic of these bots, but that of no other web site.
//
// # Who may tunnel
//
// On loopback everybody. Elsewhere tunnels to hosts other than Feishu's need
// the API token as Proxy-Authorization, since they would make the sidecar an
// open proxy. No tunnel leads to loopback, link-local or unspecified addresses,
// where the local API and others trust their callers, unless Options.Allow lists it.
//
// # What is counted
//
//	opened         a proxied request to Feishu, or to this gateway, was taken
//	tunnel         a tunnel to another host was opened
//	proxy_denied   a tunnel without the API token was refused
//	proxy_refused  a tunnel to this machine or its link was refused
//	proxy_failed   the far side of a tunnel was not reached
//	tls_refused    a client spoke TLS, and GATEWAY_TLS is off
//	tls_failed     a TLS handshake did not succeed
package entry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"

	"feishu-relay/feishu"
	"feishu-relay/internal/attempts"
)

// Modes of GATEWAY_TLS.
const (
	ModeOff  = "off"
	ModeAuto = "auto"
	ModeFile = "file"
)

const (
	// maxConns is the most connections at a time. A further one waits until one of them ends.
	maxConns = 512
	// headerTimeout is how long a connection may take for its TLS handshake and a request's header. Bodies have no limit
	// in time as long as bytes come: a file of 100 MB goes as fast as its link.
	headerTimeout = 10 * time.Second
	// stallTimeout is how long a client may pause within a request's body.
	stallTimeout = 30 * time.Second
	// idleTimeout closes a kept-alive connection without a request.
	idleTimeout = 2 * time.Minute
	// writeTimeout is how long a write to a client may take.
	writeTimeout = time.Minute
	// maxHeader is the most bytes of a request's header, to which [http.Server] adds
	// 4 KiB; more is answered 431. Many short fields take 20 times as much memory.
	maxHeader = 4 << 10
	// recordHandshake is the first byte of a TLS connection (RFC 8446 5.1). No
	// HTTP request begins with it.
	recordHandshake = 0x16
)

// Options configures an entry.
type Options struct {
	Mode     string   // off (also ""), auto, file: GATEWAY_TLS
	CertFile string   // file: PEM, leaf first; read again when it changes
	KeyFile  string   // file: its key
	DataDir  string   // auto: ca.pem and private/ca-key.pem, shared by sidecars
	Names    []string // further host names or IPs for the certificate and the CA
	// Open reports whether requests to a host go to Handler. The host is in lower case, with a port other than 80 or
	// 443. nil: feishu.IsOpenHost
	Open     func(host string) bool
	Token    string               // API_TOKEN, for tunnels from other machines; "": no such tunnel is served
	Failures *attempts.Failures   // counts wrong tokens; nil: those of this entry alone
	Loopback bool                 // the listener is reached from this machine only
	Allow    []string             // host:port of this machine or its link that a tunnel may reach
	Handler  http.Handler         // the gateway; required
	Logger   *slog.Logger         // nil discards
	Counter  func(feishu.Counted) // gets the words of the package comment; nil: they are not counted
}

// Entry is the port that a bot connects to. Its methods are safe for concurrent use.
type Entry struct {
	*notices
	opts  Options
	names []string // of the certificates in mode auto
	// certs returns the certificate for a name in lower case, "" if the client named none; nil in mode off.
	certs    func(name string) (*tls.Certificate, error)
	tls      *tls.Config // nil in mode off
	ca       []byte
	server   *http.Server
	viaProxy func(*url.URL) (*url.URL, error) // of the sidecar's own environment
	allow    []string                         // Options.Allow in the form in which addresses are compared
	resolver *net.Resolver                    // of names that tunnels lead to; nil: the system's

	living context.Context // ends when Shutdown returns
	stop   context.CancelFunc
}

// New prepares an entry; in mode auto it makes the CA or reads it. Its errors
// say how to fix what is wrong.
func New(o Options) (*Entry, error) {
	if o.Handler == nil {
		return nil, errors.New("entry: a handler is required")
	}
	if o.Failures == nil {
		o.Failures = attempts.New()
	}
	if o.Open == nil {
		o.Open = feishu.IsOpenHost
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Counter == nil {
		o.Counter = func(feishu.Counted) {}
	}
	e := &Entry{opts: o, notices: &notices{log: o.Logger, count: o.Counter},
		viaProxy: httpproxy.FromEnvironment().ProxyFunc()}
	e.living, e.stop = context.WithCancel(context.Background())
	for _, name := range slices.Concat(basicNames, o.Names) {
		if name = canonicalHost(name); name != "" && !slices.Contains(e.names, name) {
			e.names = append(e.names, name)
		}
	}
	for _, addr := range o.Allow {
		host, port := split(addr, "")
		e.allow = append(e.allow, net.JoinHostPort(host, port))
	}
	switch o.Mode {
	case ModeOff, "":
	case ModeAuto:
		a, err := openAuthority(o.DataDir, e.names, e.notices)
		if err != nil {
			return nil, fmt.Errorf("GATEWAY_TLS=auto: %w", err)
		}
		e.ca = a.pem
		e.certs = (&issuer{authority: a, names: e.names, notices: e.notices}).certificate
	case ModeFile:
		files, err := openPair(o.CertFile, o.KeyFile, e.notices)
		if err != nil {
			return nil, fmt.Errorf("file: GATEWAY_CERT_FILE, GATEWAY_KEY_FILE: %w", err)
		}
		e.certs = files.certificate
	default:
		return nil, fmt.Errorf("GATEWAY_TLS: %q is not a mode; want off, auto or file", o.Mode)
	}
	if e.certs != nil {
		e.tls = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: e.certificate}
	}
	e.server = &http.Server{
		Handler:                      http.HandlerFunc(e.route),
		DisableGeneralOptionsHandler: true, // OPTIONS * is the upstream's to answer
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		BaseContext:                  func(net.Listener) context.Context { return e.living },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
	}
	return e, nil
}

// CA returns the certificate that bots have to trust, as PEM; nil unless the
// mode is auto.
func (e *Entry) CA() []byte { return e.ca }

// certified reports whether there is a certificate for host.
func (e *Entry) certified(host string) bool {
	host = canonicalHost(host)
	if e.certs == nil || e.opts.Mode == ModeAuto {
		return e.certs != nil && slices.Contains(e.names, host)
	}
	cert, _ := e.certs(host) // of mode file: no error
	return cert.Leaf.VerifyHostname(host) == nil
}

// Serve serves connections of l until Shutdown is called, then it returns nil, or until
// l fails. It closes l.
func (e *Entry) Serve(l net.Listener) error {
	err := e.server.Serve(incoming{l, e, make(chan struct{}, maxConns)})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown accepts no more connections, lets running requests finish, and then
// closes tunnels. When ctx ends first, it closes the remaining connections and returns
// ctx's error. The handler closes the WebSockets that it has taken over.
func (e *Entry) Shutdown(ctx context.Context) error {
	err := e.server.Shutdown(ctx)
	if err != nil {
		_ = e.server.Close()
	}
	e.stop()
	return err
}

// incoming is a listener whose connections may be TLS or plain HTTP. Of maxConns at a time the next waits.
type incoming struct {
	net.Listener
	entry *Entry
	slots chan struct{}
}

func (l incoming) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &conn{begun: &begun{Conn: c}, entry: l.entry, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// closeWrite closes the writing side of c, or all of it if it has no sides.
func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// again is a listener of one connection: one inside a CONNECT tunnel, which is served like any other.
type again struct{ one *conn }

func (l *again) Accept() (c net.Conn, err error) {
	if l.one == nil {
		return nil, io.EOF
	}
	c, l.one = l.one, nil
	return c, nil
}

func (*again) Close() error     { return nil }
func (l *again) Addr() net.Addr { return &net.TCPAddr{} }

// begun is a connection, of which some bytes may have been read already.
type begun struct {
	net.Conn
	ahead  []byte // read, and not yet returned by Read
	target string // inside a CONNECT tunnel: the host of the CONNECT request
}

// Read returns what was read ahead first.
func (c *begun) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 && len(p) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite closes the writing side.
func (c *begun) CloseWrite() error { return closeWrite(c.Conn) }

// conn is a connection of the server. Its first Read shows whether it is TLS.
type conn struct {
	*begun
	entry    *Entry
	free     func()                   // frees its slot; nil inside a tunnel
	detected bool                     // by the goroutine that reads
	asked    atomic.Bool              // something of a request was read
	tls      atomic.Pointer[tls.Conn] // nil: plain, or not known yet
}

func (c *conn) Read(p []byte) (n int, err error) {
	if !c.detected && !c.detect() {
		return 0, io.EOF // there was no request
	}
	if t := c.tls.Load(); t != nil {
		n, err = t.Read(p)
	} else {
		n, err = c.begun.Read(p)
	}
	if n > 0 {
		c.asked.Store(true)
	}
	return n, err
}

// Write writes within writeTimeout.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	if t := c.tls.Load(); t != nil {
		return t.Write(p)
	}
	return c.begun.Write(p)
}

// CloseWrite closes the writing side.
func (c *conn) CloseWrite() error {
	if t := c.tls.Load(); t != nil {
		return t.CloseWrite()
	}
	return c.begun.CloseWrite()
}

// Close closes the connection. Node checks a certificate only behind the handshake, and leaves without an alert.
func (c *conn) Close() error {
	if c.free != nil {
		c.free()
	}
	t := c.tls.Load()
	if t == nil {
		return c.Conn.Close()
	}
	if !c.asked.Load() && c.entry.living.Err() == nil {
		c.entry.once("a client left after the TLS handshake without a request; if it complains about the certificate, " +
			trustHint)
	}
	return t.Close()
}

// detect finds out whether c is TLS, and shakes hands then. It is false if there will be no request.
func (c *conn) detect() bool {
	c.detected = true
	if len(c.ahead) == 0 {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c.Conn, first); err != nil {
			return false // closed again, or silent
		}
		c.ahead = first
	}
	switch e := c.entry; {
	case c.ahead[0] != recordHandshake:
	case e.tls == nil:
		e.count("tls_refused")
		e.once("the bot speaks TLS to a plain port: give it an http:// address, or set GATEWAY_TLS=auto",
			"addr", c.LocalAddr().String())
		_, _ = c.Write(handshakeFailure)
		_ = c.CloseWrite()
		// Closing on unread bytes would reset the connection and lose the alert.
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, c.Conn, 16<<10)
		return false
	default:
		t := tls.Server(c.begun, e.tls)
		if err := t.Handshake(); err != nil {
			e.handshakeFailed(err)
			return false
		}
		c.tls.Store(t)
	}
	return true
}

// handshakeFailure is a fatal TLS alert, so that a client that speaks TLS to a
// plain port reports that, and not a connection reset.
var handshakeFailure = []byte{0x15, 3, 1, 0, 2, 2, 40}

// trustHint is how to make a bot trust the CA.
const trustHint = "let the bot trust the certificate: NODE_EXTRA_CA_CERTS (Node), SSL_CERT_FILE (Go, Python), " +
	"REQUESTS_CA_BUNDLE (Python's requests)"

func (e *Entry) handshakeFailed(err error) {
	if e.living.Err() != nil || errors.Is(err, io.EOF) {
		return
	}
	e.count("tls_failed")
	e.once("a TLS handshake failed; if the client refused the certificate, "+trustHint, "err", err)
}

// certificate returns the one for a handshake. A client that names no host
// has an IP address, or named the host in its CONNECT request.
func (e *Entry) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := canonicalHost(hello.ServerName)
	if c, ok := hello.Conn.(*begun); ok && name == "" {
		name = c.target
	}
	return e.certs(name)
}

// takeOver takes a connection over from the HTTP server, with what that has
// read already.
func takeOver(w http.ResponseWriter, target string) (*begun, error) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	ahead, _ := rw.Peek(rw.Reader.Buffered()) // no more than what is there: no error
	return &begun{Conn: c, ahead: bytes.Clone(ahead), target: target}, nil
}

type (
	connKey    struct{} // the *conn of a request
	proxiedKey struct{} // set for a request that came in absolute form
)

// Address returns how the bot reached the gateway with r: the scheme, "http" or "https",
// and the host that the request named, with its port if it has one. For a bot
// that uses the gateway as its proxy a host name means Feishu; for it the result is "http" and
// the local address of its connection, which always serves plain HTTP too.
func Address(r *http.Request) (scheme, host string) {
	local := ""
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		local = a.String()
	}
	c, _ := r.Context().Value(connKey{}).(*conn)
	switch {
	case r.Context().Value(proxiedKey{}) != nil || c != nil && c.target != "":
		return "http", local
	case r.Host == "": // HTTP/1.0
		host = local
	default:
		host = r.Host
	}
	if r.TLS != nil {
		return "https", host
	}
	return "http", host
}

// notices logs and counts for the parts of an entry.
type notices struct {
	log   *slog.Logger
	count func(feishu.Counted)
	said  sync.Map // the messages that once has logged
}

// once logs a warning the first time, and the same message again at debug level: a
// bot tries again without end, and one warning is enough for its operator.
func (n *notices) once(msg string, args ...any) {
	if _, again := n.said.LoadOrStore(msg, true); again {
		n.log.Debug(msg, args...)
		return
	}
	n.log.Warn(msg, args...)
}
