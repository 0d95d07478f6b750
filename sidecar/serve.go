package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/mcptools"
	"feishu-relay/relay"
)

func (s *Sidecar) openAPI() error {
	var err error
	if s.listener, err = net.Listen("tcp", s.cfg.ListenAddr); err != nil {
		return bindError("LISTEN_ADDR", err)
	}
	s.onClose(func() error {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	var ca []byte
	if s.front != nil {
		ca = s.front.entry.CA()
	}
	options := httpapi.Options{Token: string(s.cfg.APIToken), Name: string(s.cfg.Agent) + " " + s.cfg.ListenAddr,
		Ended: s.signedOut, Send: s.Send, Hear: s.Hear, Decide: s.Decide,
		Status: func() any { return s.Status() }, Ready: s.Ready, Visible: s.members.in, Transcripts: s.transcript,
		Group: s.groupShown, Depths: s.depthsShown,
		Stream: s.doors.stream, Deliveries: deliveriesAPI{s}, Say: s.sayer(), CA: ca, Events: s.events, Outcomes: s.outcomes, Metrics: s.metrics.handler(), Lines: &s.lines,
		Admitted: s.conns.admitted, Failures: s.failures, Logger: s.log}
	tools := mcptools.Options{Transcripts: s.transcript, WhoAmI: s.whoAmI, Version: s.version, Logger: s.log,
		Visible: func(channel, chat string) bool { return s.members.in(channel, relay.ChatID(chat)) }}
	if s.mail != nil { // a nil *Agent in an interface would be none
		options.Mailbox, tools.Mailbox = s.mail, s.mail
	}
	options.MCP = mcptools.Handler(mcptools.New(tools))
	s.server = s.conns.server(httpapi.New(options), s.log)
	return nil
}

// stopServing ends the long connections and lets short requests finish.
func (s *Sidecar) stopServing() {
	s.events.Close()
	s.lines.Close()
	if s.doors.stream != nil {
		s.doors.stream.Stop()
	}
	s.conns.close()
	ctx, cancel := context.WithTimeout(context.Background(), finishRequests)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		_ = s.server.Close()
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
