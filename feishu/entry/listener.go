package entry

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxConns and maxPerAddr are the most connections at a time, of all clients
	// and of one address. A further one replaces one whose client keeps the server
	// waiting, and is closed if there is none.
	maxConns   = 768
	maxPerAddr = 512
	// minRate is the rate of a body, in bytes a second, from which on its client does not keep the server waiting.
	minRate = 1 << 10
	// stallTimeout is how long a client may pause within a request's body.
	stallTimeout = 30 * time.Second
	// writeTimeout is how long a client may take for maxWrite bytes of an answer.
	writeTimeout = time.Minute
	maxWrite     = 32 << 10
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

	mu    sync.Mutex
	slots map[*slot]struct{} // guarded by mu
}

type accepted struct {
	conn net.Conn
	err  error
}

func newListener(e *Entry, l net.Listener) *listener {
	d := &listener{entry: e, outer: l, ready: make(chan accepted), done: make(chan struct{}), slots: map[*slot]struct{}{}}
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
		c, err := d.outer.Accept()
		if err != nil {
			select {
			case d.ready <- accepted{err: err}: // the server tries again after a pause, or closes the listener
				continue
			case <-d.done:
				return
			}
		}
		if p := d.admit(c); p != nil {
			d.work.Go(func() { d.start(&conn{Conn: c, listener: d, slot: p, outer: true}) })
		} else {
			_ = c.Close()
		}
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

// connState records when the server waits for a client. It reports a client that left after the
// TLS handshake without a request: Node checks the certificate only then, without an alert.
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
		c.slot.begin(false)
	case http.StateIdle:
		c.slot.begin(true)
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
	slot     *slot
	outer    bool        // it was accepted, and releases the slot when it is closed
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

// Write writes a response with time limits for its client, and anything else as it is.
func (c *conn) Write(p []byte) (int, error) {
	if c.served.Load() {
		return c.slot.write(c.Conn, p)
	}
	return c.Conn.Write(p)
}

// CloseWrite closes the writing side, or the connection if it has no sides.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if c.outer {
		c.listener.release(c.slot)
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

// slot is an open connection's share of the limits.
type slot struct {
	conn net.Conn
	from netip.Prefix

	mu       sync.Mutex // guards the fields below; taken after that of the listener
	idle     bool       // no request is served on it
	waits    int        // reads of a body and writes to the client in progress
	began    time.Time  // the request, the pause before it, or the last write
	body     int64      // bytes of the body received since
	answered bool       // a request on it was answered
	closed   bool       // to make room for another
}

// begin records that the server waits for the client again: for a request, or for more of one.
func (p *slot) begin(answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle, p.began, p.body = true, time.Now(), 0
	p.answered = p.answered || answered
}

// work records that the client waits for the server. It is false if the connection was closed.
func (p *slot) work() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = false
	return !p.closed
}

// rest records that the server waits for the rest of a request.
func (p *slot) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = true
}

// read does a read of the request's body.
func (p *slot) read(r io.Reader, data []byte) (n int, err error) {
	p.mu.Lock()
	p.waits++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waits--
		p.body += int64(n)
	}()
	return r.Read(data)
}

// write writes to the client, which has writeTimeout for each maxWrite bytes.
func (p *slot) write(c net.Conn, data []byte) (n int, err error) {
	for err == nil && n < len(data) {
		p.mu.Lock()
		p.waits++
		p.began, p.body = time.Now(), 0
		err = c.SetWriteDeadline(p.began.Add(writeTimeout))
		p.mu.Unlock()
		if err == nil {
			var k int
			k, err = c.Write(data[n:min(len(data), n+maxWrite)])
			n += k
		}
		p.mu.Lock()
		p.waits--
		p.mu.Unlock()
	}
	return n, err
}

// The kinds of clients that the server waits for.
const (
	neverAnswered = iota // no request of the connection was answered yet
	answered
	sending // a body arrives at minRate at least
	kinds
)

// candidate is a slot whose connection may be closed to make room.
type candidate struct {
	*slot
	kind  int
	since time.Time // when the waiting began; each KiB of a body makes it a second later
}

// candidate is false if the server does not wait for the client.
func (p *slot) candidate() (candidate, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := candidate{slot: p, since: p.began.Add(time.Duration(p.body/minRate) * time.Second)}
	switch {
	case c.since.After(time.Now()):
		c.kind = sending
	case p.answered:
		c.kind = answered
	}
	return c, p.idle || p.waits > 0
}

// makeRoom closes the connection, unless its client waits for the server by now.
func (p *slot) makeRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.idle && p.waits == 0 {
		return false
	}
	p.closed = true
	_ = p.conn.Close()
	return true
}

// sender returns what counts as one address: this whole machine, an IPv4 address,
// or an IPv6 network, in which a host may use any address.
func sender(c net.Conn) netip.Prefix {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	switch {
	case ip.IsLoopback():
		return netip.Prefix{}
	case ip.Is6():
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // fails only for more bits than there are
	return prefix
}

// admit returns a slot for an accepted connection, if needed that of another connection, which
// it closes; nil: there is no room. It never waits, so that Accept goes on.
func (d *listener) admit(c net.Conn) *slot {
	p := &slot{conn: c, from: sender(c)}
	p.begin(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	same := 0
	for q := range d.slots {
		if q.from == p.from {
			same++
		}
	}
	if same >= maxPerAddr || len(d.slots) >= maxConns {
		d.entry.count("crowded")
		d.entry.once("too many connections: those are closed whose clients keep the gateway waiting",
			"max", maxConns, "of_one_address", maxPerAddr)
		for {
			q := d.expendable(p, same >= maxPerAddr)
			if q == nil {
				return nil
			}
			if q.makeRoom() {
				delete(d.slots, q)
				break
			}
		}
	}
	d.slots[p] = struct{}{}
	return p
}

// expendable returns the slot to be given to p, of p's address where sameAddr: of the kind
// that most clients that the server waits for are of, the one that it has waited for
// longest. So p itself stays until as many others have come as there are slots,
// whatever their clients do. The caller holds mu.
func (d *listener) expendable(p *slot, sameAddr bool) *slot {
	var counts [kinds]int
	var oldest [kinds]candidate
	most := neverAnswered
	for q := range d.slots {
		c, waited := q.candidate()
		if !waited || sameAddr && q.from != p.from {
			continue
		}
		if counts[c.kind] == 0 || c.since.Before(oldest[c.kind].since) {
			oldest[c.kind] = c
		}
		if counts[c.kind]++; counts[c.kind] > counts[most] {
			most = c.kind
		}
	}
	return oldest[most].slot
}

func (d *listener) release(p *slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.slots, p)
}

// incoming is a request's body. Its connection is closed when its sender pauses for
// longer than stallTimeout.
type incoming struct {
	io.ReadCloser
	slot  *slot
	ended atomic.Bool // read to its end, or its request was answered
}

// leave is called when the request was answered. What is left of the body is read by
// the HTTP server then.
func (b *incoming) leave(w http.ResponseWriter) {
	if !b.ended.Swap(true) {
		b.slot.rest()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stallTimeout)) // fails if the connection has gone
	}
}

func (b *incoming) Read(data []byte) (int, error) {
	if b.ended.Load() { // a copy to Feishu may outlive its request, and the slot serves the next one then
		return b.ReadCloser.Read(data)
	}
	late := time.AfterFunc(stallTimeout, func() { _ = b.slot.conn.Close() })
	n, err := b.slot.read(b.ReadCloser, data)
	late.Stop()
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}
