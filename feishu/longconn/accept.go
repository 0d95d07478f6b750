package longconn

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/feishu"
)

const dialTimeout = 15 * time.Second // for Feishu's side; the bot waits meanwhile, then tries again

// Handles reports whether r is for WebSocket: Feishu has no other one.
func (s *Server) Handles(r *http.Request) bool {
	return r.Method == http.MethodGet && has(r.Header, "Connection", "upgrade") && has(r.Header, "Upgrade", "websocket")
}

func has(h http.Header, key, token string) bool {
	for _, list := range h[key] {
		for v := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(v), token) {
				return true
			}
		}
	}
	return false
}

// WebSocket connects the bot to Feishu and returns when that has ended. Where
// Feishu refuses, the bot is told so in Feishu's words. Beyond loopback a query
// that is not in a recent bootstrap answer gets 404, on which every SDK
// makes that call again; with 403 the Go SDK would give up.
func (s *Server) WebSocket(w http.ResponseWriter, r *http.Request) {
	t, ok := s.tickets.take(r.URL.RawQuery, time.Now(), s.Loopback)
	if !ok && s.Loopback {
		t, ok = s.tickets.guess(r.URL.RawQuery)
	}
	if !ok {
		s.Counter("unknown_ticket")
		fail(w, http.StatusNotFound, "the bootstrap call comes first")
		return
	}
	foreign := !s.Own(t.app)
	if !s.reserve(foreign) {
		s.Counter("too_many")
		fail(w, http.StatusServiceUnavailable, "no more long connections are accepted")
		return
	}
	defer s.leave(foreign)
	limit := int64(maxMessage)
	if foreign {
		limit = maxForeignMessage
	}
	var l *link // once it is there, WebSocket pings count as life
	up, resp, err := s.dial(r.Context(), t, limit, func() { l.upstreamSpoke() })
	if err != nil {
		s.refused(w, r, resp, err)
		return
	}
	l = newLink(s, t, up)
	l.bot, err = websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the ticket is what counts, not the origin
		OnPingReceived: func(context.Context, []byte) bool {
			l.botSpoke()
			return true
		},
	})
	if err != nil {
		s.log.Warn("a bot's websocket cannot be accepted", "app", t.app)
		_ = up.Close(websocket.StatusGoingAway, "")
		return
	}
	l.bot.SetReadLimit(limit)
	if !s.add(l) {
		l.end(stopped)
	}
	l.run()
}

func (s *Server) dial(ctx context.Context, t ticket, limit int64, spoke func()) (*websocket.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	up, resp, err := websocket.Dial(ctx, t.upstream, &websocket.DialOptions{
		HTTPClient: s.client,
		HTTPHeader: http.Header{"User-Agent": nil}, // the SDKs send none
		OnPingReceived: func(context.Context, []byte) bool {
			spoke()
			return true
		},
	})
	if err == nil {
		up.SetReadLimit(limit)
	}
	return up, resp, err
}

// refused answers a bot behind whose WebSocket there is none at Feishu, with the
// status and the Handshake headers that the SDKs go by (docs/feishu.md 1.2).
func (s *Server) refused(w http.ResponseWriter, r *http.Request, resp *http.Response, err error) {
	if r.Context().Err() != nil {
		return
	}
	s.Counter("upstream_refused")
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode < http.StatusOK {
		s.log.Warn("feishu's long connection cannot be reached", "err", feishu.WithoutURL(err))
		fail(w, http.StatusBadGateway, "Feishu's long connection cannot be reached")
		return
	}
	s.log.Warn("feishu refuses a long connection", "status", resp.StatusCode,
		"handshake_status", resp.Header.Get("Handshake-Status"), "handshake_autherrcode", resp.Header.Get("Handshake-Autherrcode"))
	for key, values := range resp.Header {
		if strings.HasPrefix(key, "Handshake-") || key == "Content-Type" || strings.HasPrefix(key, "X-") {
			w.Header()[key] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // at most 1 KiB, which is what the dialer kept
}
