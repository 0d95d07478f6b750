package longconn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

const (
	maxForeignMessage = 1 << 20 // bytes of a message of another app
	// for the first message of the bot; until then nothing is written to it (docs/feishu.md 1.7)
	firstWord = 2 * time.Second
	silence   = 30 * time.Second // after the bot's ping without a message of Feishu; then the connection is closed
	idlePings = 3                // the pings that a bot may omit, and
	idleGrace = 30 * time.Second // the time beyond them; then the connection is closed
	maxPing   = 3600             // the longest ping interval that counts, in seconds

	pieceGap = 5 * time.Millisecond   // between the frames of an event, see toBot; without it 1 of 10 was lost
	maxGaps  = 200 * time.Millisecond // all gaps of an event: those of many frames are shorter
)

// link is a bot's WebSocket and the one to Feishu behind it.
type link struct {
	s       *Server
	bot, up *websocket.Conn
	app     string
	service int32
	since   time.Time

	ended     context.Context // done when the link ends; its cause is an ending
	end       context.CancelCauseFunc
	ready     context.Context // done when the bot can receive
	listening func()          // ends ready: the bot has sent something, or has had time to get ready
	ping      atomic.Int64    // the interval in seconds, as in the settings that the bot has
	pinged    atomic.Bool     // the bot has sent a ping of Feishu's protocol
	acked     atomic.Bool     // the bot has acknowledged something
	accepts   atomic.Bool     // the bot has acknowledged an injected event

	botAt, upAt atomic.Int64 // the last message, in Unix nanoseconds
	idle        *time.Timer  // ends the link of a silent bot
	waiting     atomic.Bool  // for Feishu's answer to a ping
	silent      *time.Timer  // ends the link of a silent Feishu; counts while waiting

	readers sync.WaitGroup
	pieces  conn.Pieces
	tap     conn.Tap // with a worker of its own: the follow-ups of one link do not wait for those of others
	acks    acks
}

// ending is why a link ends, and the code and reason that both sides get.
type ending struct {
	event  feishu.Counted
	code   websocket.StatusCode
	reason string
}

func (e ending) Error() string { return string(e.event) }

var stopped = ending{countedStopped, websocket.StatusServiceRestart, "the sidecar stops"}

func newLink(s *Server, t ticket) *link {
	now := time.Now()
	l := &link{s: s, app: t.app, service: conn.ServiceID(t.upstream), since: now}
	ready, isReady := context.WithCancel(context.Background())
	l.ready = ready
	l.ended, l.end = context.WithCancelCause(context.Background())
	// The Go and Python SDKs ping at once only on the first of their connections, and listen at once on all.
	l.listening = sync.OnceFunc(func() {
		isReady()
		s.refresh()
	})
	l.ping.Store(int64(t.ping))
	l.botAt.Store(now.UnixNano())
	l.upAt.Store(now.UnixNano())
	l.silent = time.AfterFunc(silence, func() {
		if l.waiting.Load() {
			l.end(ending{countedSilent, websocket.StatusGoingAway, "no answer to a ping"})
		}
	})
	l.silent.Stop()
	l.idle = time.AfterFunc(l.idleTime(), func() { l.end(ending{countedBotSilent, websocket.StatusGoingAway, "no ping"}) })
	l.tap = conn.Tap{Options: s.Options.Options, Default: feishu.Pass, Patience: feishu.AckHold, MaxSlow: maxSlow,
		MaxTasks: maxTasks, Workers: 1, Load: &s.load, Running: &s.links}
	l.pieces.Dropped = func(frames [][]byte) {
		s.Counter(conn.TapSkipped)
		l.toBot(websocket.MessageBinary, frames...)
	}
	return l
}

func (l *link) stopTimers() {
	l.idle.Stop()
	l.silent.Stop()
}

// run carries frames until one side ends it.
func (l *link) run() {
	patience := time.AfterFunc(firstWord, l.listening)
	defer patience.Stop()
	l.readers.Go(l.fromFeishu)
	l.readers.Go(l.fromBot)
	l.s.Counter(countedConnected)
	l.s.Logger.Info("a bot's long connection is open", "app", l.app)

	<-l.ended.Done()
	why, _ := errors.AsType[ending](context.Cause(l.ended))
	l.acks.abandon()
	l.s.remove(l)
	l.s.Counter(why.event)
	l.s.Logger.Info("a bot's long connection has ended", "app", l.app, "event", why.event, "code", int(why.code))
	l.readers.Go(func() { _ = l.bot.Close(why.code, why.reason) }) // it may be gone
	l.readers.Go(func() {
		l.acks.drain()
		_ = l.up.Close(why.code, why.reason)
	})
	l.readers.Wait()
}

// lost ends the link after an error of a side: with its close code and reason, or with 1001
// without one.
func (l *link) lost(event feishu.Counted, err error) {
	why := ending{event, websocket.StatusGoingAway, ""}
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		why.code, why.reason = e.Code, e.Reason
	} else if errors.Is(err, websocket.ErrMessageTooBig) {
		why.code = websocket.StatusMessageTooBig
	}
	l.end(why)
}

// cut closes both sockets without a closing handshake.
func (l *link) cut() {
	_ = l.bot.CloseNow()
	_ = l.up.CloseNow()
}

func (l *link) isReady() bool { return l.ready.Err() != nil }

func (l *link) status() Connection {
	return Connection{
		AppID: l.app, Ready: l.isReady(), Since: l.since,
		Bot: time.Unix(0, l.botAt.Load()), Upstream: time.Unix(0, l.upAt.Load()),
	}
}

func (l *link) idleTime() time.Duration {
	ping := min(max(l.ping.Load(), 1), maxPing)
	return idlePings*time.Duration(ping)*time.Second + idleGrace
}

func (l *link) botSpoke() {
	l.botAt.Store(time.Now().UnixNano())
	l.idle.Reset(l.idleTime())
}

func (l *link) feishuSpoke() {
	l.upAt.Store(time.Now().UnixNano())
	if l.waiting.Swap(false) {
		l.silent.Stop()
	}
}

// awaitFeishu starts to measure Feishu's silence, unless it is measured already.
func (l *link) awaitFeishu() {
	if l.waiting.CompareAndSwap(false, true) {
		l.silent.Reset(silence)
	}
}

// answersPings reports whether the bot's side of the WebSocket answers.
func (l *link) answersPings(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return l.bot.Ping(ctx) == nil
}

// toBot writes messages to the bot, and ends the link if that fails. Between
// the frames of an event it leaves a gap: the Go SDK reads each in a goroutine of
// its own, and loses the event if two of them race (docs/feishu.md 1.5).
func (l *link) toBot(kind websocket.MessageType, messages ...[]byte) bool {
	for i, m := range messages {
		if i > 0 {
			time.Sleep(min(pieceGap, maxGaps/time.Duration(len(messages))))
		}
		if err := conn.Write(l.bot, kind, m); err != nil {
			l.lost(countedBotClosed, err)
			return false
		}
	}
	return true
}

// toFeishu writes a message to Feishu, and ends the link if that fails.
func (l *link) toFeishu(kind websocket.MessageType, message []byte) {
	if err := conn.Write(l.up, kind, message); err != nil {
		l.lost(countedUpstreamClosed, err)
	}
}

const (
	// for a bot that has not acknowledged anything; then the frame may be lost (docs/feishu.md 1.7)
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

// write writes an event to l and waits until the bot has answered, or returns why it stopped waiting.
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
	if l.acked.Load() {
		frame = nil // it may be large, and the bot may think for long
	} else {
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
			again := frame
			lost, frame = nil, nil
			if l.acked.Load() || l.pinged.Load() && l.answersPings(ctx) {
				continue
			}
			s.Counter(conn.Redelivered)
			if !l.toBot(websocket.MessageBinary, again) {
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

// answered records the bot's acknowledgement of an injected event.
func (s *Server) answered(l *link, f *conn.Frame) {
	code := f.Code()
	if code == http.StatusOK {
		l.accepts.Store(true)
	}
	s.injections.Answered(f.ID(), code)
}

// newEvent returns the frame of an injected event, in one piece, since the SDKs may lose
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
