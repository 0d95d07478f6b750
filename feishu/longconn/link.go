package longconn

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

const (
	maxForeignMessage = 1 << 20 // bytes of a message of another app
	// for the bot's first ping; until then nothing is written to it (docs/feishu.md 1.7)
	firstWord = 2 * time.Second
	silence   = 30 * time.Second // after the bot's ping without a word from Feishu; then the connection is ended
	idlePings = 3                // pings that a bot may leave out, and
	idleGrace = 30 * time.Second // this; then the connection is ended
	maxPing   = 3600             // seconds between pings that are believed

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
	ready     chan struct{} // closed when the bot is taken to listen
	listening func()        // closes it: the bot has spoken, or has had the time to begin to listen
	ping      atomic.Int64  // the interval in seconds, as in the settings that the bot has
	pinged    atomic.Bool   // the bot has sent a ping of Feishu's protocol
	acked     atomic.Bool   // the bot has acknowledged something
	accepts   atomic.Bool   // the bot has acknowledged an event of ours

	botAt, upAt atomic.Int64 // last word, Unix nanoseconds
	idle        *time.Timer  // ends the link of a silent bot
	waiting     atomic.Bool  // for Feishu's answer to a ping
	silent      *time.Timer  // ends the link of a silent Feishu; counts while waiting

	readers sync.WaitGroup
	pieces  conn.Pieces
	tap     conn.Tap // with a worker of its own: what is to be done after the events of one link does not wait for others
	acks    acks
}

// ending is why a link ends, and what both sides get for a reason.
type ending struct {
	event  feishu.Counted
	code   websocket.StatusCode
	reason string
}

func (e ending) Error() string { return string(e.event) }

var stopped = ending{countedStopped, websocket.StatusServiceRestart, "the sidecar stops"}

func newLink(s *Server, t ticket) *link {
	now := time.Now()
	l := &link{s: s, app: t.app, service: conn.ServiceID(t.upstream), since: now, ready: make(chan struct{})}
	l.ended, l.end = context.WithCancelCause(context.Background())
	// The Go and Python SDKs ping at once only on the first of their connections, and listen at once on all.
	l.listening = sync.OnceFunc(func() {
		close(l.ready)
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
	l.tap = conn.Tap{
		Decide: s.Tap, Default: feishu.Pass, Patience: feishu.AckHold, MaxSlow: maxSlow, MaxTasks: maxTasks, Workers: 1,
		Load: &s.load, Report: s.Counter, Log: s.Logger, Running: &s.links,
	}
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

// lost ends the link because a side did: with its own code and reason, or 1001
// where it gave none that can be passed on.
func (l *link) lost(event feishu.Counted, err error) {
	why := ending{event, websocket.StatusGoingAway, ""}
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		why.code, why.reason = e.Code, e.Reason
	} else if errors.Is(err, websocket.ErrMessageTooBig) {
		why.code = websocket.StatusMessageTooBig
	}
	l.end(why)
}

// cut ends both sockets without a goodbye.
func (l *link) cut() {
	_ = l.bot.CloseNow()
	_ = l.up.CloseNow()
}

func (l *link) isReady() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}

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

// awaitFeishu starts to count Feishu's silence, unless it is counted already.
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

// toBot writes messages to the bot, and ends the link where that fails. Between
// the frames of an event it leaves a gap: the Go SDK reads each in a goroutine of
// its own, and where two of them meet the event is lost (docs/feishu.md 1.5).
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

// toFeishu writes a message to Feishu, and ends the link where that fails.
func (l *link) toFeishu(kind websocket.MessageType, message []byte) {
	if err := conn.Write(l.up, kind, message); err != nil {
		l.lost(countedUpstreamClosed, err)
	}
}
