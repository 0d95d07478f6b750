package entry

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConns is the most connections at a time. A further one waits until one of them ends.
	maxConns = 512
	// stallTimeout is how long a client may pause within a request's body.
	stallTimeout = 30 * time.Second
	// writeTimeout is how long a write of an answer may take.
	writeTimeout = time.Minute
	// startTimeout is how long a connection may take to send its first byte
	// and, in TLS, to shake hands; then it is closed.
	startTimeout = 10 * time.Second
	// recordHandshake is the first byte of a TLS connection (RFC 8446 5.1). No
	// HTTP request begins with it.
	recordHandshake = 0x16
)

// handshakeFailure is a fatal TLS alert, so that a client that speaks TLS to a
// plain port reports that, and not a connection reset.
var handshakeFailure = []byte{0x15, 3, 1, 0, 2, 2, 40}

var errPlainOnly = errors.New("TLS is off")

// listener hands out connections that are ready for HTTP: their protocol was detected,
// side by side, and the TLS handshake is done.
type listener struct {
	entry *Entry
	outer net.Listener
	ready chan accepted
	work  sync.WaitGroup
	done  chan struct{}
	close func() error
	// open has an element for each open connection. It is a netutil.LimitListener whose connections
	// can still close one direction.
	open chan struct{}
}

type accepted struct {
	conn net.Conn
	err  error
}

func newListener(e *Entry, l net.Listener) *listener {
	d := &listener{entry: e, outer: l, ready: make(chan accepted), done: make(chan struct{}),
		open: make(chan struct{}, maxConns)}
	d.close = sync.OnceValue(func() error {
		close(d.done)
		return l.Close()
	})
	return d
}

// Accept waits for the next connection that is ready.
func (d *listener) Accept() (net.Conn, error) {
	select {
	case a := <-d.ready:
		return a.conn, a.err
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; it may be called again.
func (d *listener) Close() error { return d.close() }

// Addr is the address that it listens on.
func (d *listener) Addr() net.Addr { return d.outer.Addr() }

func (d *listener) listen() {
	for {
		select {
		case d.open <- struct{}{}:
		case <-d.done:
			return
		}
		c, err := d.outer.Accept()
		if err != nil {
			<-d.open
			select {
			case d.ready <- accepted{err: err}: // the server tries again after a pause, or closes the listener
				continue
			case <-d.done:
				return
			}
		}
		free := sync.OnceFunc(func() { <-d.open })
		d.work.Go(func() { d.start(&conn{Conn: c, listener: d, free: free}) })
	}
}

// start detects the protocol of a connection and hands it on, or closes it.
func (d *listener) start(c *conn) {
	defer func() {
		if p := recover(); p != nil {
			_ = c.Close()
			d.entry.log.Error("a panic while accepting a connection", "err", p, "stack", string(debug.Stack()))
		}
	}()
	stop := context.AfterFunc(d.entry.accepting, func() { _ = c.Close() })
	ready, err := d.entry.detect(c)
	if !stop() || err != nil {
		_ = c.Close()
		return
	}
	select {
	case d.ready <- accepted{conn: ready}:
	case <-d.done:
		_ = c.Close()
	}
}

// detect returns c itself, or TLS on top of it.
func (e *Entry) detect(c *conn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return nil, err
	}
	if len(c.ahead) == 0 {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c.Conn, first); err != nil {
			return nil, err // closed again, or silent: there was no request
		}
		c.ahead = first
	}
	if c.ahead[0] != recordHandshake {
		return c, c.SetDeadline(time.Time{})
	}
	if e.tls == nil {
		e.refuseTLS(c)
		return nil, errPlainOnly
	}
	t := tls.Server(c, e.tls)
	if err := t.Handshake(); err != nil {
		e.handshakeFailed(err)
		return nil, err
	}
	return t, c.SetDeadline(time.Time{})
}

func (e *Entry) refuseTLS(c *conn) {
	e.count("tls_refused")
	e.once("the bot speaks TLS to a plain port: give it an http:// address, or set GATEWAY_TLS=auto",
		"addr", c.LocalAddr().String())
	_, _ = c.Write(handshakeFailure)
	_ = c.CloseWrite()
	// Closing on unread bytes would reset the connection and lose the alert.
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c, 16<<10)
}

// trustHint is how to make a bot trust the CA.
const trustHint = "let the bot trust the certificate: NODE_EXTRA_CA_CERTS (Node), SSL_CERT_FILE (Go, Python), " +
	"REQUESTS_CA_BUNDLE (Python's requests)"

func (e *Entry) handshakeFailed(err error) {
	if e.accepting.Err() != nil || errors.Is(err, io.EOF) {
		return
	}
	e.count("tls_failed")
	// Alerts of the other side differ in their text only. OpenSSL sends its alert in TLS 1.3
	// unencrypted, which fails to decrypt: "bad record MAC".
	for _, alert := range []string{"unknown certificate", "bad certificate", "bad record MAC"} {
		if strings.Contains(err.Error(), alert) {
			e.once("a client refused our certificate: "+trustHint, "err", err)
			return
		}
	}
	e.once("TLS handshake failed", "err", err)
}

// connState reports a client that left after the TLS handshake without a request: Node checks
// the certificate only then, without an alert.
func (e *Entry) connState(nc net.Conn, state http.ConnState) {
	t, overTLS := nc.(*tls.Conn)
	if overTLS {
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch state {
	case http.StateNew:
		c.served.Store(true)
	case http.StateActive:
		c.asked = true
	case http.StateHijacked:
		c.served.Store(false)
	case http.StateClosed:
		if overTLS && !c.asked && e.accepting.Err() == nil {
			e.once("a client left after the TLS handshake without a request; if it complains about the certificate, " +
				trustHint)
		}
	}
}

// conn is a connection whose first bytes may have been read already: an accepted one,
// or one inside a CONNECT tunnel to the server itself.
type conn struct {
	net.Conn
	ahead    []byte // read, and not yet returned by Read
	listener *listener
	free     func()      // makes room for another connection; nil inside of a tunnel
	target   string      // inside a CONNECT tunnel: the host of the CONNECT request
	asked    bool        // a request was read
	served   atomic.Bool // by the HTTP server: what is written are responses
}

// Read returns what was read ahead first.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 && len(p) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Write writes a response within writeTimeout, and anything else as it is.
func (c *conn) Write(p []byte) (int, error) {
	if c.served.Load() {
		if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(p)
}

// CloseWrite closes the writing side, or the connection if it has no sides.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if c.free != nil {
		c.free()
	}
	return err
}

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

type (
	connKey    struct{} // the *conn of a request
	proxiedKey struct{} // set for a request that came in absolute form
)

func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

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
	if r.Context().Value(proxiedKey{}) != nil || c != nil && c.target != "" {
		return "http", local
	}
	scheme, host = "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	if host == "" {
		host = local // HTTP/1.0 without a Host
	}
	return scheme, host
}

// incoming is a request's body. Its sender may pause for stallTimeout at most.
type incoming struct {
	io.ReadCloser
	control *http.ResponseController

	mu    sync.Mutex
	ended bool // read to its end, or its request was answered; guarded by mu
}

// deadline sets the deadline of reads of the body, unless it has ended: the connection serves the next request then,
// while a copy to Feishu may outlive this one. Setting it fails if the connection has gone, which a read reports.
func (b *incoming) deadline(at time.Time, end bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = end
		_ = b.control.SetReadDeadline(at)
	}
}

// leave is called when the request was answered. What is left of the body is read by
// the HTTP server then.
func (b *incoming) leave() { b.deadline(time.Now().Add(stallTimeout), true) }

func (b *incoming) Read(data []byte) (int, error) {
	b.deadline(time.Now().Add(stallTimeout), false)
	n, err := b.ReadCloser.Read(data)
	switch {
	case errors.Is(err, io.EOF):
		b.deadline(time.Time{}, true)
	case err != nil:
		b.deadline(time.Unix(1, 0), true) // the HTTP server does not wait for the rest
	}
	return n, err
}
