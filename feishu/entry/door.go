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
	"time"
)

const (
	// maxConns and maxPerAddr are the most connections at a time, of all clients
	// and of one address. A further one takes the place of one whose client keeps us
	// waiting, and is closed where none does.
	maxConns   = 768
	maxPerAddr = 512
	// minRate is how many bytes a second of a body are no waiting.
	minRate = 1 << 10
	// stallTimeout is how long a client may pause within a request's body.
	stallTimeout = 30 * time.Second
	// writeTimeout is how long a client may take for maxWrite bytes of an answer.
	writeTimeout = time.Minute
	maxWrite     = 32 << 10
	// greetTimeout is how long a connection may take to say its first byte
	// and, in TLS, to shake hands; then it is closed.
	greetTimeout = 10 * time.Second
	// recordHandshake is the first byte of a TLS connection (RFC 8446 5.1). No
	// HTTP request begins with it.
	recordHandshake = 0x16
)

// handshakeFailure is a fatal TLS alert, so that a client that speaks TLS to a
// plain port reports that, and not a connection reset.
var handshakeFailure = []byte{0x15, 3, 1, 0, 2, 2, 40}

var errPlainOnly = errors.New("TLS is off")

// door is a listener that hands out connections which are ready for HTTP: what
// they speak was found out, each in its own time, and TLS is agreed on.
type door struct {
	entry *Entry
	outer net.Listener
	ready chan accepted
	work  sync.WaitGroup
	done  chan struct{}
	close func() error

	mu     sync.Mutex
	places map[*place]struct{} // guarded by mu
}

type accepted struct {
	conn net.Conn
	err  error
}

func newDoor(e *Entry, l net.Listener) *door {
	d := &door{entry: e, outer: l, ready: make(chan accepted), done: make(chan struct{}), places: map[*place]struct{}{}}
	d.close = sync.OnceValue(func() error {
		close(d.done)
		return l.Close()
	})
	return d
}

// Accept waits for the next connection that is ready.
func (d *door) Accept() (net.Conn, error) {
	select {
	case a := <-d.ready:
		return a.conn, a.err
	case <-d.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept; it may be called again.
func (d *door) Close() error { return d.close() }

// Addr is where the door listens.
func (d *door) Addr() net.Addr { return d.outer.Addr() }

func (d *door) listen() {
	for {
		c, err := d.outer.Accept()
		if err != nil {
			select {
			case d.ready <- accepted{err: err}: // the server pauses, or gives up and closes us
				continue
			case <-d.done:
				return
			}
		}
		if p := d.admit(c); p != nil {
			d.work.Go(func() { d.greet(&conn{Conn: c, door: d, place: p, outer: true}) })
		} else {
			_ = c.Close()
		}
	}
}

// greet finds out what the other side speaks and hands the connection on, or
// closes it.
func (d *door) greet(c *conn) {
	defer func() {
		if p := recover(); p != nil {
			_ = c.Close()
			d.entry.log.Error("a panic while accepting a connection", "err", p, "stack", string(debug.Stack()))
		}
	}()
	stop := context.AfterFunc(d.entry.greeting, func() { _ = c.Close() })
	ready, err := d.entry.agree(c)
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

// agree returns c itself, or TLS on top of it.
func (e *Entry) agree(c *conn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return nil, err
	}
	if len(c.ahead) == 0 {
		first := make([]byte, 1)
		if _, err := io.ReadFull(c.Conn, first); err != nil {
			return nil, err // opened and closed again, or silent: nothing was asked
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

// trustHint says how a bot is made to trust our CA.
const trustHint = "let the bot trust the certificate: NODE_EXTRA_CA_CERTS (Node), SSL_CERT_FILE (Go, Python), " +
	"REQUESTS_CA_BUNDLE (Python's requests)"

func (e *Entry) handshakeFailed(err error) {
	if e.greeting.Err() != nil || errors.Is(err, io.EOF) {
		return
	}
	e.count("tls_failed")
	// Only the text tells alerts of the other side apart. OpenSSL of TLS 1.3 sends its
	// alert in the clear, which we cannot decrypt: "bad record MAC".
	for _, alert := range []string{"unknown certificate", "bad certificate", "bad record MAC"} {
		if strings.Contains(err.Error(), alert) {
			e.once("a client refused our certificate: "+trustHint, "err", err)
			return
		}
	}
	e.once("TLS handshake failed", "err", err)
}

// connState notes when a client is waited for. It notices one that agreed on TLS
// and left without asking anything: Node looks at the certificate only then, and
// says nothing.
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
		c.place.begin(false)
	case http.StateIdle:
		c.place.begin(true)
	case http.StateHijacked:
		c.served.Store(false)
	case http.StateClosed:
		if overTLS && !c.asked && e.greeting.Err() == nil {
			e.once("a client left after the TLS handshake without a request; if it complains about the certificate, " +
				trustHint)
		}
	}
}
