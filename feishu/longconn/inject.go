package longconn

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

const (
	// for a bot that has acknowledged nothing; then the frame may be lost (docs/feishu.md 1.7)
	firstWait   = 3 * time.Second
	pingTimeout = 5 * time.Second // for a WebSocket pong
)

// Inject writes an event to the bot once and returns nil when the bot
// acknowledged it with 200. It returns [feishu.AnswerError] for another code,
// [feishu.ErrNotInjected] without a connection, [feishu.ErrInjectionEnded] when
// that ended first, [conn.ErrBusy], [conn.ErrClosed], or the error of ctx.
//
// A bot that has acknowledged nothing on its connection may have lost the frame
// (docs/feishu.md 1.7). It is written to that connection a second time after 3 s,
// unless the bot has pinged and answers WebSocket pings. A connection whose bot
// does not answer those is ended when the bot opens another one.
//
// Calls run side by side, without an order among them.
func (s *Server) Inject(ctx context.Context, in feishu.Injection) error {
	if s.closing.Err() != nil {
		return conn.ErrClosed
	}
	l, _ := s.pick(nil)
	if l == nil {
		return feishu.ErrNotInjected
	}
	w, err := s.injections.Begin(in)
	if err != nil {
		return err
	}
	return w.End(s.write(ctx, l, w, in.Event))
}

// write writes an event to l and waits until the bot has answered, or until there is a reason not to wait
// any longer, which it returns.
func (s *Server) write(ctx context.Context, l *link, w *conn.Waiting, event []byte) error {
	frame, err := newEvent(w.ID, l.service, event)
	if err != nil {
		return fmt.Errorf("encode an event's frame: %w", err)
	}
	if !l.toBot(websocket.MessageBinary, frame) {
		return feishu.ErrInjectionEnded // it may have been written
	}
	w.Written(l.ended.Done())

	var lost <-chan time.Time
	if !l.acked.Load() {
		timer := time.NewTimer(firstWait)
		defer timer.Stop()
		lost = timer.C
	}
	for {
		_, arrived := s.pick(l)
		select {
		case <-w.Answered():
			return nil
		case <-lost:
			lost = nil
			if l.acked.Load() || l.pinged.Load() && l.answersPings(ctx) {
				continue
			}
			s.Counter(conn.Redelivered)
			if !l.toBot(websocket.MessageBinary, frame) {
				return feishu.ErrInjectionEnded
			}
		case <-arrived:
			if other, _ := s.pick(l); other != nil && !l.answersPings(ctx) && ctx.Err() == nil {
				l.end(ending{countedBotSilent, websocket.StatusGoingAway, "no answer to a ping"})
			}
		case <-l.ended.Done():
			return feishu.ErrInjectionEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing.Done():
			return conn.ErrClosed
		}
	}
}

// answered takes the bot's acknowledgement of an event of ours.
func (s *Server) answered(l *link, f *conn.Frame) {
	code := f.Code()
	if code == http.StatusOK {
		l.accepts.Store(true)
	}
	s.injections.Answered(f.ID(), code)
}

// newEvent makes the frame of an event of ours, in one piece, since the SDKs may lose
// one in several (docs/feishu.md 1.5).
func newEvent(id string, service int32, event []byte) ([]byte, error) {
	f := larkws.Frame{
		SeqID:   1 + rand.Uint64N(1<<53-1), // what a JavaScript number holds
		LogID:   1 + rand.Uint64N(1<<53-1),
		Service: service,
		Method:  int32(larkws.FrameTypeData),
		Headers: []larkws.Header{
			{Key: larkws.HeaderType, Value: string(larkws.MessageTypeEvent)},
			{Key: larkws.HeaderMessageID, Value: id},
			{Key: larkws.HeaderSum, Value: "1"},
			{Key: larkws.HeaderSeq, Value: "0"},
			{Key: larkws.HeaderTraceID, Value: id},
			{Key: larkws.HeaderTimestamp, Value: strconv.FormatInt(time.Now().UnixMilli(), 10)},
		},
		Payload: event,
	}
	return f.Marshal()
}
