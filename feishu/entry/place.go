package entry

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

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
