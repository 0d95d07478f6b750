// Package entry is the port where a bot reaches the gateway. It serves all three
// ways to direct a bot to the gateway (docs/frameworks.md, Ways to connect):
//
//   - base URL: requests go to the [Options] Handler as they came, also
//     `//callback/…`, which no router has tidied up;
//   - HTTP(S)_PROXY: requests to Feishu's and Lark's hosts go to the Handler, in a
//     CONNECT tunnel as well as in absolute form, which older axios sends; every other
//     host is tunnelled unread;
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
package entry

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
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
	// headerTimeout is how long a request's header may take. Bodies have no
	// limit in time as long as bytes come: a file of 100 MB goes as fast as its link.
	headerTimeout = 10 * time.Second
	// idleTimeout closes a kept-alive connection without a request.
	idleTimeout = 2 * time.Minute
	// maxHeader is the most bytes of a request's header, to which [http.Server] adds
	// 4 KiB; more is answered 431. Many short fields take 20 times as much memory.
	maxHeader = 4 << 10
	// maxAnswerHeader is the same of the answer of the sidecar's own proxy.
	maxAnswerHeader = 64 << 10
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
	Token    string             // API_TOKEN, for tunnels from other machines; "": no such tunnel is served
	Failures *attempts.Failures // counts wrong tokens; nil: those of this entry alone
	Loopback bool               // the listener is reached from this machine only
	Allow    []string           // host:port of this machine or its link that a proxied request may reach
	Handler  http.Handler       // the gateway; required
	Logger   *slog.Logger       // nil discards
	// Counter counts tls_refused (TLS to mode off), tls_failed (a handshake
	// that did not succeed), opened, tunnel, forward (proxied requests that were
	// taken), proxy_denied (no token), proxy_refused (to this machine or its link),
	// proxy_failed (far side not reached) and tunnel_full. nil: not counted.
	Counter func(event string)
}

// Entry is the port that a bot connects to. Its methods are safe for concurrent use.
type Entry struct {
	*notices
	opts      Options
	names     []string     // of the certificates in mode auto
	certs     certificates // nil in mode off
	tls       *tls.Config  // nil in mode off
	ca        []byte
	server    *http.Server
	forwarder *httputil.ReverseProxy
	viaProxy  func(*url.URL) (*url.URL, error) // of the sidecar's own environment
	tunnels   chan struct{}                    // an element for each open tunnel
	allow     []string                         // Options.Allow in the form in which addresses are compared
	resolver  *net.Resolver                    // of names that tunnels lead to; nil: the system's
	closeIdle func()                           // closes the forwarder's idle connections

	accepting     context.Context // ends when Shutdown begins
	stopAccepting context.CancelFunc
	living        context.Context // ends when Shutdown returns
	stopLive      context.CancelFunc
	stopOnce      sync.Once
}

// certificates is where TLS certificates come from.
type certificates interface {
	// certificate returns the one for name, in lower case; "" if the client named none.
	certificate(name string) (*tls.Certificate, error)
	// covers reports whether there is one that is valid for name.
	covers(name string) bool
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
	e := &Entry{opts: o, notices: newNotices(o.Logger, o.Counter), tunnels: make(chan struct{}, maxTunnels)}
	var err error
	if e.names, err = certNames(o.Names); err != nil {
		return nil, err
	}
	for _, addr := range o.Allow {
		host, port := split(addr, "")
		e.allow = append(e.allow, net.JoinHostPort(host, port))
	}
	switch o.Mode {
	case ModeOff, "":
	case ModeAuto:
		var a *authority
		if a, err = openAuthority(o.DataDir, e.names, e.notices); err != nil {
			return nil, fmt.Errorf("GATEWAY_TLS=auto: %w", err)
		}
		e.ca = a.pem
		e.certs = &issuer{authority: a, names: e.names, notices: e.notices}
	case ModeFile:
		if e.certs, err = openPair(o.CertFile, o.KeyFile, e.notices); err != nil {
			return nil, fmt.Errorf("file: GATEWAY_CERT_FILE, GATEWAY_KEY_FILE: %w", err)
		}
	default:
		return nil, fmt.Errorf("GATEWAY_TLS: %q is not a mode; want off, auto or file", o.Mode)
	}
	if e.certs != nil {
		e.tls = &tls.Config{
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"http/1.1"},
			GetCertificate: e.certificate,
		}
	}
	e.accepting, e.stopAccepting = context.WithCancel(context.Background())
	e.living, e.stopLive = context.WithCancel(context.Background())
	e.viaProxy = httpproxy.FromEnvironment().ProxyFunc()
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	e.server = &http.Server{
		Handler:                      http.HandlerFunc(e.route),
		DisableGeneralOptionsHandler: true, // OPTIONS * is the upstream's to answer
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		BaseContext:                  func(net.Listener) context.Context { return e.living },
		ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return withConn(ctx, c) },
		ConnState:                    e.connState,
		ErrorLog:                     slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
		Protocols:                    &protocols,
	}
	e.forwarder = e.newForwarder()
	return e, nil
}

// CA returns the certificate that bots have to trust, as PEM; nil unless the
// mode is auto.
func (e *Entry) CA() []byte { return e.ca }

// Certified reports whether there is a certificate for host. Where an attacker answers
// DNS look-ups, a browser refuses the answer of a host that has none.
func (e *Entry) Certified(host string) bool {
	return e.certs != nil && e.certs.covers(canonicalHost(host))
}

// Serve serves connections of l until Shutdown is called, then it returns nil, or until
// l fails. It closes l.
func (e *Entry) Serve(l net.Listener) error {
	d := newListener(e, l)
	d.work.Go(d.listen)
	err := e.server.Serve(d)
	_ = d.Close()
	d.work.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown accepts no more connections, lets running requests finish, and then
// closes tunnels. When ctx ends first, it closes the remaining connections and returns
// ctx's error. The handler closes the WebSockets that it has taken over.
func (e *Entry) Shutdown(ctx context.Context) (err error) {
	e.stopOnce.Do(func() {
		e.stopAccepting()
		if err = e.server.Shutdown(ctx); err != nil {
			_ = e.server.Close()
		}
		e.stopLive()
		for range cap(e.tunnels) {
			e.tunnels <- struct{}{} // when the last one has ended; there will be no other
		}
		e.closeIdle()
	})
	return err
}

// certificate returns the one for a handshake. A client that names no host
// has an IP address, or named the host in its CONNECT request.
func (e *Entry) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	name := canonicalHost(hello.ServerName)
	if c, ok := hello.Conn.(*conn); ok && name == "" {
		name = c.target
	}
	return e.certs.certificate(name)
}

// notices logs and counts for the parts of an entry.
type notices struct {
	log   *slog.Logger
	count func(event string)
	said  sync.Map // the messages that once has logged
}

func newNotices(log *slog.Logger, count func(string)) *notices {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if count == nil {
		count = func(string) {}
	}
	return &notices{log: log, count: count}
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
