package link

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

const (
	writeTimeout = 10 * time.Second // for one message; then the link ends
	maxMessage   = 16 << 20         // bytes of a message; a larger one ends the link
	closeTimeout = time.Second      // for the closing handshakes; then the link is cut
	// firstWord is for the first message of the bot; until then nothing is written to it (docs/feishu.md 1.7).
	firstWord = 2 * time.Second
	silence   = 30 * time.Second // after a ping without a message of Feishu; then the link ends
	idlePings = 3                // the pings that a bot may omit, and
	idleGrace = 30 * time.Second // the time beyond them; then the link ends

	defaultPing = 2 * time.Minute // where Feishu gives no interval between pings, or one that makes no sense
	longestPing = time.Hour

	pieceGap = 5 * time.Millisecond   // between the frames of an event, see toBot; without it 1 of 10 was lost
	maxGaps  = 200 * time.Millisecond // all gaps of an event: those of many frames are shorter

	// maxHeld is how many events of a link wait for the bot's acknowledgement. Of one more the oldest counts as answered.
	maxHeld = 10_000
)

// link is a connection to Feishu, and the bot's in front of it. Each side has a goroutine that reads it, and writes to
// the other side itself: a slow reader slows down the sender.
type link struct {
	*Events
	bot, up    *websocket.Conn // bot: nil for the connector's
	app        string
	service    int32 // for pings and injected events
	since      time.Time
	changed    func() // called when the bot may be ready, or no longer, and at its pings
	injections *injections

	living context.Context // of reads and writes, done when the link is cut
	cut    context.CancelFunc
	ended  context.Context // done when the link ends; its cause is an ending
	end    context.CancelCauseFunc
	ready  context.Context // done when the bot can receive
	listen func()          // ends ready
	ping   atomic.Int64    // the interval between pings, in seconds, as in the settings that the bot has

	pinged  atomic.Bool // the bot has sent a ping of Feishu's protocol
	acked   atomic.Bool // the bot has acknowledged something
	accepts atomic.Bool // the bot has acknowledged an injected event

	botAt, upAt atomic.Int64 // the last message, in Unix nanoseconds
	idle        *time.Timer  // ends the link of a silent bot
	waiting     atomic.Bool  // for Feishu's answer to a ping
	silent      *time.Timer  // ends the link of a silent Feishu; counts while waiting

	pieces pieces // of the goroutine that reads up
	mu     sync.Mutex
	held   *simplelru.LRU[string, *Taken] // events that the bot has not acknowledged, by frame id; guarded by mu
}

// ending is why a link ends, and the code and reason that both sides get.
type ending struct {
	event  feishu.Counted
	code   websocket.StatusCode
	reason string
}

func (e ending) Error() string { return string(e.event) + ": " + e.reason }

var (
	stopped   = ending{countedStopped, websocket.StatusServiceRestart, "the sidecar stops"}
	upSilent  = ending{countedSilent, websocket.StatusGoingAway, "Feishu did not answer a ping"}
	botSilent = ending{countedBotSilent, websocket.StatusGoingAway, "no ping"}
	botDead   = ending{countedBotSilent, websocket.StatusGoingAway, "no answer to a ping"}
	deaf      = ending{countedDeaf, websocket.StatusGoingAway, "Feishu delivers no events"}
)

func (e *Events) newLink(endpoint *url.URL, app string, ping int64) *link {
	l := &link{Events: e, app: app, service: serviceID(endpoint), since: time.Now(), changed: func() {}}
	l.ping.Store(ping)
	l.botAt.Store(l.since.UnixNano())
	l.upAt.Store(l.since.UnixNano())
	l.held, _ = simplelru.NewLRU[string, *Taken](maxHeld, nil) // fails only for a size below 1
	l.living, l.cut = context.WithCancel(context.Background())
	l.ended, l.end = context.WithCancelCause(context.Background())
	ready, isReady := context.WithCancel(context.Background())
	l.ready = ready
	l.listen = sync.OnceFunc(func() { isReady(); l.changed() })
	l.silent = time.AfterFunc(silence, func() {
		if l.waiting.Load() {
			l.end(upSilent)
		}
	})
	l.silent.Stop()
	l.idle = time.AfterFunc(l.idleTime(), func() { l.end(botSilent) })
	return l
}

// drop ends the timers of a link that run does not.
func (l *link) drop() {
	l.idle.Stop()
	l.silent.Stop()
	l.cut()
}

// dial opens the connection to Feishu. If Feishu refuses, the error comes with its response.
func (l *link) dial(ctx context.Context, client *http.Client, endpoint *url.URL) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	up, resp, err := websocket.Dial(ctx, endpoint.String(), &websocket.DialOptions{
		HTTPClient:     client,
		HTTPHeader:     http.Header{"User-Agent": nil}, // the SDKs send none
		OnPingReceived: func(context.Context, []byte) bool { l.feishuSpoke(); return true },
	})
	if err != nil {
		if resp != nil && resp.StatusCode == http.StatusSwitchingProtocols {
			resp = nil
		}
		return resp, feishu.WithoutURL(err)
	}
	up.SetReadLimit(maxMessage)
	l.up = up
	return nil, nil
}

// run carries frames until the link ends, and returns why.
func (l *link) run() ending {
	defer l.drop()
	var sides, closing sync.WaitGroup
	sides.Go(l.fromFeishu)
	if l.bot != nil {
		patience := time.AfterFunc(firstWord, l.listen)
		defer patience.Stop()
		sides.Go(l.fromBot)
	} else {
		l.idle.Stop()
		l.listen()
		sides.Go(l.pingFeishu)
	}
	<-l.ended.Done()
	why, _ := errors.AsType[ending](context.Cause(l.ended))
	l.Counter(why.event)
	l.changed()
	l.abandon()
	timer := time.AfterFunc(closeTimeout, l.cut)
	defer timer.Stop()
	for _, side := range []*websocket.Conn{l.bot, l.up} {
		if side != nil {
			closing.Go(func() { _ = side.Close(why.code, why.reason) }) // it may be gone
		}
	}
	closing.Wait()
	sides.Wait()
	return why
}

// lost ends the link after an error of a side: with its close code and reason, or with 1001 without one.
func (l *link) lost(event feishu.Counted, err error) {
	why := ending{event, websocket.StatusGoingAway, ""}
	if e, ok := errors.AsType[websocket.CloseError](err); ok {
		why.code, why.reason = e.Code, e.Reason
	} else if errors.Is(err, websocket.ErrMessageTooBig) {
		why.code = websocket.StatusMessageTooBig
	}
	l.end(why)
}

// fromFeishu carries what Feishu sends to the bot.
func (l *link) fromFeishu() {
	for {
		kind, data, err := l.up.Read(l.living)
		if err != nil {
			l.lost(countedUpstreamClosed, err)
			return
		}
		l.feishuSpoke()
		select {
		case <-l.ready.Done():
		case <-l.ended.Done():
		}
		if l.ended.Err() != nil {
			continue // until Read fails: Feishu delivers again what is not acknowledged
		}
		f, ok := parse(data)
		switch {
		case !ok || kind != websocket.MessageBinary:
			if l.toBot(kind, data); l.bot == nil {
				l.Counter(countedBadFrame)
			}
		case f.isEvent() && l.owns(l.app):
			l.event(f)
		case f.isControl(larkws.MessageTypePong):
			l.toBot(kind, l.pong(f))
		default:
			l.toBot(kind, data)
		}
	}
}

// event handles a frame of an event. With the last one the event is committed; then the bot gets it, or Feishu its
// acknowledgement.
func (l *link) event(f *frame) {
	start := time.Now()
	frames, event, dropped := l.pieces.add(f)
	for range dropped {
		l.Counter(countedBadFrame)
		l.Logger.Warn("an event whose frames do not fit together, or did not all come, is not read")
	}
	switch {
	case frames == nil: // more is to come
		return
	case event == nil:
		l.toBot(websocket.MessageBinary, frames...)
		return
	}
	switch t := l.Take(event); {
	case t.Verdict == feishu.Refuse:
		t.Settle(false)
		l.toFeishu(websocket.MessageBinary, f.ack(http.StatusInternalServerError, start))
	case t.Verdict == feishu.Keep || l.bot == nil:
		t.Settle(true)
		l.toFeishu(websocket.MessageBinary, f.ack(http.StatusOK, start))
	default:
		if t.Instead != nil {
			frames = [][]byte{f.whole(t.Instead)}
		}
		l.hold(f.id(), t)
		if l.toBot(websocket.MessageBinary, frames...) {
			t.Got()
		}
	}
}

// pong reads the settings in a pong, and makes the bot's reconnect settings short.
func (l *link) pong(f *frame) []byte {
	config, ping, err := shorten(f.Payload, l.ping.Load())
	if err != nil {
		return f.raw
	}
	l.ping.Store(ping)
	return f.with(config)
}

// fromBot carries what the bot sends to Feishu.
func (l *link) fromBot() {
	for {
		kind, data, err := l.bot.Read(l.living)
		if err != nil {
			l.lost(countedBotClosed, err)
			return
		}
		l.botSpoke()
		l.listen()
		f, ok := parse(data)
		switch {
		case !ok || kind != websocket.MessageBinary:
		case f.isControl(larkws.MessageTypePing):
			l.pinged.Store(true)
			l.awaitFeishu()
			l.changed()
		case f.isData() && strings.HasPrefix(f.id(), idPrefix):
			l.acked.Store(true)
			l.answered(f.id(), f.code())
			continue
		case f.isData():
			l.acked.Store(true)
			if t := l.take(f.id()); t != nil {
				t.Settle(f.code() == http.StatusOK)
			}
		}
		l.toFeishu(kind, data)
	}
}

// pingFeishu pings in the place of a bot.
func (l *link) pingFeishu() {
	for l.ended.Err() == nil {
		l.awaitFeishu()
		l.toFeishu(websocket.MessageBinary, encode(larkws.NewPingFrame(l.service)))
		_ = wait.Sleep(l.ended, l.pingTime()) // which ends with the link
	}
}

// hold adds an event that is about to go to the bot.
func (l *link) hold(id string, t *Taken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.Err() != nil {
		t.Settle(false)
		return
	}
	if _, oldest, ok := l.held.GetOldest(); ok && l.held.Len() == maxHeld {
		oldest.Settle(true)
	}
	l.held.Add(id, t)
}

// take removes and returns the event of a frame; nil if it does not wait.
func (l *link) take(id string) *Taken {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, _ := l.held.Peek(id)
	l.held.Remove(id)
	return t
}

// abandon lets the events that the bot has not acknowledged go to it again: it may have stopped before it handled them.
func (l *link) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.held.Values() {
		t.Settle(false)
	}
	l.held.Purge()
}

func (l *link) pingTime() time.Duration {
	ping := time.Duration(l.ping.Load()) * time.Second
	if ping < time.Second || ping > longestPing {
		return defaultPing
	}
	return ping
}

func (l *link) idleTime() time.Duration { return idlePings*l.pingTime() + idleGrace }

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

// toBot writes messages to the bot, and ends the link if that fails. Between the frames of an event it leaves a gap: the
// Go SDK reads each in a goroutine of its own, and loses the event if two of them race (docs/feishu.md 1.5).
func (l *link) toBot(kind websocket.MessageType, messages ...[]byte) bool {
	for i, m := range messages {
		if l.bot == nil {
			return true
		}
		if i > 0 {
			time.Sleep(min(pieceGap, maxGaps/time.Duration(len(messages))))
		}
		if err := l.write(l.bot, kind, m); err != nil {
			l.lost(countedBotClosed, err)
			return false
		}
	}
	return true
}

// toFeishu writes a message to Feishu, and ends the link if that fails.
func (l *link) toFeishu(kind websocket.MessageType, message []byte) {
	if err := l.write(l.up, kind, message); err != nil {
		l.lost(countedUpstreamClosed, err)
	}
}

func (l *link) write(to *websocket.Conn, kind websocket.MessageType, message []byte) error {
	ctx, cancel := context.WithTimeout(l.living, writeTimeout)
	defer cancel()
	return to.Write(ctx, kind, message)
}
