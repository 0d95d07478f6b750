package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/httpapi"
	"feishu-relay/internal/attempts"
	"feishu-relay/mailapi"
)

// localAPI is the server of the local API.
type localAPI struct {
	*base
	listener  net.Listener
	server    *http.Server
	conns     connections
	failures  *attempts.Failures // wrong tokens, of the API and of tunnels
	lines     mailapi.Lines      // of a bot at /v1/mailbox/ws
	signedOut *dedup.Window      // sessions of browsers
}

func openAPI(b *base) (*localAPI, error) {
	a := &localAPI{base: b, failures: attempts.New()}
	var err error
	a.signedOut, err = b.window(".sessions.jsonl", httpapi.MaxEnded)
	return a, err
}

// listen binds the listener for what options serve.
func (a *localAPI) listen(options httpapi.Options) error {
	var err error
	if a.listener, err = net.Listen("tcp", a.cfg.ListenAddr); err != nil {
		return bindError("LISTEN_ADDR", err)
	}
	a.onClose(func() error {
		if err := a.listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	options.Token, options.Name = string(a.cfg.APIToken), string(a.cfg.Agent)+" "+a.cfg.ListenAddr
	options.Ended, options.Admitted, options.Failures = a.signedOut, a.conns.admitted, a.failures
	options.Metrics, options.Logger = a.metrics.handler(), a.log
	a.server = a.conns.server(httpapi.New(options), a.log)
	return nil
}

// stop ends the long connections and lets short requests finish.
func (a *localAPI) stop() {
	a.lines.Close()
	a.conns.close()
	ctx, cancel := context.WithTimeout(context.Background(), finishRequests)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		_ = a.server.Close()
	}
}

const (
	// maxConns and maxWaitingConns are the most connections to the local API or to WEBHOOK_ADDR, and of
	// these the most that wait. A further one takes the place of the one that has been waiting for
	// longest: clients open such a connection again. WebSockets are not counted, and have limits of their own.
	maxConns        = 512
	maxWaitingConns = 256
	// maxHeader is the most bytes of a request's header, to which net/http adds 4 KiB: many short fields
	// take twenty times their size in memory.
	maxHeader = 8 << 10
)

// connections bounds a server's connections, and closes those that no request
// came on yet when it stops: the server's shutdown would wait for each.
type connections struct {
	mu      sync.Mutex
	open    int // guarded by mu, as the rest is
	waiting map[net.Conn]waitingConn
	known   map[net.Conn]struct{} // those on which somebody has called who may
	last    int                   // turn of the newest of waiting
	closed  bool
}

// server returns a server whose connections c bounds.
func (c *connections) server(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:         c.note,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
}

// waitingConn is a connection without a request under way of somebody who may call.
type waitingConn struct {
	turn  int // in the order in which they began to wait
	state http.ConnState
	known bool // somebody who may call has called on it
}

// connKey is the key of the context value that holds a request's connection.
type connKey struct{}

// admitted notes that r's connection waits no longer.
func (c *connections) admitted(r *http.Request) {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.waiting[conn]; ok {
		delete(c.waiting, conn)
		c.known[conn] = struct{}{}
	}
}

func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		if c.waiting == nil {
			c.waiting, c.known = map[net.Conn]waitingConn{}, map[net.Conn]struct{}{}
		}
		c.last++
		_, known := c.known[conn]
		c.waiting[conn] = waitingConn{c.last, state, known}
		if state == http.StateIdle {
			return
		}
		c.open++
		if c.closed {
			c.end(conn)
		} else if c.open > maxConns || len(c.waiting) > maxWaitingConns {
			c.makeRoom()
		}
	case http.StateActive:
		if w, ok := c.waiting[conn]; ok {
			w.state = state
			c.waiting[conn] = w
		}
	case http.StateHijacked, http.StateClosed:
		delete(c.waiting, conn)
		delete(c.known, conn)
		c.open--
	}
}

// makeRoom closes the connection that has been waiting for longest, first of those on
// which nobody has called who may: the newest itself where all others are in use. The
// caller holds mu.
func (c *connections) makeRoom() {
	var longest net.Conn
	for conn, w := range c.waiting {
		if l := c.waiting[longest]; longest == nil || l.known && !w.known || l.known == w.known && w.turn < l.turn {
			longest = conn
		}
	}
	c.end(longest)
}

// end closes a connection that waits; the caller holds mu.
func (c *connections) end(conn net.Conn) {
	delete(c.waiting, conn)
	_ = conn.Close() // StateClosed follows
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn, w := range c.waiting {
		if w.state == http.StateNew {
			c.end(conn)
		}
	}
}
