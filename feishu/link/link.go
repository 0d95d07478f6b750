package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	lru "github.com/hashicorp/golang-lru/v2"
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

	defaultPing = 2 * time.Minute // where Feishu gives no interval between pings, or one that makes no sense
	longestPing = time.Hour
	idleGrace   = 30 * time.Second // a link ends where Feishu says nothing for a ping and this time,
	idlePings   = 3                // or the bot for 3 pings and this time

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
	changed    func()      // called when the bot may be ready, or no longer, and at its pings
	injections *injections // the server's

	living context.Context // of reads and writes, done when the link is cut
	cut    context.CancelFunc
	ended  context.Context // done when the link ends; its cause is an ending
	end    context.CancelCauseFunc
	ready  context.Context // done when the bot can receive
	listen func()          // ends ready
	ping   atomic.Int64    // the interval between pings, in seconds, as in the settings that the bot has

	open                   atomic.Bool  // both sides are connected
	pinged, acked, accepts atomic.Bool  // the bot has sent a ping; has acknowledged something; an injected event
	botAt, upAt            atomic.Int64 // the last message, in Unix nanoseconds

	pieces pieces                     // of the goroutine that reads up
	held   *lru.Cache[string, *Taken] // events that the bot has not acknowledged, by frame id
}

// ending is why a link ends, as it is counted, and the code and reason that both sides get.
type ending struct {
	event  feishu.Counted
	code   websocket.StatusCode
	reason string
}

func (e ending) Error() string { return string(e.event) + ": " + e.reason }

var (
	stopped = ending{"stopped", websocket.StatusServiceRestart, "the sidecar stops"}
	botDead = ending{"bot_silent", websocket.StatusGoingAway, "no answer to a ping"}
)

func (e *Events) newLink(endpoint *url.URL, app string, ping int64) *link {
	l := &link{Events: e, app: app, service: serviceID(endpoint), since: time.Now(), changed: func() {}}
	l.ping.Store(ping)
	l.botAt.Store(l.since.UnixNano())
	l.upAt.Store(l.since.UnixNano())
	l.held, _ = lru.NewWithEvict(maxHeld, func(_ string, t *Taken) { t.Settle(true) }) // fails only for a size below 1
	l.living, l.cut = context.WithCancel(context.Background())
	l.ended, l.end = context.WithCancelCause(context.Background())
	ready, isReady := context.WithCancel(context.Background())
	l.ready = ready
	l.listen = sync.OnceFunc(func() { isReady(); l.changed() })
	return l
}

// dial opens the connection to Feishu. If Feishu refuses, the error comes with its response.
func (l *link) dial(ctx context.Context, client *http.Client, endpoint *url.URL) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer context.AfterFunc(l.ended, cancel)()
	up, resp, err := websocket.Dial(ctx, endpoint.String(), &websocket.DialOptions{HTTPClient: client,
		HTTPHeader: http.Header{"User-Agent": nil}}) // the SDKs send none
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
	defer l.cut()
	var sides, closing sync.WaitGroup
	sides.Go(l.fromFeishu)
	if l.bot != nil {
		patience := time.AfterFunc(firstWord, l.listen)
		defer patience.Stop()
		sides.Go(l.fromBot)
	} else {
		l.listen()
		sides.Go(l.pingFeishu)
	}
	<-l.ended.Done()
	why, _ := errors.AsType[ending](context.Cause(l.ended))
	l.Counter(why.event)
	l.changed()
	l.abandon()
	late := time.AfterFunc(closeTimeout, l.cut)
	defer late.Stop()
	for _, side := range []*websocket.Conn{l.bot, l.up} {
		if side != nil {
			closing.Go(func() { _ = side.Close(why.code, why.reason) }) // it may be gone
		}
	}
	closing.Wait()
	sides.Wait()
	return why
}

// abandon lets the events that the bot has not acknowledged go to it again: it may have stopped before it handled
// them.
func (l *link) abandon() {
	for _, t := range l.held.Values() {
		t.Settle(false)
	}
}

// read reads a message of a side, and ends the link after an error, and where none comes within limit: with the close
// code and reason of that side, or with 1001 without one.
func (l *link) read(side *websocket.Conn, limit time.Duration, silent, closed feishu.Counted) (
	kind websocket.MessageType, data []byte, ok bool) {
	ctx, cancel := context.WithTimeout(l.living, limit)
	defer cancel()
	kind, data, err := side.Read(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		closed = silent
	}
	l.lost(closed, err)
	return kind, data, err == nil
}

// lost ends the link if there is an error.
func (l *link) lost(event feishu.Counted, err error) {
	why := ending{event, websocket.StatusGoingAway, ""}
	switch e, closed := errors.AsType[websocket.CloseError](err); {
	case err == nil:
		return
	case closed:
		why.code, why.reason = e.Code, e.Reason
	case errors.Is(err, websocket.ErrMessageTooBig):
		why.code = websocket.StatusMessageTooBig
	}
	l.end(why)
}

// fromFeishu carries what Feishu sends to the bot.
func (l *link) fromFeishu() {
	for {
		kind, data, ok := l.read(l.up, l.pingTime()+idleGrace, "silent", "upstream_closed")
		if !ok {
			return
		}
		l.upAt.Store(time.Now().UnixNano())
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
				l.Counter("bad_frame")
			}
		case f.isEvent() && l.owns(l.app):
			l.event(f)
		case f.isControl(larkws.MessageTypePong):
			if config, ping, err := shorten(f.Payload, l.ping.Load()); err == nil {
				l.ping.Store(ping)
				data = f.with(config)
			}
			l.toBot(kind, data)
		default:
			l.toBot(kind, data)
		}
	}
}

// event handles a frame of an event. With the last one the event is committed; then the bot gets it, in one frame, or
// Feishu its acknowledgement.
func (l *link) event(f *frame) {
	start := time.Now()
	f, dropped := l.pieces.add(f)
	for range dropped {
		l.Counter("bad_frame")
		l.Logger.Warn("an event whose frames do not fit together, or did not all come, is dropped")
	}
	if f == nil { // more is to come
		return
	}
	switch t := l.Take(f.Payload); {
	case t.Verdict == feishu.Refuse:
		t.Settle(false)
		l.toFeishu(websocket.MessageBinary, f.ack(http.StatusInternalServerError, start))
	case t.Verdict == feishu.Keep || l.bot == nil:
		t.Settle(true)
		l.toFeishu(websocket.MessageBinary, f.ack(http.StatusOK, start))
	default:
		if t.Instead != nil {
			f.raw = f.whole(t.Instead)
		}
		l.held.Add(f.id(), t)
		if l.toBot(websocket.MessageBinary, f.raw) {
			t.Got()
		}
		if l.ended.Err() != nil {
			l.abandon()
		}
	}
}

// fromBot carries what the bot sends to Feishu.
func (l *link) fromBot() {
	for {
		kind, data, ok := l.read(l.bot, idlePings*l.pingTime()+idleGrace, "bot_silent", "bot_closed")
		if !ok {
			return
		}
		l.botAt.Store(time.Now().UnixNano())
		l.listen()
		f, ok := parse(data)
		switch {
		case !ok || kind != websocket.MessageBinary:
		case f.isControl(larkws.MessageTypePing):
			l.pinged.Store(true)
			l.changed()
		case f.isData() && strings.HasPrefix(f.id(), idPrefix):
			l.acked.Store(true)
			l.answered(f.id(), f.code())
			continue
		case f.isData():
			l.acked.Store(true)
			if t, ok := l.held.Peek(f.id()); ok {
				t.Settle(f.code() == http.StatusOK)
				l.held.Remove(f.id())
			}
		}
		l.toFeishu(kind, data)
	}
}

// pingFeishu pings in the place of a bot.
func (l *link) pingFeishu() {
	for l.ended.Err() == nil {
		l.toFeishu(websocket.MessageBinary, encode(larkws.NewPingFrame(l.service)))
		_ = wait.Sleep(l.ended, l.pingTime()) // which ends with the link
	}
}

func (l *link) pingTime() time.Duration {
	ping := time.Duration(l.ping.Load()) * time.Second
	if ping < time.Second || ping > longestPing {
		return defaultPing
	}
	return ping
}

// check ends the link unless the bot's side of the WebSocket answers a ping.
func (l *link) check() {
	if !l.answersPings(l.living) {
		l.end(botDead)
	}
}

// answersPings reports whether the bot's side of the WebSocket answers.
func (l *link) answersPings(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return l.bot.Ping(ctx) == nil
}

// toBot writes a message to the bot, and ends the link if that fails.
func (l *link) toBot(kind websocket.MessageType, message []byte) bool {
	if l.bot == nil {
		return true
	}
	err := l.write(l.bot, kind, message)
	l.lost("bot_closed", err)
	return err == nil
}

// toFeishu writes a message to Feishu, and ends the link if that fails.
func (l *link) toFeishu(kind websocket.MessageType, message []byte) {
	l.lost("upstream_closed", l.write(l.up, kind, message))
}

func (l *link) write(to *websocket.Conn, kind websocket.MessageType, message []byte) error {
	ctx, cancel := context.WithTimeout(l.living, writeTimeout)
	defer cancel()
	return to.Write(ctx, kind, message)
}

// frame is a message of the long connection (docs/feishu.md 1.3).
type frame struct {
	larkws.Frame
	raw []byte // as received
}

const usualHeaders = 8 // room for as many as events have

// parse reads a frame. ok is false if the SDK could not read it.
func parse(data []byte) (f *frame, ok bool) {
	f = &frame{raw: data}
	f.Headers = make([]larkws.Header, 0, usualHeaders)
	return f, f.Unmarshal(data) == nil
}

func (f *frame) header(key string) string { return larkws.Headers(f.Headers).GetString(key) }

func (f *frame) id() string { return f.header(larkws.HeaderMessageID) }

// isData reports whether f carries an event, or the acknowledgement of one.
func (f *frame) isData() bool { return larkws.FrameType(f.Method) == larkws.FrameTypeData }

func (f *frame) isEvent() bool {
	kind := larkws.MessageType(f.header(larkws.HeaderType))
	return f.isData() && (kind == larkws.MessageTypeEvent || kind == larkws.MessageTypeCard)
}

func (f *frame) isControl(kind larkws.MessageType) bool {
	return larkws.FrameType(f.Method) == larkws.FrameTypeControl && f.header(larkws.HeaderType) == string(kind)
}

// with encodes f with another payload, and with headers replaced or added.
func (f *frame) with(payload []byte, headers ...larkws.Header) []byte {
	out := f.Frame
	out.Payload, out.Headers = payload, slices.Clone(f.Headers)
	for _, h := range headers {
		if i := slices.IndexFunc(out.Headers, func(o larkws.Header) bool { return o.Key == h.Key }); i >= 0 {
			out.Headers[i] = h
		} else {
			out.Headers = append(out.Headers, h)
		}
	}
	return encode(&out)
}

// whole encodes f, which may be one of several frames, as the only frame of another event.
func (f *frame) whole(event []byte) []byte {
	return f.with(event, larkws.Header{Key: larkws.HeaderSum, Value: "1"},
		larkws.Header{Key: larkws.HeaderSeq, Value: "0"})
}

// ack encodes the acknowledgement of the event of f with a code, as a client does that has worked on it since start
// (docs/feishu.md 1.6).
func (f *frame) ack(code int, start time.Time) []byte {
	return f.with(fmt.Appendf(nil, `{"code":%d,"headers":null,"data":null}`, code),
		larkws.Header{Key: larkws.HeaderBizRt, Value: strconv.FormatInt(time.Since(start).Milliseconds(), 10)})
}

// code is that of an acknowledgement; 0 without one.
func (f *frame) code() int {
	var ack struct {
		Code int `json:"code"`
	}
	_ = json.Unmarshal(f.Payload, &ack) // what does not fit has none
	return ack.Code
}

// newEvent encodes an injected event, in one piece, since the SDKs may lose one in several (docs/feishu.md 1.5).
func newEvent(id string, service int32, event []byte) []byte {
	return encode(&larkws.Frame{
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
	})
}

func encode(f *larkws.Frame) []byte {
	data, _ := f.Marshal() // it never fails for a value in memory
	return data
}

// Bounds of the incomplete events of a connection; beyond them the oldest are dropped, and Feishu delivers them again.
const (
	maxIncomplete = 64               // events
	maxBytes      = 16 << 20         // of all their payloads
	maxPieces     = 1024             // of one event
	piecesWait    = 10 * time.Second // from the first piece on: as long as the most patient SDK waits (docs/feishu.md 1.5)
)

// pieces joins the events of a connection that come in several frames, in any order (docs/feishu.md 1.5). The bot gets
// them in one: the Go SDK reads each frame in a goroutine of its own, and loses the event if two of them race.
type pieces struct {
	events []*incomplete // the oldest first
	bytes  int
}

type incomplete struct {
	id    string
	since time.Time
	bySeq [][]byte // the payloads; empty: missing
}

// add adds a frame of an event, and returns the event as one frame once it is complete. dropped is how many events do
// not become complete.
func (p *pieces) add(f *frame) (whole *frame, dropped int) {
	h := larkws.Headers(f.Headers)
	id, sum, seq := f.id(), h.GetInt(larkws.HeaderSum), h.GetInt(larkws.HeaderSeq)
	if sum <= 1 {
		return f, 0
	}
	if id == "" || sum > maxPieces || seq < 0 || seq >= sum {
		return nil, 1
	}
	i := slices.IndexFunc(p.events, func(e *incomplete) bool { return e.id == id && len(e.bySeq) == sum })
	if i < 0 {
		i = len(p.events)
		p.events = append(p.events, &incomplete{id: id, since: time.Now(), bySeq: make([][]byte, sum)})
	}
	bySeq := p.events[i].bySeq
	p.bytes += len(f.Payload) - len(bySeq[seq])
	bySeq[seq] = f.Payload
	if !slices.ContainsFunc(bySeq, func(piece []byte) bool { return len(piece) == 0 }) { // empty ones never count
		p.remove(i)
		f.Payload = slices.Concat(bySeq...)
		f.raw = f.whole(f.Payload)
		return f, 0
	}
	for len(p.events) > maxIncomplete || p.bytes > maxBytes ||
		len(p.events) > 0 && time.Since(p.events[0].since) > piecesWait {
		p.remove(0)
		dropped++
	}
	return nil, dropped
}

func (p *pieces) remove(i int) {
	for _, piece := range p.events[i].bySeq {
		p.bytes -= len(piece)
	}
	p.events = slices.Delete(p.events, i, i+1)
}
