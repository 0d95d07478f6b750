package connector

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
)

// fake is as much of Feishu as a connector sees.
type fake struct {
	*httptest.Server
	t         testing.TB
	bootstrap func(w http.ResponseWriter) bool // true: it answered
	handshake http.Header                      // refuses the upgrade with 403

	boots atomic.Int64
	links chan *link // each connection whose first ping came
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t, links: make(chan *link, 16)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /callback/ws/endpoint", f.endpoint)
	mux.HandleFunc("GET /ws/v2", f.upgrade)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func (f *fake) endpoint(w http.ResponseWriter, r *http.Request) {
	f.boots.Add(1)
	var body larkws.BootstrapRequest
	if json.NewDecoder(r.Body).Decode(&body) != nil || body.AppSecret != "secret" {
		f.t.Errorf("bootstrap without the secret")
	}
	if f.bootstrap != nil && f.bootstrap(w) {
		return
	}
	respond(w, 200, fmt.Sprintf(`{"code":0,"data":{"URL":"ws%s/ws/v2?fpid=1&device_id=d&service_id=33&ticket=TICKET",`+
		`"ClientConfig":{"ReconnectCount":-1,"ReconnectInterval":120,"ReconnectNonce":30,"PingInterval":1}}}`,
		strings.TrimPrefix(f.URL, "http")))
}

// link is a connection at Feishu's end.
type link struct {
	t      testing.TB
	conn   *websocket.Conn
	frames chan larkws.Frame // all but pings
	gone   chan struct{}
}

func (f *fake) upgrade(w http.ResponseWriter, r *http.Request) {
	if f.handshake != nil {
		maps.Copy(w.Header(), f.handshake)
		w.WriteHeader(http.StatusForbidden)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		f.t.Error(err)
		return
	}
	l := &link{f.t, conn, make(chan larkws.Frame, 4096), make(chan struct{})}
	defer close(l.gone)
	defer conn.CloseNow()
	for first := true; ; {
		_, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		var frame larkws.Frame
		if err := frame.Unmarshal(data); err != nil {
			f.t.Error(err)
			return
		}
		if larkws.Headers(frame.Headers).GetString("type") != "ping" {
			l.frames <- frame
			continue
		}
		if frame.Service != 33 {
			f.t.Errorf("ping for service %d, want 33", frame.Service)
		}
		l.write(larkws.Frame{Headers: []larkws.Header{{Key: "type", Value: "pong"}}})
		if first {
			f.links <- l
			first = false
		}
	}
}

func (l *link) write(frame larkws.Frame) {
	data, err := frame.Marshal()
	if err != nil {
		l.t.Error(err)
	}
	l.raw(data)
}

func (l *link) raw(data []byte) {
	_ = l.conn.Write(l.t.Context(), websocket.MessageBinary, data)
}

// event writes one event, or fragment seq of sum.
func (l *link) event(id, payload string, sum, seq int) {
	l.write(larkws.Frame{
		SeqID: 7, LogID: 8, Service: 33, Method: 1, LogIDNew: "new", Payload: []byte(payload),
		Headers: []larkws.Header{
			{Key: "type", Value: "event"},
			{Key: "message_id", Value: id},
			{Key: "sum", Value: fmt.Sprint(sum)},
			{Key: "seq", Value: fmt.Sprint(seq)},
			{Key: "trace_id", Value: "trace"},
		},
	})
}

// ack waits for the next acknowledgement: the event it is for, and its code.
func (l *link) ack() (id string, code int) {
	l.t.Helper()
	select {
	case frame := <-l.frames:
		var body struct {
			Code int `json:"code"`
		}
		if err := json.Unmarshal(frame.Payload, &body); err != nil {
			l.t.Fatal(err)
		}
		return larkws.Headers(frame.Headers).GetString("message_id"), body.Code
	case <-l.gone:
		l.t.Fatal("the connection ended")
	}
	return "", 0
}

// connector returns one that talks to f.
func (f *fake) connector(t testing.TB, change func(*Options)) *Connector {
	opts := Options{
		BaseURL: f.URL + "/", AppID: "cli_0123456789abcdef", AppSecret: "secret",
		Tap:     func([]byte) feishu.Verdict { return feishu.Keep },
		Logger:  slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		Counter: func(feishu.Counted) {},
	}
	if change != nil {
		change(&opts)
	}
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.CloseIdleConnections)
	return c
}
