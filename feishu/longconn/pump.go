package longconn

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
)

// fromUpstream carries what Feishu says to the bot.
func (l *link) fromUpstream() {
	for {
		typ, data, err := l.up.Read(context.Background()) // ends when the link does
		if err != nil {
			l.lost("upstream_closed", err)
			return
		}
		l.upstreamSpoke()
		select {
		case <-l.ready:
		case <-l.ended:
		}
		if l.isEnded() {
			continue // to its end: Feishu delivers again what nobody acknowledged
		}
		f, ok := frame{}, false
		if typ == websocket.MessageBinary {
			f, ok = parse(data)
		}
		switch {
		case ok && f.isEvent():
			if !l.event(&f) {
				return
			}
		case ok && f.isPong() && len(f.payload) > 0:
			l.toBot(typ, l.pong(&f))
		default:
			l.toBot(typ, data)
		}
	}
}

// event carries an event, or a piece of one. goOn is false where another
// goroutine goes on.
func (l *link) event(f *frame) (goOn bool) {
	if l.s.Tap == nil || !l.s.Own(l.app) {
		l.toBot(websocket.MessageBinary, f.raw)
		return true
	}
	frames, event := [][]byte{f.raw}, f.payload
	if f.sum > 1 {
		var ok bool
		if frames, event, ok = l.fragments.add(f); !ok {
			l.s.Counter("untapped")
			l.toBot(websocket.MessageBinary, f.raw)
			return true
		}
		if frames == nil {
			return true // there is more to come
		}
	}
	if l.s.stuck.Load() >= maxStuck {
		l.s.Counter("untapped")
		l.passUnseen(event, frames)
		return true
	}
	deadline := time.Now().Add(feishu.AckHold) // for the tap and what it wants done together
	var decided atomic.Bool
	replaced := make(chan struct{})
	late := time.AfterFunc(feishu.AckHold, func() {
		if decided.Swap(true) {
			return
		}
		l.s.stuck.Add(1)
		l.s.Counter("tap_slow")
		l.s.log.Warn("the tap is slow: an event goes to the bot unseen", "app", l.app)
		l.passUnseen(event, frames)
		l.pumps.Go(l.fromUpstream) // in place of the one that waits for the tap
		close(replaced)
	})
	v, instead, do := l.s.ask(event)
	late.Stop()
	if decided.Swap(true) {
		<-replaced
		l.s.stuck.Add(-1)
		if do != nil {
			l.later("", nil, do)
		}
		return false
	}
	if instead != nil && v == feishu.Pass {
		if changed, err := f.whole(instead); err == nil {
			frames = [][]byte{changed}
		}
	}
	l.settle(f, frames, v, do, deadline)
	return true
}

// passUnseen writes an event to the bot that the tap has not decided on.
func (l *link) passUnseen(event []byte, frames [][]byte) {
	if l.toBot(websocket.MessageBinary, frames...) && l.s.Passed != nil {
		l.s.guard(func() { l.s.Passed(event) })
	}
}

// ask asks the tap. A panic is a Pass.
func (s *Server) ask(event []byte) (v feishu.Verdict, instead []byte, do func()) {
	defer s.recovered()
	return s.Tap(event)
}

// settle does what the tap said about an event. The acknowledgement waits for do until
// the deadline.
func (l *link) settle(f *frame, frames [][]byte, v feishu.Verdict, do func(), deadline time.Time) {
	switch v {
	case feishu.Keep:
		l.s.Counter("kept")
		ack, err := f.ack()
		switch {
		case err != nil:
		case do != nil && f.id != "":
			h := l.holds.expect(f.id, deadline)
			l.holds.keep(f.id, ack)
			l.later(f.id, h, do)
			return
		default:
			l.toUpstream(websocket.MessageBinary, ack)
		}
		if do != nil {
			l.later("", nil, do)
		}
	case feishu.Refuse:
		l.s.Counter("refused")
	default:
		var h *hold
		if do != nil && f.id != "" {
			h = l.holds.expect(f.id, deadline)
		}
		if !l.toBot(websocket.MessageBinary, frames...) {
			l.release(f.id, h)
			return
		}
		l.s.Counter("passed")
		if do != nil {
			l.later(f.id, h, do)
		}
	}
}

// pong makes the reconnect settings in a pong short.
func (l *link) pong(f *frame) []byte {
	config, ping, err := shorten(f.payload, int(l.ping.Load()))
	if err != nil {
		return f.raw
	}
	l.ping.Store(int64(ping))
	out, err := f.change(config)
	if err != nil {
		return f.raw
	}
	return out
}

// fromBot carries what the bot says to Feishu.
func (l *link) fromBot() {
	for {
		typ, data, err := l.bot.Read(context.Background()) // ends when the link does
		if err != nil {
			l.lost("bot_closed", err)
			return
		}
		l.botSpoke()
		l.listening()
		f, ok := frame{}, false
		if typ == websocket.MessageBinary {
			f, ok = parse(data)
		}
		switch {
		case ok && f.isOurs():
			l.acked.Store(true)
			l.s.acknowledged(l, &f)
			continue
		case ok && f.isData():
			l.acked.Store(true)
			if l.holds.keep(f.id, data) {
				continue
			}
		case ok && f.isPing():
			l.pinged.Store(true)
			l.awaitUpstream()
		}
		l.toUpstream(typ, data)
		if ok && f.isPing() {
			l.s.refresh()
		}
	}
}

func (l *link) botSpoke() {
	l.botAt.Store(time.Now().UnixNano())
	l.idle.Reset(l.idleTime())
}

func (l *link) upstreamSpoke() {
	l.upAt.Store(time.Now().UnixNano())
	if l.waiting.Swap(false) {
		l.silent.Stop()
	}
}

// awaitUpstream starts to count Feishu's silence, unless it is counted already.
func (l *link) awaitUpstream() {
	if l.waiting.CompareAndSwap(false, true) {
		l.silent.Reset(silence)
	}
}

// closeError is the close frame that ended a connection, where there was one.
func closeError(err error) (websocket.CloseError, bool) {
	if ce, ok := errors.AsType[websocket.CloseError](err); ok {
		return ce, true
	}
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return websocket.CloseError{Code: websocket.StatusMessageTooBig}, true
	}
	return websocket.CloseError{}, false
}

// serviceID is what a bot puts into its pings (docs/feishu.md 1.2).
func serviceID(upstream string) int32 {
	u, err := url.Parse(upstream)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(u.Query().Get(larkws.ServiceID), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// kind says what a panic was about without showing what it was made of.
func kind(p any) string {
	if err, ok := p.(error); ok {
		return fmt.Sprintf("%T", err)
	}
	return fmt.Sprintf("%T", p)
}
