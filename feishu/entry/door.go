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

// conn is a connection whose first bytes may have been read already: one that
// was accepted, or one that was opened under CONNECT inside of such a one.
type conn struct {
	net.Conn
	ahead  []byte // read, and not yet given out
	door   *door
	place  *place
	outer  bool        // it was accepted, and has the place to give back
	target string      // under CONNECT: the host that was asked for
	asked  bool        // a request came
	served atomic.Bool // the HTTP server has it, and what is written are its answers
}

// Read gives out what was read ahead first.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 && len(p) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Write writes an answer as slowly as its client may take it, and all else as it is.
func (c *conn) Write(p []byte) (int, error) {
	if c.served.Load() {
		return c.place.write(c.Conn, p)
	}
	return c.Conn.Write(p)
}

// CloseWrite says that nothing more follows, where the connection knows how to.
func (c *conn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	if c.outer {
		c.door.release(c.place)
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

// Address tells how the bot reached us with r: the scheme, "http" or "https",
// and the host that the request named, with its port if it has one. To a bot
// that uses us as its proxy a host name means Feishu; it gets "http" and the
// address that its connection came in on, which always speaks plain HTTP too.
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

// place is one of the connections that a door has open.
type place struct {
	conn net.Conn
	from netip.Prefix

	mu       sync.Mutex // guards what follows; taken after that of the door
	idle     bool       // no request is served on it
	waits    int        // reads of a body and writes to the client under way
	began    time.Time  // of the request, of the pause before it, or of the last write
	body     int64      // bytes that came of the body since
	answered bool       // a request on it was answered
	closed   bool       // it made room for another
}

// begin notes that the client is waited for again: for a request, or for more of one.
func (p *place) begin(answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle, p.began, p.body = true, time.Now(), 0
	p.answered = p.answered || answered
}

// work notes that the client waits for us. It is false if the connection was closed.
func (p *place) work() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = false
	return !p.closed
}

// rest notes that what is left of a request is waited for.
func (p *place) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = true
}

// read does a read of the request's body.
func (p *place) read(r io.Reader, data []byte) (n int, err error) {
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

// write does a write to the client, which may take its time as long as it takes
// maxWrite in writeTimeout.
func (p *place) write(c net.Conn, data []byte) (n int, err error) {
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

// The kinds of clients that are waited for.
const (
	neverAnswered = iota // no request of the connection was answered yet
	answered
	sending // a body comes at minRate at least
	kinds
)

// candidate is a place as it was when room was looked for.
type candidate struct {
	*place
	kind  int
	since time.Time // when the waiting began; each KiB of a body makes it a second later
}

// candidate is false if the client is not waited for.
func (p *place) candidate() (candidate, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := candidate{place: p, since: p.began.Add(time.Duration(p.body/minRate) * time.Second)}
	switch {
	case c.since.After(time.Now()):
		c.kind = sending
	case p.answered:
		c.kind = answered
	}
	return c, p.idle || p.waits > 0
}

// makeRoom closes the connection, unless its client waits for us by now.
func (p *place) makeRoom() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.idle && p.waits == 0 {
		return false
	}
	p.closed = true
	_ = p.conn.Close()
	return true
}

// sender is what counts as one address: all of this machine, an address of IPv4,
// and a network of IPv6, of which a host may take any address.
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

// admit takes a place for a connection that was accepted, where need be that of
// another; nil: there is no room. It never waits: others are to be accepted.
func (d *door) admit(c net.Conn) *place {
	p := &place{conn: c, from: sender(c)}
	p.begin(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	same := 0
	for q := range d.places {
		if q.from == p.from {
			same++
		}
	}
	if same >= maxPerAddr || len(d.places) >= maxConns {
		d.entry.count("crowded")
		d.entry.once("too many connections: those are closed whose clients keep the gateway waiting",
			"max", maxConns, "of_one_address", maxPerAddr)
		for {
			q := d.expendable(p, same >= maxPerAddr)
			if q == nil {
				return nil
			}
			if q.makeRoom() {
				delete(d.places, q)
				break
			}
		}
	}
	d.places[p] = struct{}{}
	return p
}

// expendable finds the place that is p's to take, of p's address where sameAddr: of
// the kind of those waited for that most are of, the one that has been waited for
// longest. p itself thus stays while as many others come as there are places,
// whatever the clients do that hold them. The caller holds mu.
func (d *door) expendable(p *place, sameAddr bool) *place {
	var counts [kinds]int
	var oldest [kinds]candidate
	most := neverAnswered
	for q := range d.places {
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
	return oldest[most].place
}

func (d *door) release(p *place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.places, p)
}

// incoming is a request's body. Its connection is closed when its sender pauses for
// longer than stallTimeout.
type incoming struct {
	io.ReadCloser
	place *place
	ended atomic.Bool // read to its end, or its request was answered
}

// leave is called when the request was answered. What is left of the body is read by
// the HTTP server then.
func (b *incoming) leave(w http.ResponseWriter) {
	if !b.ended.Swap(true) {
		b.place.rest()
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stallTimeout)) // fails if the connection has gone
	}
}

func (b *incoming) Read(data []byte) (int, error) {
	if b.ended.Load() { // a copy to Feishu may outlive its request, and the place has another then
		return b.ReadCloser.Read(data)
	}
	late := time.AfterFunc(stallTimeout, func() { _ = b.place.conn.Close() })
	n, err := b.place.read(b.ReadCloser, data)
	late.Stop()
	if err != nil {
		b.ended.Store(true)
	}
	return n, err
}
