package connector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

// Bounds of a connection.
const (
	maxMessage   = 16 << 20         // bytes of a WebSocket message; a longer one ends the connection
	maxWaiting   = 1024             // frames that wait for the tap; then the connection is read no further
	writeTime    = 10 * time.Second // for one frame; then the connection ends
	pingDefault  = 2 * time.Minute
	pingShortest = time.Second
	silenceGrace = 10 * time.Second // beyond two pings, as the SDK has it
)

// session is one open connection. Frames are taken one by one, so that the
// events of a chat keep their order.
type session struct {
	c       *Connector
	conn    *websocket.Conn
	service int32
	ping    atomic.Int64 // a time.Duration
	parts   parts
}

func newSession(c *Connector, conn *websocket.Conn, service int32) *session {
	return &session{c: c, conn: conn, service: service}
}

// configure takes the settings that Feishu sends. Only the pings are its to
// choose; nonsense is the default.
func (s *session) configure(conf larkws.ClientConfig) {
	every := time.Duration(conf.PingInterval) * time.Second
	if every < pingShortest || every > time.Hour {
		every = pingDefault
	}
	s.ping.Store(int64(every))
}

// serve reads the connection until it ends, and returns why. What waits for the
// tap then is left to Feishu's next delivery.
func (s *session) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	frames := make(chan larkws.Frame, maxWaiting)
	done := make(chan struct{}, 2)
	go func() {
		cancel(s.pings(ctx))
		done <- struct{}{}
	}()
	go func() {
		cancel(s.events(ctx, frames))
		done <- struct{}{}
	}()
	cancel(s.read(ctx, frames))
	<-done
	<-done
	return context.Cause(ctx)
}

// read passes the connection's frames on. A connection that is silent for two
// pings is dead.
func (s *session) read(ctx context.Context, frames chan<- larkws.Frame) error {
	for {
		quiet, cancel := context.WithTimeout(ctx, 2*time.Duration(s.ping.Load())+silenceGrace)
		kind, data, err := s.conn.Read(quiet)
		if silent := quiet.Err() != nil && ctx.Err() == nil; silent {
			err = errors.New("nothing came from Feishu for two pings")
		}
		cancel()
		if err != nil {
			return err
		}
		var frame larkws.Frame
		if kind != websocket.MessageBinary || frame.Unmarshal(data) != nil {
			s.c.opts.Counter("bad_frame")
			continue
		}
		if larkws.FrameType(frame.Method) == larkws.FrameTypeControl {
			s.control(frame)
			continue
		}
		select {
		case frames <- frame:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// control takes the settings out of a pong (docs/feishu.md 1.4).
func (s *session) control(frame larkws.Frame) {
	var conf larkws.ClientConfig
	kind := larkws.Headers(frame.Headers).GetString(larkws.HeaderType)
	if kind == string(larkws.MessageTypePong) && json.Unmarshal(frame.Payload, &conf) == nil {
		s.configure(conf)
	}
}

// pings writes one at once and then as often as Feishu wants them.
func (s *session) pings(ctx context.Context) error {
	for {
		if err := s.write(ctx, *larkws.NewPingFrame(s.service)); err != nil {
			return err
		}
		if err := wait.Sleep(ctx, time.Duration(s.ping.Load())); err != nil {
			return err
		}
	}
}

// events hands whole events to the tap and answers Feishu.
func (s *session) events(ctx context.Context, frames <-chan larkws.Frame) error {
	for {
		var frame larkws.Frame
		select {
		case <-ctx.Done():
			return ctx.Err()
		case frame = <-frames:
		}
		start := time.Now()
		event, whole, err := s.parts.add(frame, start)
		if err != nil {
			s.c.opts.Counter("bad_frame")
			s.c.log.Warn("a frame of Feishu's was dropped", "err", err)
		}
		if !whole {
			continue
		}
		code := http.StatusOK
		if !s.c.taken(ctx, event) {
			code = http.StatusInternalServerError
		}
		if err := s.write(ctx, ack(frame, code, time.Since(start))); err != nil {
			return err
		}
	}
}

// ack is the answer to an event (docs/feishu.md 1.6): its frame with another payload.
func ack(frame larkws.Frame, code int, took time.Duration) larkws.Frame {
	headers := larkws.Headers(frame.Headers)
	headers.Add(larkws.HeaderBizRt, strconv.FormatInt(took.Milliseconds(), 10))
	frame.Headers = headers
	frame.Payload = fmt.Appendf(nil, `{"code":%d,"headers":null,"data":null}`, code)
	return frame
}

func (s *session) write(ctx context.Context, frame larkws.Frame) error {
	data, err := frame.Marshal()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageBinary, data)
}

// taken hands event to the tap and reports whether it is stored. A tap that
// does not answer in time goes on by itself; Feishu delivers the event again.
func (c *Connector) taken(ctx context.Context, event []byte) bool {
	select {
	case c.taps <- struct{}{}:
	default:
		c.opts.Counter("event_refused")
		return false
	}
	verdict := make(chan feishu.Verdict, 1)
	go func() {
		defer func() { <-c.taps }()
		verdict <- c.tap(event)
	}()
	select {
	case v := <-verdict:
		if v == feishu.Refuse {
			c.opts.Counter("event_refused")
			return false
		}
		c.opts.Counter("event")
		return true
	case <-time.After(c.times.answer):
		c.opts.Counter("event_late")
		c.log.Warn("an event could not be stored in time: Feishu delivers it again")
	case <-ctx.Done():
	}
	return false
}

func (c *Connector) tap(event []byte) (v feishu.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("an event was refused after a panic", "panic_type", fmt.Sprintf("%T", p))
			v = feishu.Refuse
		}
	}()
	return c.opts.Tap(event)
}
