package feishusim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits of what bots and people make; beyond a limit the oldest is dropped. Apps, users, groups and faults are added
// by whoever runs the server, without a limit.
const (
	maxMessages   = 10_000
	maxCards      = 2_000
	maxDeliveries = 20_000
	maxPending    = 10_000 // unacknowledged events of one app
)

const (
	tenant   = "feishusim"   // the tenant key
	tokenTTL = 2 * time.Hour // of a tenant token
)

// Options configure a server. The zero value behaves like Feishu.
type Options struct {
	// Redeliver are the waits before an event is delivered again. nil: 15 s, 5 min, 1
	// h, 6 h (docs/feishu.md 2.4); empty: never again. In addition, an event that is
	// not acknowledged is delivered again when the app reconnects.
	Redeliver  []time.Duration
	AckTimeout time.Duration // of an event; 0: 3 s
	// GroupQPS is how many messages a second all bots together may send to one
	// chat. 0: no limit; Feishu's own is 5 (docs/feishu.md 6.3).
	GroupQPS int
	// StreamFor is how long a card of CardKit may stream; 0: 10 min. The first text after that is refused with 200850,
	// the others with 300309.
	StreamFor time.Duration
	// PushAfter is the time after which a connection that has not pinged gets
	// events anyway; 0: 500 ms, negative: never. The Node SDK loses events that
	// come before its ping (docs/feishu.md 1.7); the Go SDK sends none at once
	// after a reconnect.
	PushAfter time.Duration
	Client    ClientConfig // sent to the long connections; zero: Feishu's own
}

// FromEnv sets the options that variables of the environment have: SIM_REDELIVER is a comma list of the waits
// before an event that was not acknowledged is delivered again, such as "3s,8s", and SIM_STREAM_FOR is StreamFor.
func (o *Options) FromEnv(getenv func(string) string) (err error) {
	if streams := getenv("SIM_STREAM_FOR"); streams != "" {
		if o.StreamFor, err = time.ParseDuration(streams); err != nil || o.StreamFor <= 0 {
			return fmt.Errorf("SIM_STREAM_FOR: %.20q: want a time like 20s", streams)
		}
	}
	for one := range strings.SplitSeq(getenv("SIM_REDELIVER"), ",") {
		if one == "" {
			continue
		}
		d, err := time.ParseDuration(strings.TrimSpace(one))
		if err != nil || d <= 0 {
			return fmt.Errorf("SIM_REDELIVER: %.20q: want times like 3s,8s", one)
		}
		o.Redeliver = append(o.Redeliver, d)
	}
	return nil
}

// ClientConfig is the settings of a client's long connection, in seconds
// (docs/feishu.md 1.1).
type ClientConfig struct {
	ReconnectCount    int
	ReconnectInterval int
	ReconnectNonce    int
	PingInterval      int
}

// Server is a simulated Feishu. Its methods may be called from any goroutine.
type Server struct {
	opts    Options
	handler http.Handler
	client  *http.Client // for webhooks
	ctx     context.Context
	cancel  context.CancelFunc
	tasks   sync.WaitGroup // connections, webhook posts, listeners

	mu         sync.Mutex
	closed     bool
	servers    []*http.Server
	apps       map[string]*app
	users      map[string]*User
	chats      map[string]*chat
	order      []string // ids of apps and users in the order of their creation
	messages   map[string]*message
	sent       []*message         // in order
	threads    map[string]*thread // omt_…
	cards      map[string]*card
	cardOrder  []string
	files      []*file
	fileBytes  int
	tokens     map[string]*token
	tickets    map[string]*ticket
	uuids      map[string]sentOnce
	faults     []*fault
	requests   []Request
	recorded   int // bytes of their bodies
	deliveries []*Delivery
	revision   uint64        // grows with every new or changed message
	changed    chan struct{} // closed at the next change
	watchers   map[chan Activity]struct{}
}

// New returns a server without apps, users or groups. It opens no listener and
// starts no goroutine; [Server.Close] ends those started later.
func New(o Options) *Server {
	if o.Redeliver == nil {
		o.Redeliver = []time.Duration{15 * time.Second, 5 * time.Minute, time.Hour, 6 * time.Hour}
	}
	o.AckTimeout = cmp.Or(o.AckTimeout, 3*time.Second)
	o.PushAfter = cmp.Or(o.PushAfter, 500*time.Millisecond)
	if o.Client == (ClientConfig{}) {
		o.Client = ClientConfig{ReconnectCount: -1, ReconnectInterval: 120, ReconnectNonce: 30, PingInterval: 120}
	}
	s := &Server{
		opts: o,
		apps: map[string]*app{}, users: map[string]*User{}, chats: map[string]*chat{},
		messages: map[string]*message{}, threads: map[string]*thread{},
		cards: map[string]*card{}, tokens: map[string]*token{}, tickets: map[string]*ticket{},
		uuids: map[string]sentOnce{}, changed: make(chan struct{}), watchers: map[chan Activity]struct{}{},
		client: newWebhookClient(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.handler = s.routes()
	return s
}

// Handler answers Feishu's calls and those under /sim/.
func (s *Server) Handler() http.Handler { return s.handler }

// Listen serves [Server.Handler] at addr ("127.0.0.1:0" lets the system choose a
// port) and returns the base URL, which the SDKs take as domain: no slash at its
// end.
func (s *Server) Listen(addr string) (string, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", errors.Join(ErrClosed, l.Close())
	}
	s.servers = append(s.servers, srv)
	s.tasks.Go(func() { _ = srv.Serve(l) }) // until Close
	return "http://" + l.Addr().String(), nil
}

// ErrClosed is returned by calls to a closed server.
var ErrClosed = errors.New("the Feishu stand-in is closed")

// Close ends all connections and listeners, and returns when all goroutines have ended. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	servers := s.servers
	s.servers = nil
	for _, a := range s.apps {
		for _, c := range a.conns {
			c.cut()
		}
		for _, p := range a.pending {
			p.stop()
		}
	}
	s.bump()
	s.mu.Unlock()
	s.cancel()
	var errs []error
	for _, srv := range servers {
		errs = append(errs, srv.Close())
	}
	s.tasks.Wait()
	return errors.Join(errs...)
}

// bump wakes goroutines that wait for a change. The caller holds s.mu.
func (s *Server) bump() {
	close(s.changed)
	s.changed = make(chan struct{})
}
