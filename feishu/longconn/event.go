package longconn

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"
	lru "github.com/hashicorp/golang-lru/v2/simplelru"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

// fromFeishu carries what Feishu sends to the bot.
func (l *link) fromFeishu() {
	for {
		kind, data, err := l.up.Read(context.Background()) // ends when the link does
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
		f, ok := conn.ParseFrame(data)
		switch {
		case !ok || kind != websocket.MessageBinary:
			l.toBot(kind, data)
		case f.IsEvent() && l.s.Own(l.app):
			l.event(f)
		case f.IsPong():
			l.toBot(kind, l.pong(f))
		default:
			l.toBot(kind, data)
		}
	}
}

// event handles a frame of an event. With the last one it asks the tap.
func (l *link) event(f *conn.Frame) {
	frames, event, ok := l.pieces.Add(f)
	switch {
	case !ok:
		l.pieces.Drop(f.ID()) // which passes the earlier frames of its event
		l.s.Counter(conn.TapSkipped)
		l.toBot(websocket.MessageBinary, f.Raw)
	case frames != nil: // else more is to come
		l.act(f, frames, event, l.tap.Ask(event))
	}
}

// act gives an event, whose last frame is f, to the bot, or keeps it.
func (l *link) act(f *conn.Frame, frames [][]byte, event []byte, d *conn.Decision) {
	switch {
	case !d.Seen:
		l.acks.hold(f.ID(), d)
		if l.toBot(websocket.MessageBinary, frames...) {
			l.tap.Missed(event)
		}
		d.Begin()
	case d.Verdict == feishu.Keep:
		l.s.Counter(conn.Kept)
		l.acks.hold(f.ID(), d)
		d.Begin()
		if ack, err := f.With([]byte(`{"code":200}`), larkws.Header{Key: larkws.HeaderBizRt, Value: "0"}); err == nil {
			l.acknowledge(f.ID(), true, ack)
		}
	case d.Verdict == feishu.Refuse:
		l.s.Counter(conn.Refused)
		d.Settle(false)
	default:
		if d.Instead != nil {
			if changed, err := f.Whole(d.Instead); err == nil {
				frames = [][]byte{changed}
			}
		}
		l.acks.hold(f.ID(), d)
		if l.toBot(websocket.MessageBinary, frames...) {
			l.s.Counter(conn.Passed)
			d.Begin()
		}
	}
}

// pong makes the reconnect settings in a pong short.
func (l *link) pong(f *conn.Frame) []byte {
	config, ping, err := shorten(f.Payload, int(l.ping.Load()))
	if err != nil {
		return f.Raw
	}
	l.ping.Store(int64(ping))
	out, err := f.With(config)
	if err != nil {
		return f.Raw
	}
	return out
}

// fromBot carries what the bot sends to Feishu.
func (l *link) fromBot() {
	for {
		kind, data, err := l.bot.Read(context.Background()) // ends when the link does
		if err != nil {
			l.lost(countedBotClosed, err)
			return
		}
		l.botSpoke()
		l.listening()
		f, ok := conn.ParseFrame(data)
		switch {
		case !ok || kind != websocket.MessageBinary:
			l.toFeishu(kind, data)
		case f.IsPing():
			l.pinged.Store(true)
			l.awaitFeishu()
			l.toFeishu(kind, data)
			l.s.refresh()
		case !f.IsData():
			l.toFeishu(kind, data)
		case strings.HasPrefix(f.ID(), conn.IDPrefix):
			l.acked.Store(true)
			l.s.answered(l, f)
		default:
			l.acked.Store(true)
			l.acknowledge(f.ID(), f.Code() == http.StatusOK, data)
		}
	}
}

// acknowledge writes an acknowledgement to Feishu: when the follow-up of its event is done, and the event
// is recorded as answered if it was with 200.
func (l *link) acknowledge(id string, ok bool, ack []byte) {
	d := l.acks.take(id)
	if d == nil || !d.HasTask() {
		if d != nil {
			d.Settle(ok)
		}
		l.toFeishu(websocket.MessageBinary, ack)
		return
	}
	passed := l.acks.came()
	go func() {
		defer passed()
		if !d.Wait() {
			l.s.Counter(countedAckLate)
		}
		d.Settle(ok)
		l.toFeishu(websocket.MessageBinary, ack)
	}()
}

// maxHeld is how many events of a link wait for the bot's acknowledgement. Of one more the oldest counts as answered.
const maxHeld = 10_000

// acks are the events that the bot has not acknowledged.
type acks struct {
	mu      sync.Mutex
	waiting *lru.LRU[string, *conn.Decision] // by message_id; guarded by mu
	held    sync.WaitGroup                   // acknowledgements that have come; added to with mu held
	ended   bool                             // guarded by mu
	left    bool                             // the link has ended; guarded by mu
}

// hold adds an event that is about to go to the bot.
func (a *acks) hold(id string, d *conn.Decision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		d.Settle(false)
		return
	}
	if a.waiting == nil {
		a.waiting, _ = lru.NewLRU[string, *conn.Decision](maxHeld, nil) // fails only for a size below 1
	}
	if _, oldest, ok := a.waiting.GetOldest(); ok && a.waiting.Len() == maxHeld {
		oldest.Settle(true)
	}
	a.waiting.Add(id, d)
}

// take removes and returns the event with that id; nil if it does not wait.
func (a *acks) take(id string) *conn.Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		return nil
	}
	d, _ := a.waiting.Peek(id)
	a.waiting.Remove(id)
	return d
}

// came records an acknowledgement that has come. The caller calls passed after it has passed it on. The end of the link
// does not wait for one that comes after drain: it may be lost, and Feishu delivers its event again.
func (a *acks) came() (passed func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return func() {}
	}
	a.held.Add(1)
	return a.held.Done
}

// drain waits for the acknowledgements that have come.
func (a *acks) drain() {
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.held.Wait()
}

// abandon lets the events that the bot has not acknowledged go to it again: it may have stopped before it handled them.
func (a *acks) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	if a.waiting != nil {
		for _, d := range a.waiting.Values() {
			d.Settle(false)
		}
		a.waiting.Purge()
	}
}
