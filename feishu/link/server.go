// Package link carries Feishu's long connection (docs/feishu.md 1). A link has two halves, the bot's and Feishu's; the
// connector's links have Feishu's only.
//
// The bot's bootstrap call passes through [Server.Bootstrap], which replaces the URL in Feishu's answer by one of the
// gateway. The bot opens its WebSocket with [Server.WebSocket], which opens one to Feishu's URL. Frames pass
// unchanged, with three exceptions:
//
//   - [Events] sees every event before the bot does, and may keep it from the bot or replace it. An event that Feishu
//     sends in several frames is one frame from here on. Package webhook uses the same Events.
//   - [Server.Inject] writes an event to the bot. The bot's acknowledgement is the receipt, and Feishu does not see it.
//   - The settings that the bot gets make it reconnect within seconds when the connection ends, as it does when the
//     sidecar restarts.
//
// [Connector.Run] keeps a link open for a bot that does not speak Feishu's protocol: Feishu gets an acknowledgement
// for each event that was committed, of any type. Package send sends what such a bot says.
//
// # What is counted
//
// Of events, also those of a webhook:
//
//	passed       an event goes to the bot
//	kept         an event does not go to the bot, and is acknowledged to Feishu
//	refused      an event does not go to the bot, and Feishu will deliver it again; also: Feishu refused the
//	             connector, which a person has to fix
//	in_progress  an event came again while the bot works on it, and is refused
//	repeated     an event came again that the bot has answered with 200, and is kept
//	tap_slow     the tap took more than feishu.AckHold
//	untapped     the tap was not asked: too many of its calls are slow
//	panic        the tap panicked
//	injected     an injected event went to the bot
//	redelivered  an injected event went to the bot again
//	delivered    an injected event was acknowledged with 200
//	ack_error    an injected event was acknowledged with another code
//
// Of long connections:
//
//	bootstrapped      a bootstrap answer with the gateway's URL went to the bot
//	bootstrap_failed  Feishu could not be reached, or its answer could not be read
//	unknown_ticket    a WebSocket came without the query of a bootstrap answer
//	too_many          a WebSocket came as one more than 64
//	upstream_refused  Feishu did not accept the WebSocket behind it
//	connected         a connection is open, with Feishu behind it
//	upstream_closed   a connection ended on Feishu's side
//	bot_closed        a connection ended on the bot's side
//	silent            a connection ended because nothing came from Feishu for long
//	bot_silent        a connection ended because nothing came from the bot for long
//	stopped           a connection ended because the sidecar stops
//	late_ack          an injected event was acknowledged when its caller no longer waited
//	bad_frame         an invalid frame or piece of an event, or an event with missing pieces
//
// Of the connector:
//
//	disconnected   a long connection ended
//	event          an event was acknowledged
//	event_refused  an event was not stored; Feishu delivers it again
//	event_late     the tap took too long; Feishu delivers the event again
package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// maxLinks is how many connections there may be; one more is refused with 503. Feishu itself allows 50 (docs/feishu.md
// 1.8).
const maxLinks = 64

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
	// Address returns the address that a request was sent to: http or https, and host:port. nil: http and its Host.
	Address func(*http.Request) (scheme, host string)
	// Loopback says that only this machine reaches the gateway. Otherwise a WebSocket is accepted only with the query of
	// a bootstrap answer of the last two minutes, once.
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
	changed chan struct{} // closed when other links may be ready; guarded by mu
}

// NewServer makes a server. It starts nothing.
func NewServer(o Options) *Server {
	s := &Server{Options: o, client: feishu.WithoutRedirects(o.Client), changed: make(chan struct{})}
	s.tickets, _ = lru.New[string, ticket](maxTickets) // fails only for a size below 1, as the next
	s.injections, _ = lru.New[string, context.CancelCauseFunc](maxInjections)
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

// Connected reports whether a bot is connected and ready: it has sent something, or has been connected for 2 s.
func (s *Server) Connected() bool {
	l, _ := s.pick()
	return l != nil
}

// Changed returns a channel that is closed when another bot's connection may be ready, or one no longer.
func (s *Server) Changed() <-chan struct{} {
	_, changed := s.pick()
	return changed
}

// pick returns the connection for an injection; nil if no bot is ready: the newest of those whose bots have
// acknowledged an injection, or else of all. changed is closed when there may be others.
func (s *Server) pick() (best *link, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l.ended.Err() == nil && l.ready.Err() != nil && s.owns(l.app) &&
			(best == nil || l.accepts.Load() || !best.accepts.Load()) {
			best = l
		}
	}
	return best, s.changed
}

// refresh is called whenever other connections may be ready, and at every ping, since the sidecar may have learned its
// app meanwhile.
func (s *Server) refresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Status is the state of all long connections.
type Status struct {
	Connections []Connection `json:"connections"`
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
	st := Status{Connections: []Connection{}}
	s.each(func(l *link) {
		if l.open.Load() {
			st.Connections = append(st.Connections, Connection{AppID: l.app, Ready: l.ready.Err() != nil, Since: l.since,
				Bot: time.Unix(0, l.botAt.Load()), Upstream: time.Unix(0, l.upAt.Load())})
		}
	})
	return st
}

// Close ends all connections with code 1012, so that the bots reconnect to the next sidecar, and returns when they
// have ended. When ctx ends first, they are cut. It may be called more than once.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	s.each(func(l *link) { l.end(stopped) })
	defer context.AfterFunc(ctx, func() { s.each(func(l *link) { l.cut() }) })()
	s.running.Wait()
	return ctx.Err()
}

// each calls f for each link.
func (s *Server) each(f func(*link)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		f(l)
	}
}

// enter counts a link, unless there are too many. If ok, the caller calls leave.
func (s *Server) enter(l *link) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil || len(s.links) == maxLinks {
		return false
	}
	s.links = append(s.links, l)
	s.running.Add(1)
	return true
}

func (s *Server) leave(l *link) {
	s.mu.Lock()
	s.links = slices.DeleteFunc(s.links, func(o *link) bool { return o == l })
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
// Feishu's answer. A query that is not in a recent bootstrap answer gets 404, on which every SDK makes that call
// again; with 403 the Go SDK would stop.
func (s *Server) WebSocket(w http.ResponseWriter, r *http.Request) {
	t, ok := s.ticket(r.URL.RawQuery)
	if !ok {
		s.Counter("unknown_ticket")
		fail(w, http.StatusNotFound, "the bootstrap call comes first")
		return
	}
	l := s.newLink(t.upstream, t.app, t.ping)
	defer l.cut()
	if !s.enter(l) {
		s.Counter("too_many")
		fail(w, http.StatusServiceUnavailable, "no more long connections are accepted")
		return
	}
	defer s.leave(l)
	resp, err := l.dial(r.Context(), s.client, t.upstream)
	if err != nil {
		s.refused(w, r, resp, err)
		return
	}
	l.bot, err = websocket.Accept(w, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the ticket is what counts, not the origin
	})
	if err != nil {
		s.Logger.Warn("a bot's websocket cannot be accepted", "app", t.app)
		_ = l.up.CloseNow()
		return
	}
	l.bot.SetReadLimit(maxMessage)
	l.changed, l.injections = s.refresh, s.injections
	s.each(func(other *link) { // the bot may have left an older one that is dead
		if other.open.Load() && other.app == l.app {
			s.running.Go(other.check)
		}
	})
	l.open.Store(true)
	s.Counter("connected")
	s.Logger.Info("a bot's long connection is open", "app", l.app)
	why := l.run()
	s.Logger.Info("a bot's long connection has ended", "app", l.app, "event", why.event, "code", int(why.code))
}

// refused answers a bot if Feishu refuses its WebSocket, with Feishu's status and Handshake headers, which the SDKs
// read (docs/feishu.md 1.2).
func (s *Server) refused(w http.ResponseWriter, r *http.Request, resp *http.Response, err error) {
	if r.Context().Err() != nil {
		return
	}
	s.Counter("upstream_refused")
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

const (
	// maxInjections is how many injected events are remembered until the bot has answered. The answer to one more than
	// these is lost, and the event is written again.
	maxInjections = 5000
	// firstWait is for a bot that has not acknowledged anything; then the frame may be lost (docs/feishu.md 1.7).
	firstWait   = 3 * time.Second
	pingTimeout = 5 * time.Second // for a WebSocket pong

	// idPrefix begins the id of every injected event, by which the bot's answer is recognized.
	idPrefix = "relay-"
)

// injections are the injected events that the bot has not answered, by their ids: what ends the wait for its answer.
type injections = lru.Cache[string, context.CancelCauseFunc]

// ErrClosed is returned after Close. Nothing was written.
var ErrClosed = fmt.Errorf("%w: the connection is closed", feishu.ErrNotInjected)

// answered records the bot's acknowledgement of an injected event, on whichever of its connections. The event may have
// been written twice.
func (l *link) answered(id string, code int) {
	cause := errDone
	if code == http.StatusOK {
		l.accepts.Store(true)
	} else {
		cause = &feishu.AnswerError{Code: code}
		l.Counter("ack_error")
		l.Logger.Warn("the bot failed to handle an injected event", "code", code)
	}
	if answer, ok := l.injections.Get(id); ok {
		answer(cause)
		l.injections.Remove(id)
	}
}

// Inject writes an event to the bot once and returns nil when the bot acknowledged it with 200. It returns
// [feishu.AnswerError] for another code, [feishu.ErrNotInjected] without a connection, [feishu.ErrInjectionEnded] when
// that ended first, [ErrClosed], or the error of ctx.
//
// A bot that has acknowledged nothing on its connection may have lost the frame (docs/feishu.md 1.7). It is written
// to that connection a second time after 3 s, unless the bot has pinged and answers WebSocket pings. A connection
// whose bot does not answer those is ended when the bot opens another one.
//
// Calls run side by side, without an order among them.
func (s *Server) Inject(ctx context.Context, event feishu.Injection) error {
	if s.closing.Err() != nil {
		return ErrClosed
	}
	l, _ := s.pick()
	if l == nil {
		return feishu.ErrNotInjected
	}
	id := idPrefix + rand.Text()
	frame := newEvent(id, l.service, event.Event)
	event.Event = nil // it may be large, and the bot may think for long
	answered, answer := context.WithCancelCause(context.Background())
	s.injections.Add(id, answer)
	// What has ended the wait does not matter if the bot has answered, too.
	if err := s.write(ctx, l, frame, event, answered); err != nil && answered.Err() == nil {
		context.AfterFunc(answered, func() {
			if context.Cause(answered) != errDone {
				return
			}
			if s.Counter("late_ack"); event.Late != nil {
				event.Late()
			}
		})
		return err
	}
	if err := context.Cause(answered); err != errDone {
		return err
	}
	s.Counter("delivered")
	return nil
}

// errDone says that the bot has acknowledged an event with 200.
var errDone = errors.New("acknowledged")

// write writes the frame of an event to l and waits until the bot has answered.
func (s *Server) write(ctx context.Context, l *link, frame []byte, event feishu.Injection,
	answered context.Context) error {
	if !l.toBot(websocket.MessageBinary, frame) {
		return feishu.ErrInjectionEnded // it may have been written
	}
	s.Counter(map[bool]feishu.Counted{false: "injected", true: "redelivered"}[event.Again])
	if event.Written != nil {
		event.Written()
	}
	var lost <-chan time.Time
	if l.acked.Load() {
		frame = nil
	} else {
		lost = time.After(firstWait)
	}
	for {
		select {
		case <-answered.Done():
			return nil
		case <-lost:
			again := frame
			if frame = nil; l.acked.Load() || l.pinged.Load() && l.answersPings(ctx) {
				continue
			}
			s.Counter("redelivered")
			if !l.toBot(websocket.MessageBinary, again) {
				return feishu.ErrInjectionEnded
			}
		case <-l.ended.Done():
			return feishu.ErrInjectionEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing.Done():
			return ErrClosed
		}
	}
}

// Counted is what the Counter of Events gets from a Server, and from a server of package webhook of these the first
// 12.
var Counted = []feishu.Counted{"passed", "kept", "refused", "in_progress", "repeated", "tap_slow", "untapped",
	"panic", "injected", "redelivered", "delivered", "ack_error", "bootstrapped", "bootstrap_failed", "unknown_ticket",
	"too_many", "upstream_refused", "connected", "upstream_closed", "bot_closed", "silent", "bot_silent", "stopped",
	"late_ack", "bad_frame"}

// CountedByConnector is what the Counter of Events gets from a Connector.
var CountedByConnector = []feishu.Counted{"connected", "disconnected", "refused", "event", "event_refused",
	"event_late", "bad_frame", "upstream_closed", "silent", "stopped", "panic"}
