package redisrelay

import (
	"io"
	"net"
	"sync"
	"testing"

	"feishu-relay/relay"
)

type relayStatus = relay.Status

// listener serves each connection with serve and returns its address.
func listener(t *testing.T, serve func(io.ReadWriteCloser)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}

// hole is a TCP proxy that can become a black hole: it goes on accepting
// connections and bytes, and passes nothing on. What it swallowed is gone, also
// when it opens again, and connections from before stay dead, as after a
// lost route.
type hole struct {
	addr string

	mu     sync.Mutex
	closed bool                  // guarded by mu
	conns  map[net.Conn]struct{} // guarded by mu
}

func newHole(t *testing.T, target string) *hole {
	t.Helper()
	h := &hole{conns: map[net.Conn]struct{}{}}
	h.addr = listener(t, func(client io.ReadWriteCloser) {
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			return
		}
		dead := h.add(client.(net.Conn), server)
		var both sync.WaitGroup
		both.Go(func() { h.pump(server, client, dead) })
		both.Go(func() { h.pump(client, server, dead) })
		both.Wait()
	})
	t.Cleanup(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for conn := range h.conns {
			_ = conn.Close()
		}
	})
	return h
}

// add notes a pair and returns whether it is dead already, for good.
func (h *hole) add(pair ...net.Conn) *bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range pair {
		h.conns[conn] = struct{}{}
	}
	return new(h.closed)
}

func (h *hole) pump(dst io.WriteCloser, src io.Reader, dead *bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			h.mu.Lock()
			silent := *dead || h.closed
			h.mu.Unlock()
			if !silent {
				_ = dst.Close() // else not even the end gets through
			}
			return
		}
		h.mu.Lock()
		*dead = *dead || h.closed
		pass := !*dead
		h.mu.Unlock()
		if pass {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

func (h *hole) set(closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = closed
}
