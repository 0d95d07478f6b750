package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

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
		maps.Copy(w.Header(), header)
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
	return s.parse(s.message().data)
}

func (s *socket) parse(data []byte) *larkws.Frame {
	s.t.Helper()
	f := new(larkws.Frame)
	if err := f.Unmarshal(data); err != nil {
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
