package longconn

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/coder/websocket"
	"golang.org/x/net/http/httpguts"

	"feishu-relay/feishu/conn"
)

// Handles reports whether r is for WebSocket: Feishu has no other one.
func (s *Server) Handles(r *http.Request) bool {
	return r.Method == http.MethodGet && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket")
}

// WebSocket connects the bot to Feishu and returns when that has ended. Where
// Feishu refuses, the bot gets Feishu's answer. Beyond loopback a query
// that is not in a recent bootstrap answer gets 404, on which every SDK
// makes that call again; with 403 the Go SDK would stop.
func (s *Server) WebSocket(w http.ResponseWriter, r *http.Request) {
	ticketOf := s.tickets.take
	if s.Loopback {
		ticketOf = s.tickets.find
	}
	t, ok := ticketOf(r.URL.RawQuery)
	if !ok {
		s.Counter(countedUnknownTicket)
		fail(w, http.StatusNotFound, "the bootstrap call comes first")
		return
	}
	foreign := !s.Own(t.app)
	if !s.reserve(foreign) {
		s.Counter(countedTooMany)
		fail(w, http.StatusServiceUnavailable, "no more long connections are accepted")
		return
	}
	defer s.leave(foreign)
	l := newLink(s, t)
	defer l.stopTimers()
	ctx, cancel := context.WithCancel(r.Context())
	defer context.AfterFunc(s.closing, cancel)()
	up, resp, err := conn.Dial(ctx, s.client, t.upstream, l.feishuSpoke)
	cancel()
	if err != nil {
		s.refused(w, r, resp, err)
		return
	}
	l.up = up
	l.bot, err = websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the ticket is what counts, not the origin
		OnPingReceived: func(context.Context, []byte) bool {
			l.botSpoke()
			return true
		},
	})
	if err != nil {
		s.Logger.Warn("a bot's websocket cannot be accepted", "app", t.app)
		_ = up.Close(websocket.StatusGoingAway, "")
		return
	}
	l.bot.SetReadLimit(conn.MaxMessage)
	if foreign {
		l.bot.SetReadLimit(maxForeignMessage)
		l.up.SetReadLimit(maxForeignMessage)
	}
	s.add(l)
	l.run()
}

// refused answers a bot for whose WebSocket Feishu opened none, with the
// status and the Handshake headers that the SDKs go by (docs/feishu.md 1.2).
func (s *Server) refused(w http.ResponseWriter, r *http.Request, resp *http.Response, err error) {
	if r.Context().Err() != nil {
		return
	}
	s.Counter(countedUpstreamRefused)
	if resp == nil || resp.StatusCode < http.StatusOK {
		s.Logger.Warn("feishu's long connection cannot be reached", "err", err)
		fail(w, http.StatusBadGateway, "Feishu's long connection cannot be reached")
		return
	}
	s.Logger.Warn("feishu refused a long connection", "status", resp.StatusCode,
		"handshake_status", resp.Header.Get("Handshake-Status"),
		"handshake_autherrcode", resp.Header.Get("Handshake-Autherrcode"))
	for key, values := range resp.Header {
		if strings.HasPrefix(key, "Handshake-") || key == "Content-Type" || strings.HasPrefix(key, "X-") {
			w.Header()[key] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // at most 1 KiB, which is what the dialer kept
}
