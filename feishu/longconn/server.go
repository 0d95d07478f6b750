// Package longconn is between a bot's Feishu SDK and Feishu's long connection (docs/feishu.md 1), and
// can write injected events into it.
//
// The bot's bootstrap call passes through [Server.Bootstrap], which replaces the
// URL in Feishu's answer by one of the gateway. The bot then opens its WebSocket with
// [Server.WebSocket], which opens one to Feishu's URL. Frames
// pass unchanged, with three exceptions:
//
//   - The tap sees every event before the bot does, in one piece even if
//     Feishu sent it in several, and may keep it from the bot or replace it.
//   - [Server.Inject] writes an event to the bot. The bot's acknowledgement is
//     the receipt, and Feishu does not see it.
//   - The settings that the bot gets make it reconnect within seconds when
//     the connection ends, as it does when the sidecar restarts.
//
// An event's path to the bot, and that of the bot's acknowledgement to Feishu, is event.go.
//
// # Goroutines
//
// Each connection has two, which read one side and write to the other
// themselves: a slow reader slows down the sender. They end with the connection. One more
// for each connection runs the follow-ups of its events, in their order, while there are any.
package longconn

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http/httpguts"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
	"feishu-relay/internal/wait"
)

const (
	// connections side by side; one more is refused with 503. Feishu itself allows 50
	// (docs/feishu.md 1.8)
	maxLinks     = 64
	maxForeign   = 8               // of them of other apps than the sidecar's own, or of an unknown app
	maxInjecting = 4096            // calls of Inject that wait; one more fails with conn.ErrBusy
	maxSlow      = 8               // calls of the tap beyond feishu.AckHold; with as many, events pass without it
	maxTasks     = 4096            // follow-ups of events that wait; one more is dropped
	closeTimeout = 5 * time.Second // for the closing handshakes; then the connections are cut off
)

// Options configures a server. What has no default here is required.
type Options struct {
	conn.Options
	// Upstream is FEISHU_BASE_URL, where the bootstrap call goes.
	Upstream *url.URL
	// Client makes that call and opens the WebSockets. Redirects are not
	// followed. Its transport should not add an Accept-Encoding of its own.
	Client *http.Client
	// PublicURL is the gateway's address for the bot; nil: the one that Address returns.
	PublicURL *url.URL
	// Address returns the address that a request was sent to: http or https, and
	// host:port. nil: by the request's TLS and Host.
	Address func(*http.Request) (scheme, host string)
	// Loopback says that only this machine reaches the gateway. Otherwise a
	// WebSocket is accepted only with the query of a bootstrap answer of the
	// last two minutes, once.
	Loopback bool
	// Bootstrapped is called with the app of a bootstrap call that Feishu accepted, and
	// its secret, which must stay in memory; "" if it has none.
	Bootstrapped func(appID, appSecret string)
}

// Server is where the bot opens its long connection. Its methods are safe for
// concurrent use.
type Server struct {
	Options
	client     *http.Client
	tickets    tickets
	load       conn.Load // of the taps of all connections
	injections *conn.Injections
	closing    context.Context // done with Close
	cancel     context.CancelFunc
	links      sync.WaitGroup // and the follow-ups of their events

	mu        sync.Mutex
	reserved  int           // connections, including those being opened; guarded by mu
	foreign   int           // of them of other apps; guarded by mu
	open      []*link       // oldest first; guarded by mu
	connected bool          // as last reported; guarded by mu
	changed   chan struct{} // guarded by mu
	arrived   chan struct{} // closed when an injection may find a connection; guarded by mu
}

// New makes a server. It starts nothing.
func New(o Options) *Server {
	if o.Address == nil {
		o.Address = address
	}
	o.Answered = cmp.Or(o.Answered, dedup.Memory(0))
	s := &Server{
		Options: o, client: feishu.WithoutRedirects(o.Client), tickets: newTickets(),
		changed: make(chan struct{}), arrived: make(chan struct{}),
		injections: conn.NewInjections(maxInjecting, o.Counter, o.Logger),
	}
	s.closing, s.cancel = context.WithCancel(context.Background())
	return s
}

func address(r *http.Request) (scheme, host string) {
	if r.TLS != nil {
		return "https", r.Host
	}
	return "http", r.Host
}

// Connected reports whether a bot is connected and ready: it has sent something, or has
// been connected for 2 s.
func (s *Server) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

// Changed returns a channel that is closed at the next change of Connected.
func (s *Server) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Status is the state of all long connections.
type Status struct {
	Connections []Connection `json:"connections"`
	Waiting     int          `json:"waiting"` // injected events that the bot has not acknowledged
}

// Connection is one bot with Feishu behind it.
type Connection struct {
	AppID    string    `json:"app_id,omitempty"` // empty: it came without a bootstrap
	Ready    bool      `json:"ready"`            // to receive events
	Since    time.Time `json:"since"`
	Bot      time.Time `json:"bot"`      // last heard from
	Upstream time.Time `json:"upstream"` // last heard from
}

// Status returns the state of all long connections.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Connections: make([]Connection, 0, len(s.open)), Waiting: s.injections.Len()}
	for _, l := range s.open {
		st.Connections = append(st.Connections, l.status())
	}
	return st
}

// Close ends all connections with code 1012, so that the bots reconnect to the
// next sidecar, and returns when they have ended and the follow-ups of their events are
// done, after closeTimeout at the latest. It may be called more than once.
func (s *Server) Close() error {
	s.mu.Lock()
	s.cancel()
	open := slices.Clone(s.open)
	s.mu.Unlock()
	for _, l := range open {
		l.end(stopped)
	}
	if wait.Group(&s.links, closeTimeout) {
		return nil
	}
	for _, l := range open {
		l.cut()
	}
	return errors.New("a connection did not end in time and was cut off")
}

// reserve counts a connection, unless there are too many. If ok, the caller calls leave.
func (s *Server) reserve(foreign bool) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil || s.reserved == maxLinks || foreign && s.foreign == maxForeign {
		return false
	}
	s.reserved++
	if foreign {
		s.foreign++
	}
	s.links.Add(1)
	return true
}

func (s *Server) leave(foreign bool) {
	s.mu.Lock()
	s.reserved--
	if foreign {
		s.foreign--
	}
	s.mu.Unlock()
	s.links.Done()
}

// add adds an open connection, unless the server is closed.
func (s *Server) add(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		l.end(stopped)
		return
	}
	s.open = append(s.open, l)
}

func (s *Server) remove(l *link) {
	s.mu.Lock()
	s.open = slices.DeleteFunc(s.open, func(o *link) bool { return o == l })
	s.mu.Unlock()
	s.refresh()
}

// refresh updates what Connected returns. It is called whenever that may have
// changed, and at every ping, since the sidecar may have learned its app meanwhile.
func (s *Server) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	connected := s.best(nil) != nil
	if connected {
		close(s.arrived)
		s.arrived = make(chan struct{})
	}
	if connected != s.connected {
		s.connected = connected
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// pick returns the connection for an injection, other than not; nil if no bot is ready. arrived is
// closed when there may be another one.
func (s *Server) pick(not *link) (l *link, arrived <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.best(not), s.arrived
}

// best returns the newest of the connections whose bots have acknowledged an injection, or else of
// all that are ready. The caller holds mu.
func (s *Server) best(not *link) *link {
	var best *link
	for _, l := range s.open {
		usable := l != not && l.ended.Err() == nil && l.isReady() && s.Own(l.app)
		if usable && (best == nil || l.accepts.Load() || !best.accepts.Load()) {
			best = l
		}
	}
	return best
}

// Handles reports whether r opens a WebSocket.
func (s *Server) Handles(r *http.Request) bool {
	return r.Method == http.MethodGet && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket")
}

// WebSocket connects the bot to Feishu and returns when the connection has ended. If
// Feishu refuses, the bot gets Feishu's answer. Without Loopback a query
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

// refused answers a bot if Feishu refuses its WebSocket, with Feishu's
// status and Handshake headers, which the SDKs read (docs/feishu.md 1.2).
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
	_, _ = io.Copy(w, resp.Body) // at most 1 KiB, which the dialer keeps
}

// What a long connection counts, beside what package conn counts.
const (
	countedBootstrapped feishu.Counted = "bootstrapped" // a bootstrap answer with the gateway's URL went to the bot
	// Feishu could not be reached, or its answer could not be read
	countedBootstrapFailed feishu.Counted = "bootstrap_failed"
	countedConnected       feishu.Counted = "connected"        // a bot is connected, and Feishu behind it
	countedUnknownTicket   feishu.Counted = "unknown_ticket"   // a WebSocket came without the query of a bootstrap answer
	countedTooMany         feishu.Counted = "too_many"         // a WebSocket came as one more than 64
	countedUpstreamRefused feishu.Counted = "upstream_refused" // Feishu did not accept the WebSocket behind it
	countedUpstreamClosed  feishu.Counted = "upstream_closed"  // a connection ended on Feishu's side
	countedBotClosed       feishu.Counted = "bot_closed"       // a connection ended on the bot's side
	// a connection ended because Feishu did not answer the bot's ping
	countedSilent feishu.Counted = "silent"
	// a connection ended because nothing came from the bot for long
	countedBotSilent feishu.Counted = "bot_silent"
	countedStopped   feishu.Counted = "stopped" // a connection ended because the sidecar stops
	// an acknowledgement went to Feishu before its event's follow-up was done
	countedAckLate feishu.Counted = "ack_late"
)

// Counted is all that Options.Counter gets.
var Counted = slices.Concat(conn.Counted, []feishu.Counted{
	countedBootstrapped, countedBootstrapFailed, countedConnected, countedUnknownTicket, countedTooMany,
	countedUpstreamRefused, countedUpstreamClosed, countedBotClosed, countedSilent, countedBotSilent,
	countedStopped, countedAckLate, conn.LateAck,
})
