package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

const (
	eventsPerSecond = 1000
	eventChats      = 20
)

// BenchmarkGatewayMemory weighs a sidecar whose gateway passes people's messages
// to its bot, 1,000 a second, each of which it records: after 15 s, and after a
// minute (BENCH_SECONDS).
func BenchmarkGatewayMemory(b *testing.B) {
	seconds := 60
	if text := os.Getenv("BENCH_SECONDS"); text != "" {
		var err error
		if seconds, err = strconv.Atoi(text); err != nil || seconds < 16 {
			b.Fatal("BENCH_SECONDS: want a number, 16 at least")
		}
	}
	for b.Loop() {
		feishu := newEventSource(b)
		gateway := freeAddr(b)
		sidecar := startDaemon(b, program(b, "feishu-relay"), "/readyz", "AGENT_NAME=agent_a", "DATA_DIR="+b.TempDir(),
			"GATEWAY_ADDR="+gateway, "FEISHU_BASE_URL="+feishu.server.URL)
		bot := feishu.connect(b, "http://"+gateway)
		<-feishu.listening
		var before float64
		sent := 0
		start := time.Now()
		for second := range seconds {
			for range eventsPerSecond / 10 { // ten at a time: a timer for each event would be late
				feishu.push(b, 10)
				sent += 10
				time.Sleep(time.Until(start.Add(time.Duration(sent) * time.Second / eventsPerSecond)))
			}
			if second == 14 {
				before = sidecar.rss(b)
			}
		}
		took := time.Since(start)
		for deadline := time.Now().Add(10 * time.Second); bot.Load() < int64(sent) && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if got := bot.Load(); got != int64(sent) {
			b.Errorf("the bot was given %d events of %d", got, sent)
		}
		b.ReportMetric(before, "early-MiB")
		b.ReportMetric(sidecar.rss(b), "MiB")
		b.ReportMetric(float64(sent)/took.Seconds(), "events/s")
	}
}

func freeAddr(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// eventSource is Feishu's side of one long connection.
type eventSource struct {
	server    *httptest.Server
	listening chan struct{} // closed at the bot's first ping
	conn      atomic.Pointer[websocket.Conn]
	n         int
}

func newEventSource(b *testing.B) *eventSource {
	b.Helper()
	s := &eventSource{listening: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/callback/ws/endpoint", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"code":0,"msg":"success","data":{"URL":"ws://%s/ws/v2?fpid=1&device_id=d&service_id=1"}}`, r.Host)
	})
	mux.HandleFunc("/ws/v2", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		s.conn.Store(conn)
		for first := true; ; first = false {
			if _, _, err := conn.Read(context.Background()); err != nil {
				return
			}
			if first {
				close(s.listening)
			}
		}
	})
	s.server = httptest.NewServer(mux)
	b.Cleanup(s.server.Close)
	return s
}

func (s *eventSource) push(b *testing.B, count int) {
	for range count {
		s.n++
		event, err := json.Marshal(map[string]any{"schema": "2.0",
			"header": map[string]any{"event_id": fmt.Sprint("ev", s.n), "event_type": "im.message.receive_v1", "app_id": "cli_0123456789abcdef"},
			"event": map[string]any{"sender": map[string]any{"sender_id": map[string]any{"open_id": "ou_tom"}, "sender_type": "user"},
				"message": map[string]any{"message_id": fmt.Sprint("om_", s.n), "chat_id": fmt.Sprint("oc_", s.n%eventChats), "chat_type": "group",
					"create_time": fmt.Sprint(time.Now().UnixMilli()), "message_type": "text", "content": `{"text":"what a person says in a group"}`}}})
		if err != nil {
			b.Fatal(err)
		}
		frame := larkws.Frame{Method: 1, Service: 1, SeqID: uint64(s.n), LogID: 1, Payload: event, Headers: []larkws.Header{
			{Key: "type", Value: "event"}, {Key: "message_id", Value: fmt.Sprint("m", s.n)}, {Key: "sum", Value: "1"}, {Key: "seq", Value: "0"}}}
		data, err := frame.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		if err := s.conn.Load().Write(context.Background(), websocket.MessageBinary, data); err != nil {
			b.Fatal(err)
		}
	}
}

// connect is a bot that acknowledges everything; it returns how many events it
// was given.
func (s *eventSource) connect(b *testing.B, gateway string) *atomic.Int64 {
	b.Helper()
	resp, err := http.Post(gateway+"/callback/ws/endpoint", "application/json",
		bytes.NewReader([]byte(`{"AppID":"cli_0123456789abcdef","AppSecret":"s"}`)))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Data struct{ URL string } }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		b.Fatal(err)
	}
	conn, _, err := websocket.Dial(context.Background(), answer.Data.URL, nil)
	if err != nil {
		b.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	ping, err := larkws.NewPingFrame(1).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	if err := conn.Write(context.Background(), websocket.MessageBinary, ping); err != nil {
		b.Fatal(err)
	}
	got := new(atomic.Int64)
	go func() {
		for {
			_, data, err := conn.Read(context.Background())
			if err != nil {
				return
			}
			var frame larkws.Frame
			if frame.Unmarshal(data) != nil || frame.Method != 1 {
				continue
			}
			got.Add(1)
			frame.Payload = []byte(`{"code":200}`)
			if data, err = frame.Marshal(); err == nil {
				_ = conn.Write(context.Background(), websocket.MessageBinary, data)
			}
		}
	}()
	b.Cleanup(func() { _ = conn.CloseNow() })
	return got
}
