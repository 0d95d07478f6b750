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
	options := httpapi.Options{Token: string(s.cfg.APIToken), Send: s.Send, Hear: s.Hear, Decide: s.Decide,
		Status: func() any { return s.Status() }, Ready: s.Ready, Visible: s.members.in, Transcripts: s.transcript,
		Group: s.groupShown, Depths: s.depthsShown,
		Stream: s.doors.stream, Deliveries: deliveriesAPI{s}, Say: s.sayer(), CA: ca, Events: s.events, Outcomes: s.outcomes, Metrics: s.metrics.handler(), Lines: &s.lines, Logger: s.log}
	tools := mcptools.Options{Transcripts: s.transcript, WhoAmI: s.whoAmI, Version: s.version, Logger: s.log,
		Visible: func(channel, chat string) bool { return s.members.in(channel, relay.ChatID(chat)) }}
	if s.mail != nil { // a nil *Agent in an interface would be none
		options.Mailbox, tools.Mailbox = s.mail, s.mail
	}
	options.MCP = mcptools.Handler(mcptools.New(tools))
	s.server = &http.Server{
		Handler:           httpapi.New(options),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnState:         s.unused.note,
	}
	return nil
}

// stopServing ends the long connections and lets short requests finish.
func (s *Sidecar) stopServing() {
	s.events.Close()
	s.lines.Close()
	if s.doors.stream != nil {
		s.doors.stream.Stop()
	}
	s.unused.close()
	ctx, cancel := context.WithTimeout(context.Background(), finishRequests)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		_ = s.server.Close()
	}
}

// unusedConns are connections that no request came on yet. Clients dial them to
// have one spare; the server's shutdown would wait for each.
type unusedConns struct {
	mu     sync.Mutex
	conns  map[net.Conn]struct{} // guarded by mu
	closed bool
}

func (u *unusedConns) note(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(u.conns, c)
	case u.closed:
		_ = c.Close()
	default:
		if u.conns == nil {
			u.conns = map[net.Conn]struct{}{}
		}
		u.conns[c] = struct{}{}
	}
}

func (u *unusedConns) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for c := range u.conns {
		_ = c.Close()
	}
}
