// Package link carries Feishu's long connection (docs/feishu.md 1). A link has two halves, the bot's and Feishu's; the
// connector's links have Feishu's only.
//
// The bot's bootstrap call passes through [Server.Bootstrap], which replaces the URL in Feishu's answer by one of the
// gateway. The bot opens its WebSocket with [Server.WebSocket], which opens one to Feishu's URL. Frames pass unchanged,
// with three exceptions:
//
//   - [Events] sees every event before the bot does, in one piece even if Feishu sent it in several, and may keep it from
//     the bot or replace it. Package webhook uses the same Events.
//   - [Server.Inject] writes an event to the bot. The bot's acknowledgement is the receipt, and Feishu does not see it.
//   - The settings that the bot gets make it reconnect within seconds when the connection ends, as it does when the
//     sidecar restarts.
//
// [Connector.Run] keeps a link open for a bot that does not speak Feishu's protocol: Feishu gets an acknowledgement for
// each event that was committed, of any type. Package send sends what such a bot says.
package link

import (
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
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/net/http/httpguts"

	"feishu-relay/feishu"
)

// Bounds of the bots' connections.
const (
	// maxLinks is how many there may be; one more is refused with 503. Feishu itself allows 50 (docs/feishu.md 1.8).
	maxLinks          = 64
	maxForeign        = 8       // of them of other apps than the sidecar's own
	maxForeignMessage = 1 << 20 // bytes of a message of another app; a larger one ends the link
)

// Options configures a server. What has no default here is required.
type Options struct {
	*Events
	// Upstream is FEISHU_BASE_URL, where the bootstrap call goes.
	Upstream *url.URL
	// Client makes that call and opens the WebSockets. Redirects are not followed. Its transport should not add an
	// Accept-Encoding of its own.
	Client *http.Client
	// PublicURL is the gateway's address for the bot; nil: the one that Address returns.
	PublicURL *url.URL
	// Address returns the address that a request was sent to: http or https, and host:port. nil: by the request's TLS and
	// Host.
	Address func(*http.Request) (scheme, host string)
	// Loopback says that only this machine reaches the gateway. Otherwise a WebSocket is accepted only with the query of a
	// bootstrap answer of the last two minutes, once.
	Loopback bool
	// Bootstrapped is called with the app of a bootstrap call that Feishu accepted, and its secret, which must stay in
	// memory; "" if it has none.
	Bootstrapped func(appID, appSecret string)
}

// Server is where the bot opens its long connection. Its methods are safe for concurrent use.
type Server struct {
	Options
	client     *http.Client
	tickets    *lru.Cache[string, ticket] // of recent bootstrap answers, by the query of their URL
	injections *injections
	closing    context.Context // done with Close
	stop       context.CancelFunc
	running    sync.WaitGroup // of links

	mu      sync.Mutex
	links   []*link       // oldest first; guarded by mu
	open    []*link       // those that carry frames; guarded by mu
	ready   []*link       // of these, the sidecar's own whose bots can receive; guarded by mu
	changed chan struct{} // closed when ready changes; guarded by mu
}

// NewServer makes a server. It starts nothing.
func NewServer(o Options) *Server {
	if o.Address == nil {
		o.Address = address
	}
	s := &Server{Options: o, client: feishu.WithoutRedirects(o.Client), injections: newInjections(),
		changed: make(chan struct{})}
	s.tickets, _ = lru.New[string, ticket](maxTickets) // fails only for a size below 1
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

func address(r *http.Request) (scheme, host string) {
	if r.TLS != nil {
		return "https", r.Host
	}
	return "http", r.Host
}

// Connected reports whether a bot is connected and ready: it has sent something, or has been connected for 2 s.
func (s *Server) Connected() bool {
	l, _ := s.pick(nil)
	return l != nil
}

// Changed returns a channel that is closed when another bot's connection is ready, or one no longer.
func (s *Server) Changed() <-chan struct{} {
	_, changed := s.pick(nil)
	return changed
}

// pick returns the connection for an injection, other than not; nil if no bot is ready: the newest of those whose bots
// have acknowledged an injection, or else of all. changed is closed when there are others.
func (s *Server) pick(not *link) (best *link, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.ready {
		if l != not && l.ended.Err() == nil && (best == nil || l.accepts.Load() || !best.accepts.Load()) {
			best = l
		}
	}
	return best, s.changed
}

// refresh updates which connections are ready. It is called whenever that may have changed, and at every ping, since the
// sidecar may have learned its app meanwhile.
func (s *Server) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := slices.DeleteFunc(slices.Clone(s.open), func(l *link) bool {
		return l.ended.Err() != nil || l.ready.Err() == nil || !s.owns(l.app)
	})
	if !slices.Equal(ready, s.ready) {
		s.ready = ready
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// Status is the state of all long connections.
type Status struct {
	Connections []Connection `json:"connections"`
	Waiting     int          `json:"waiting"` // injected events that the bot has not acknowledged
}

// Connection is one bot with Feishu behind it.
type Connection struct {
	AppID    string    `json:"app_id,omitempty"`
	Ready    bool      `json:"ready"` // to receive events
	Since    time.Time `json:"since"`
	Bot      time.Time `json:"bot"`      // last heard from
	Upstream time.Time `json:"upstream"` // last heard from
}

// Status returns the state of all long connections.
func (s *Server) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Connections: make([]Connection, 0, len(s.open)), Waiting: s.injections.len()}
	for _, l := range s.open {
		st.Connections = append(st.Connections, Connection{AppID: l.app, Ready: l.ready.Err() != nil, Since: l.since,
			Bot: time.Unix(0, l.botAt.Load()), Upstream: time.Unix(0, l.upAt.Load())})
	}
	return st
}

// Reconnect ends the connections of the sidecar's own app, so that the bot opens another one.
func (s *Server) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.open {
		if s.owns(l.app) {
			l.end(deaf)
		}
	}
}

// Close ends all connections with code 1012, so that the bots reconnect to the next sidecar, and returns when they have
// ended. When ctx ends first, they are cut. It may be called more than once.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.stop()
	links := slices.Clone(s.links)
	s.mu.Unlock()
	for _, l := range links {
		l.end(stopped)
	}
	ended := make(chan struct{})
	go func() { s.running.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	for _, l := range links {
		l.cut()
	}
	return errors.New("a connection did not end in time and was cut off")
}

// enter counts a link, unless there are too many. If ok, the caller calls leave.
func (s *Server) enter(l *link) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	foreign := 0
	for _, other := range s.links {
		if !s.owns(other.app) {
			foreign++
		}
	}
	if s.closing.Err() != nil || len(s.links) == maxLinks || !s.owns(l.app) && foreign >= maxForeign {
		return false
	}
	s.links = append(s.links, l)
	s.running.Add(1)
	return true
}

func (s *Server) leave(l *link) {
	s.mu.Lock()
	for _, list := range []*[]*link{&s.links, &s.open} {
		*list = slices.DeleteFunc(*list, func(o *link) bool { return o == l })
	}
	s.mu.Unlock()
	s.refresh()
	s.running.Done()
}

// Handles reports whether r opens a WebSocket.
func (s *Server) Handles(r *http.Request) bool {
	return r.Method == http.MethodGet && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket")
}

// WebSocket connects the bot to Feishu and returns when the connection has ended. If Feishu refuses, the bot gets
// Feishu's answer. A query that is not in a recent bootstrap answer gets 404, on which every SDK makes that call again;
// with 403 the Go SDK would stop.
func (s *Server) WebSocket(w http.ResponseWriter, r *http.Request) {
	t, ok := s.ticket(r.URL.RawQuery)
	if !ok {
		s.Counter(countedUnknownTicket)
		fail(w, http.StatusNotFound, "the bootstrap call comes first")
		return
	}
	l := s.newLink(t.upstream, t.app, t.ping)
	defer l.drop()
	if !s.enter(l) {
		s.Counter(countedTooMany)
		fail(w, http.StatusServiceUnavailable, "no more long connections are accepted")
		return
	}
	defer s.leave(l)
	ctx, cancel := context.WithCancel(r.Context())
	defer context.AfterFunc(l.ended, cancel)()
	resp, err := l.dial(ctx, s.client, t.upstream)
	cancel()
	if err != nil {
		s.refused(w, r, resp, err)
		return
	}
	l.bot, err = websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the ticket is what counts, not the origin
		OnPingReceived:     func(context.Context, []byte) bool { l.botSpoke(); return true },
	})
	if err != nil {
		s.Logger.Warn("a bot's websocket cannot be accepted", "app", t.app)
		_ = l.up.CloseNow()
		return
	}
	l.bot.SetReadLimit(maxMessage)
	if !s.owns(t.app) {
		l.bot.SetReadLimit(maxForeignMessage)
		l.up.SetReadLimit(maxForeignMessage)
	}
	l.changed, l.injections = s.refresh, s.injections
	s.mu.Lock()
	s.open = append(s.open, l)
	s.mu.Unlock()
	s.Counter(countedConnected)
	s.Logger.Info("a bot's long connection is open", "app", l.app)
	why := l.run()
	s.Logger.Info("a bot's long connection has ended", "app", l.app, "event", why.event, "code", int(why.code))
}

// refused answers a bot if Feishu refuses its WebSocket, with Feishu's status and Handshake headers, which the SDKs read
// (docs/feishu.md 1.2).
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

// What a long connection counts, beside CountedEvents.
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
	countedSilent          feishu.Counted = "silent"           // a connection ended because Feishu did not answer a ping
	countedBotSilent       feishu.Counted = "bot_silent"       // a connection ended because nothing came from the bot for long
	countedDeaf            feishu.Counted = "deaf"             // a connection ended because Feishu delivered no events on it
	countedStopped         feishu.Counted = "stopped"          // a connection ended because the sidecar stops
	countedLateAck         feishu.Counted = "late_ack"         // an injected event was acknowledged when its caller no longer waited
	// an invalid frame or piece of an event, or an event with missing pieces
	countedBadFrame feishu.Counted = "bad_frame"
)

// Counted is all that the Counter of a Server's Events gets.
var Counted = slices.Concat(CountedEvents, []feishu.Counted{
	countedBootstrapped, countedBootstrapFailed, countedConnected, countedUnknownTicket, countedTooMany,
	countedUpstreamRefused, countedUpstreamClosed, countedBotClosed, countedSilent, countedBotSilent, countedDeaf,
	countedStopped, countedLateAck, countedBadFrame,
})
