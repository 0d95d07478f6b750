package entry

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync/atomic"
)

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
