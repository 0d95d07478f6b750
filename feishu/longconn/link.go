package longconn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	maxMessage        = 16 << 20         // a WebSocket message; a larger one ends the connection with 1009
	maxForeignMessage = 1 << 20          // of another app
	writeTimeout      = 10 * time.Second // for one message; then the connection is ended
	// for the bot's first ping; until then nothing is written to it (docs/feishu.md 1.7)
	firstWord = 2 * time.Second
	silence   = 30 * time.Second // after the bot's ping without a word from Feishu; then the connection is ended
	idlePings = 3                // pings that a bot may leave out, and
	idleGrace = 30 * time.Second // this; then the connection is ended
	maxPing   = 3600             // seconds between pings that are believed
	// events after which the tap still wants something done, on all links; one more is dropped
	maxAfters = 4096

	pieceGap = 5 * time.Millisecond   // between the pieces of an event, see toBot; without it 1 of 10 was lost
	maxGaps  = 200 * time.Millisecond // all gaps of an event: those of many pieces are shorter
)

// link is a bot's WebSocket and the one to Feishu behind it.
type link struct {
	s       *Server
	bot, up *websocket.Conn
	app     string
	service int32
	since   time.Time

	once    sync.Once
	ended   chan struct{} // closed by end, which sets why before
	why     ending
	listens sync.Once
	ready   chan struct{} // closed when the bot is taken to listen
	ping    atomic.Int64  // the interval in seconds, as the bot was told
	pinged  atomic.Bool   // the bot has sent a ping of Feishu's protocol
	acked   atomic.Bool   // the bot has acknowledged something
	accepts atomic.Bool   // the bot has acknowledged an event of ours

	botAt, upAt atomic.Int64 // last word, Unix nanoseconds
	idle        *time.Timer  // ends the link of a silent bot
	waiting     atomic.Bool  // for Feishu's answer to a ping
	silent      *time.Timer  // ends the link of a silent Feishu; counts while waiting

	pumps     sync.WaitGroup
	fragments fragments
	holds     holds
	afters    chan after
}

type after struct {
	id   string // message_id
	hold *hold
	do   func()
}

// ending is why a link ends, and what both sides are told.
type ending struct {
	event  string // for metrics
	code   websocket.StatusCode
	reason string
}

var stopped = ending{"stopped", websocket.StatusServiceRestart, "the sidecar stops"}

func newLink(s *Server, t ticket, up *websocket.Conn) *link {
	now := time.Now()
	l := &link{
		s: s, up: up, app: t.app, service: serviceID(t.upstream), since: now,
		ended: make(chan struct{}), ready: make(chan struct{}), afters: make(chan after, maxAfters),
	}
	l.ping.Store(int64(t.ping))
	l.botAt.Store(now.UnixNano())
	l.upAt.Store(now.UnixNano())
	l.fragments.give = func(frames [][]byte) {
		s.Counter("untapped")
		l.toBot(websocket.MessageBinary, frames...)
	}
	l.holds.send = func(ack []byte) { l.toUpstream(websocket.MessageBinary, ack) }
	l.holds.late = func() { s.Counter("ack_late") }
	return l
}

// run carries frames until one side ends it.
func (l *link) run() {
	l.silent = time.AfterFunc(silence, func() {
		if l.waiting.Load() {
			l.end(ending{"silent", websocket.StatusGoingAway, "no answer to a ping"})
		}
	})
	l.silent.Stop()
	l.idle = time.AfterFunc(l.idleTime(), func() {
		l.end(ending{"bot_silent", websocket.StatusGoingAway, "no ping"})
	})
	patience := time.AfterFunc(firstWord, l.listening)

	l.pumps.Go(l.fromUpstream)
	l.pumps.Go(l.fromBot)
	l.s.links.Go(l.runAfters) // it may outlive the link, whose place another one can take
	l.s.Counter("connected")
	l.s.log.Info("a bot's long connection is up", "app", l.app)

	<-l.ended
	l.s.remove(l)
	l.s.Counter(l.why.event)
	l.s.log.Info("a bot's long connection has ended", "app", l.app, "event", l.why.event, "code", int(l.why.code))
	patience.Stop()
	l.silent.Stop()
	l.idle.Stop()
	var sides sync.WaitGroup
	sides.Go(func() { _ = l.bot.Close(l.why.code, l.why.reason) }) // it may be gone
	sides.Go(func() {
		l.holds.drain()
		_ = l.up.Close(l.why.code, l.why.reason)
	})
	sides.Wait()
	l.pumps.Wait()
	close(l.afters)
}

// end ends the link; the first reason counts.
func (l *link) end(why ending) {
	l.once.Do(func() {
		l.why = why
		close(l.ended)
	})
}

// lost ends the link because a side did: with its own code and reason, or 1001
// where it said none that could be passed on.
func (l *link) lost(event string, err error) {
	why := ending{event, websocket.StatusGoingAway, ""}
	if ce, ok := closeError(err); ok {
		why.code, why.reason = ce.Code, ce.Reason
	}
	l.end(why)
}

// cut ends both sockets without a goodbye.
func (l *link) cut() {
	_ = l.bot.CloseNow()
	_ = l.up.CloseNow()
}

func (l *link) isEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// listening lets words through to the bot: it has spoken, or has had the time
// to begin to listen. The Go and Python SDKs ping at once only on the first of
// their connections, and listen at once on all.
func (l *link) listening() {
	l.listens.Do(func() {
		close(l.ready)
		l.s.refresh()
	})
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

// toBot writes messages to the bot, and ends the link where that fails. Between
// the pieces of an event it leaves a gap: the Go SDK reads each in a goroutine of
// its own, and where two of them meet the event is lost (docs/feishu.md 1.5).
func (l *link) toBot(typ websocket.MessageType, messages ...[]byte) bool {
	for i, m := range messages {
		if i > 0 {
			time.Sleep(min(pieceGap, maxGaps/time.Duration(len(messages))))
		}
		if err := write(l.bot, typ, m); err != nil {
			l.lost("bot_closed", err)
			return false
		}
	}
	return true
}

// toUpstream writes a message to Feishu, and ends the link where that fails.
func (l *link) toUpstream(typ websocket.MessageType, message []byte) {
	if err := write(l.up, typ, message); err != nil {
		l.lost("upstream_closed", err)
	}
}

func write(c *websocket.Conn, typ websocket.MessageType, message []byte) error {
	late := time.AfterFunc(writeTimeout, func() { _ = c.CloseNow() })
	defer late.Stop()
	return c.Write(context.Background(), typ, message)
}

// later runs do behind what waits already.
func (l *link) later(id string, h *hold, do func()) {
	if l.s.afters.Add(1) <= maxAfters {
		l.afters <- after{id, h, do} // which has room for all
		return
	}
	l.s.afters.Add(-1)
	l.s.Counter("after_dropped")
	l.s.log.Warn("too much is to be done after events: one is left out", "app", l.app)
	l.release(id, h)
}

func (l *link) runAfters() {
	for a := range l.afters {
		l.s.guard(a.do)
		l.s.afters.Add(-1)
		l.release(a.id, a.hold)
	}
}

func (l *link) release(id string, h *hold) {
	if h != nil {
		l.holds.release(id, h)
	}
}

// guard runs what the tap gave us.
func (s *Server) guard(do func()) {
	defer s.recovered()
	do()
}

func (s *Server) recovered() {
	if p := recover(); p != nil {
		s.Counter("panic")
		s.log.Error("a panic was caught; the bot's traffic goes on", "err", kind(p))
	}
}
