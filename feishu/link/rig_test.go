package link_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
	"feishu-relay/internal/test/logtest"
)

const (
	app     = "cli_0123456789abcdef"
	secret  = "s3cret"
	service = 493
	query   = "fpid=493&aid=1&device_id=77&access_key=a%2Bb%20c&service_id=493&ticket=t-1"
)

// patience is what a test waits for something that must happen, longer than
// anything that one waits for in a bubble.
const patience = time.Minute

// wire is how the parts of a test reach each other: by TCP, or by pipes in a
// synctest bubble, where sockets would stop the clock.
type wire struct {
	listen func() net.Listener
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
}

func tcp(t testing.TB) wire {
	return wire{
		listen: func() net.Listener {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		dial: new(net.Dialer).DialContext,
	}
}

func pipes() wire {
	all := make(map[string]*pipeListener)
	return wire{
		listen: func() net.Listener {
			l := &pipeListener{addr: fmt.Sprintf("host%d:80", len(all)), conns: make(chan net.Conn), closed: make(chan struct{})}
			all[l.addr] = l
			return l
		},
		dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
			l := all[addr]
			here, there := net.Pipe()
			select {
			case l.conns <- there:
				return here, nil
			case <-l.closed:
				return nil, errors.New("connection refused")
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
}

type pipeListener struct {
	addr   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

// rig is a server between a fake Feishu and the bots of a test.
type rig struct {
	t      testing.TB
	w      wire
	client *http.Client
	s      *link.Server
	front  string // its host:port
	feishu *fake
	log    *logtest.Buffer

	mu     sync.Mutex
	counts map[string]int
}

func newRig(t testing.TB, w wire, change func(*link.Options)) *rig {
	r := &rig{t: t, w: w, counts: make(map[string]int), log: new(logtest.Buffer)}
	transport := &http.Transport{DialContext: w.dial, DisableCompression: true}
	r.client = &http.Client{Transport: transport}
	r.feishu = newFake(t, w)
	upstream, err := url.Parse("http://" + r.feishu.host)
	if err != nil {
		t.Fatal(err)
	}
	o := link.Options{
		Upstream: upstream, Client: r.client, Loopback: true, Bootstrapped: func(_, _ string) {},
		Events: &link.Events{
			Logger:  slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
			Counter: r.count, Answered: dedup.Memory(0),
		},
	}
	if change != nil {
		change(&o)
	}
	r.s = link.NewServer(o)
	r.front = serve(t, w, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case r.s.Handles(req):
			r.s.WebSocket(w, req)
		case strings.TrimLeft(req.URL.Path, "/") == "callback/ws/endpoint":
			r.s.Bootstrap(w, req)
		default:
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(func() {
		if err := r.s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		for _, word := range []string{secret, "access_key", "ticket=", "hello"} {
			if strings.Contains(r.log.String(), word) {
				t.Errorf("the log shows %q:\n%s", word, r.log)
			}
		}
	})
	return r
}

func serve(t testing.TB, w wire, h http.Handler) (host string) {
	l := w.listen()
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return l.Addr().String()
}

func (r *rig) count(event feishu.Counted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[string(event)]++
}

func (r *rig) counted(event string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[event]
}

// until waits for what nothing tells of.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// bootstrap makes the call and returns the answer's data.
func (r *rig) bootstrap() endpoint {
	r.t.Helper()
	resp, err := r.client.Post("http://"+r.front+"/callback/ws/endpoint", "application/json", strings.NewReader(fmt.Sprintf(`{"AppID":%q,"AppSecret":%q}`, app, secret)))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Code int
		Data endpoint
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Code != 0 {
		r.t.Fatalf("bootstrap: %v, code %d", err, answer.Code)
	}
	return answer.Data
}

type endpoint struct {
	URL          string
	ClientConfig map[string]int
}

// connect brings a bot up to its WebSocket, and Feishu's end of it.
func (r *rig) connect() (bot, feishu *socket) {
	r.t.Helper()
	bot = r.dial(r.bootstrap().URL)
	return bot, r.feishu.next()
}

// ready does so for a bot whose first ping was answered.
func (r *rig) ready() (bot, feishu *socket) {
	r.t.Helper()
	bot, feishu = r.connect()
	bot.ping()
	feishu.want(pingFrame())
	feishu.write(pongFrame(""))
	bot.want(pongFrame(""))
	return bot, feishu
}

func (r *rig) dial(rawURL string) *socket {
	r.t.Helper()
	conn, _, err := websocket.Dial(r.t.Context(), rawURL, &websocket.DialOptions{HTTPClient: r.client})
	if err != nil {
		r.t.Fatal(err)
	}
	return newSocket(r.t, conn)
}

// tap is an EventTap of a test.
type tap func(event string) (feishu.Verdict, []byte)

func with(f tap) func(*link.Options) {
	return func(o *link.Options) {
		o.Tap = func(event []byte) (feishu.Verdict, []byte) { return f(string(event)) }
	}
}
