package longconn_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/longconn"
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
	s      *longconn.Server
	front  string // its host:port
	feishu *fake
	log    *safeBuffer

	mu     sync.Mutex
	counts map[string]int
}

func newRig(t testing.TB, w wire, change func(*longconn.Options)) *rig {
	r := &rig{t: t, w: w, counts: make(map[string]int), log: new(safeBuffer)}
	transport := &http.Transport{DialContext: w.dial, DisableCompression: true}
	r.client = &http.Client{Transport: transport}
	r.feishu = newFake(t, w)
	upstream, err := url.Parse("http://" + r.feishu.host)
	if err != nil {
		t.Fatal(err)
	}
	o := longconn.Options{
		Upstream: upstream, Client: r.client, Loopback: true,
		Logger:  slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Counter: r.count,
	}
	if change != nil {
		change(&o)
	}
	r.s = longconn.New(o)
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
		if err := r.s.Close(); err != nil {
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

func (r *rig) count(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[event]++
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

// fake is Feishu: the bootstrap call and the WebSockets behind it.
type fake struct {
	t       testing.TB
	host    string
	sockets chan *socket

	mu     sync.Mutex
	answer string // to the next bootstrap calls
	header http.Header
	status int
	refuse func(http.ResponseWriter) // WebSockets, if not nil
	calls  []call
}

type call struct {
	method, uri, body string
	header            http.Header
}

func newFake(t testing.TB, w wire) *fake {
	f := &fake{t: t, sockets: make(chan *socket, 100), status: http.StatusOK}
	f.host = serve(t, w, f)
	f.answer = `{"code":0,"msg":"success","data":{"URL":"ws://` + f.host + `/ws/v2?` + query + `","ClientConfig":{"ReconnectCount":-1,"ReconnectInterval":120,"ReconnectNonce":30,"PingInterval":120}}}`
	return f
}

// says sets the answer to bootstrap calls.
func (f *fake) says(status int, answer string, header http.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status, f.answer, f.header = status, answer, header
}

func (f *fake) refuses(how func(http.ResponseWriter)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = how
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.calls = append(f.calls, call{r.Method, r.RequestURI, string(body), r.Header.Clone()})
	status, answer, header, refuse := f.status, f.answer, f.header, f.refuse
	f.mu.Unlock()
	if r.Method == http.MethodPost {
		w.Header().Set("Content-Type", "application/json")
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
		return
	}
	if refuse != nil {
		refuse(w)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	s := newSocket(f.t, conn)
	s.uri = r.RequestURI
	f.sockets <- s
	<-s.gone
}

func (f *fake) next() *socket {
	f.t.Helper()
	select {
	case s := <-f.sockets:
		return s
	case <-time.After(patience):
		f.t.Fatal("nobody connected to Feishu")
		return nil
	}
}

func (f *fake) requests() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.calls...)
}

// socket is an end of a WebSocket. What comes is read at once.
type socket struct {
	t    testing.TB
	conn *websocket.Conn
	uri  string
	got  chan message
	gone chan struct{} // closed after err was set
	err  error
}

type message struct {
	typ  websocket.MessageType
	data []byte
}

func newSocket(t testing.TB, conn *websocket.Conn) *socket {
	s := &socket{t: t, conn: conn, got: make(chan message, 1<<16), gone: make(chan struct{})}
	conn.SetReadLimit(64 << 20)
	go func() {
		defer close(s.gone)
		for {
			typ, data, err := conn.Read(context.Background())
			if err != nil {
				s.err = err
				return
			}
			s.got <- message{typ, data}
		}
	}()
	t.Cleanup(func() {
		_ = conn.CloseNow()
		<-s.gone
	})
	return s
}

func (s *socket) write(f *larkws.Frame) {
	s.t.Helper()
	s.raw(bytesOf(s.t, f))
}

func (s *socket) raw(data []byte) {
	s.t.Helper()
	if err := s.conn.Write(s.t.Context(), websocket.MessageBinary, data); err != nil {
		s.t.Fatal(err)
	}
}

func (s *socket) ping() { s.t.Helper(); s.write(pingFrame()) }

func (s *socket) message() message {
	s.t.Helper()
	select {
	case m := <-s.got:
		return m
	case <-s.gone:
		select {
		case m := <-s.got:
			return m
		default:
		}
		s.t.Fatalf("the connection ended: %v", s.err)
	case <-time.After(patience):
		s.t.Fatal("nothing came")
	}
	return message{}
}

func (s *socket) frame() *larkws.Frame {
	s.t.Helper()
	f := new(larkws.Frame)
	if err := f.Unmarshal(s.message().data); err != nil {
		s.t.Fatal(err)
	}
	return f
}

// want reads a message, which is f to the byte.
func (s *socket) want(f *larkws.Frame) {
	s.t.Helper()
	data := bytesOf(s.t, f)
	if got := s.message().data; !bytes.Equal(got, data) {
		s.t.Fatalf("got %s\nwant %s", show(got), show(data))
	}
}

// nothingBefore checks that nothing comes before what the other end says now.
func (s *socket) nothingBefore(other *socket) {
	s.t.Helper()
	mark := pingFrame()
	mark.SeqID = 99
	other.write(mark)
	s.want(mark)
}

// closed waits for the end and says with which code.
func (s *socket) closed() (websocket.StatusCode, string) {
	s.t.Helper()
	select {
	case <-s.gone:
	case <-time.After(patience):
		s.t.Fatal("the connection did not end")
	}
	if ce, ok := errors.AsType[websocket.CloseError](s.err); ok {
		return ce.Code, ce.Reason
	}
	return -1, s.err.Error()
}

func bytesOf(t testing.TB, f *larkws.Frame) []byte {
	t.Helper()
	data, err := f.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func show(data []byte) string {
	f := new(larkws.Frame)
	if f.Unmarshal(data) != nil {
		return fmt.Sprintf("%q", data)
	}
	return fmt.Sprintf("seq %d method %d headers %v payload %s", f.SeqID, f.Method, f.Headers, f.Payload)
}

func pingFrame() *larkws.Frame { return larkws.NewPingFrame(service) }

func pongFrame(payload string) *larkws.Frame {
	var h larkws.Headers
	h.Add(larkws.HeaderType, string(larkws.MessageTypePong))
	f := &larkws.Frame{Service: service, Headers: h}
	if payload != "" {
		f.Payload = []byte(payload)
	}
	return f
}

// eventFrame is an event as Feishu sends it.
func eventFrame(id, payload string) *larkws.Frame { return pieceFrame(id, payload, 1, 0) }

func pieceFrame(id, payload string, sum, seq int) *larkws.Frame {
	var h larkws.Headers
	h.Add(larkws.HeaderType, string(larkws.MessageTypeEvent))
	h.Add(larkws.HeaderMessageID, id)
	h.Add(larkws.HeaderSum, fmt.Sprint(sum))
	h.Add(larkws.HeaderSeq, fmt.Sprint(seq))
	h.Add(larkws.HeaderTraceID, "trace-"+id)
	h.Add(larkws.HeaderTimestamp, "1700000000000")
	h.Add(larkws.HeaderInstanceID, "opaque")
	return &larkws.Frame{SeqID: 7, LogID: 8, Service: service, Method: 1, Headers: h, Payload: []byte(payload), LogIDNew: "log-" + id}
}

// ackOf is a bot's answer to f.
func ackOf(f *larkws.Frame, code int) *larkws.Frame {
	a := *f
	a.Headers = append(append([]larkws.Header(nil), f.Headers...), larkws.Header{Key: larkws.HeaderBizRt, Value: "-1"})
	a.Payload = fmt.Appendf(nil, `{"code":%d,"headers":null,"data":null}`, code)
	return &a
}

func messageID(f *larkws.Frame) string {
	return larkws.Headers(f.Headers).GetString(larkws.HeaderMessageID)
}

// event is an event's envelope.
func event(id string) string {
	return fmt.Sprintf(`{"schema":"2.0","header":{"event_id":%q,"event_type":"im.message.receive_v1","app_id":%q},"event":{"text":"hello"}}`, id, app)
}

// tap is an EventTap of a test.
type tap func(event string) (feishu.Verdict, func())

func with(f tap) func(*longconn.Options) {
	return func(o *longconn.Options) {
		o.Tap = func(event []byte) (feishu.Verdict, func()) { return f(string(event)) }
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// bubble runs a test in which time is made.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
