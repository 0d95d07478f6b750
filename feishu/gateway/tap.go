package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"feishu-relay/feishu"
)

// Bounds of what is read of a watched call. A larger body passes unread and is
// counted as "untapped_large".
const (
	maxRequest = 1 << 20
	smallBody  = 64 << 10 // up to here any body is read before it is sent on; larger ones stream
)

const (
	// tapWait is how long an answer waits for our own work on it.
	tapWait = 2 * time.Second
	// hostWait bounds one call of the host.
	hostWait = 10 * time.Second
	// afterLeave is how long Feishu's answer is waited for once the bot hung up:
	// a send may have been accepted.
	afterLeave = 10 * time.Second
	// maxTaps bounds the calls that are being recorded at one time, as they
	// pile up behind a host that hangs. The next passes unread, counted as
	// "untapped_busy".
	maxTaps = 256
)

// tapped is a watched call under way.
type tapped struct {
	call
	http    *http.Request
	token   string // of the Authorization header
	request []byte // up to maxRequest
	changed []byte // what is sent in its place; nil: nothing
	status  int
	answer  []byte // unpacked
	held    *holding
	peer    bool // it is for a chat with another agent, and is answered here
	crowded bool // there was no room for its body
	slot    bool // it has one of Gateway.slots
}

type tappedKey struct{}

// serve passes a REST call on, and keeps a copy where it is one to watch.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	t := &tapped{call: match(r.Method, r.URL.Path), http: r, token: bearer(r)}
	t.held = newHolding(g.budgets.strange)
	if g.own.knows(t.token) {
		t.held = newHolding(g.budgets.bot)
	}
	defer t.held.release()
	defer g.unreserve(t)
	watched := t.op == opToken || t.op != opNone && g.own.watches(t.token)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = incoming{r.Body}
	}
	limit := smallBody
	reads := watched && t.op.readsRequest() || g.mayNamePeer(r)
	if reads {
		limit = maxRequest
	}
	out, data, whole := r, []byte(nil), true
	if reads || r.ContentLength > 0 && r.ContentLength <= smallBody {
		var err error
		data, whole, err = t.held.readUpTo(r.Body, r.ContentLength, limit)
		switch {
		case errors.Is(err, errNoRoom):
			t.crowded = true
			if watched {
				g.count(countedUntappedBusy)
			}
		case err != nil:
			g.count(countedAborted) // the bot gave up; Feishu has seen nothing of it
			panic(http.ErrAbortHandler)
		case !whole && watched:
			g.count(countedUntappedLarge)
		}
		t.request = data
		if watched && whole {
			t.changed = g.withMentions(t)
		}
		out = hold(r, data, whole)
	}
	if plain := g.plain(t, data, whole); g.toPeer(t, plain) {
		t.peer, t.request = true, plain
	}
	if t.peer || watched && whole {
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		defer context.AfterFunc(r.Context(), func() { time.AfterFunc(afterLeave, cancel) })()
		out = out.WithContext(context.WithValue(ctx, tappedKey{}, t))
	}
	g.proxy.ServeHTTP(w, out)
}

// hold gives r back the part of its body that was read. A body that was read
// whole may be sent once more, on a fresh connection: one that Feishu closed
// while it was idle would else fail a POST that was not even begun.
func hold(r *http.Request, data []byte, whole bool) *http.Request {
	out := r.WithContext(r.Context())
	out.Body = again(r.Body, data, whole, nil)
	if whole && len(r.Trailer) == 0 {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	return out
}

// answered is the ReverseProxy's ModifyResponse: it hands a copy of a watched
// call's answer to [Gateway.observe] and waits, at most tapWait.
func (g *Gateway) answered(resp *http.Response) error {
	t, ok := resp.Request.Context().Value(tappedKey{}).(*tapped)
	if !ok || t.peer && !t.op.says() {
		return nil
	}
	held := t.held
	if t.peer {
		held = newHolding(semaphore.NewWeighted(feishu.MaxAnswer)) // it is in memory already, and is not to be lost
	}
	raw, whole, err := held.readUpTo(resp.Body, resp.ContentLength, feishu.MaxAnswer)
	resp.Body = again(resp.Body, raw, whole, err)
	switch {
	case errors.Is(err, errNoRoom):
		g.count(countedUntappedBusy)
		return nil
	case err != nil:
		g.count(countedAnswerCut)
		return nil
	case !whole:
		g.count(countedUntappedLarge)
		return nil
	}
	t.status = resp.StatusCode
	t.answer, err = t.held.unpack(resp.Header.Get("Content-Encoding"), raw)
	if errors.Is(err, errNoRoom) {
		g.count(countedUntappedBusy)
		return nil
	}
	if err != nil {
		g.count(countedUntappedEncoding)
		g.log.Warn("an answer of Feishu cannot be read", "encoding", resp.Header.Get("Content-Encoding"), "err", err)
		return nil
	}
	if instead := g.observeInTime(t); instead != nil {
		replace(resp, instead)
	}
	return nil
}

// observeInTime runs observe off the answer's way and stops waiting after
// tapWait; the work itself goes on. What it returns replaces the answer.
func (g *Gateway) observeInTime(t *tapped) []byte {
	if !g.reserve(t) {
		g.log.Error("too many calls are being recorded; one passes unread")
		return nil
	}
	t.slot = false // the work below has it
	done := make(chan []byte, 1)
	t.held.use()
	work := func() {
		defer t.held.release()
		defer g.caught("tap")
		defer func() { <-g.slots }()
		defer close(done)
		if instead := g.observe(t); instead != nil {
			done <- instead
		}
	}
	if !g.background(work) {
		work() // of the last calls while the gateway closes
	}
	timer := time.NewTimer(tapWait)
	defer timer.Stop()
	select {
	case instead := <-done:
		return instead
	case <-timer.C:
		g.count(countedTapSlow)
		g.log.Warn("recording a call takes long; the bot gets its answer meanwhile")
		return nil
	}
}

// reserve takes one of the slots for t, unless it has one; false where none is free.
func (g *Gateway) reserve(t *tapped) bool {
	if t.slot {
		return true
	}
	select {
	case g.slots <- struct{}{}:
		t.slot = true
	default:
		g.count(countedUntappedBusy)
	}
	return t.slot
}

// unreserve frees the slot of t, if it still has one.
func (g *Gateway) unreserve(t *tapped) {
	if t.slot {
		t.slot = false
		<-g.slots
	}
}

// observe does what a watched call asks for. Only look-ups return an answer of
// ours.
func (g *Gateway) observe(t *tapped) []byte {
	ctx := context.Background() // each question and call below has a bound of its own
	switch t.op {
	case opToken:
		g.tokenAnswer(t)
	case opBotInfo, opBotPing:
		g.selfAnswer(t)
	case opChat:
		g.chatAnswer(t)
	case opChatBots:
		g.chatBotsAnswer(t)
	case opBots, opUser, opMessage, opMessages:
		return g.lookUp(ctx, t)
	case opCreate, opReply, opForward, opMergeForward:
		g.sent(ctx, t)
	case opEdit, opPatch:
		g.edited(t)
	case opRecall:
		g.deleted(t)
	case opReact, opUnreact:
		g.reacted(t)
	default:
		g.cardChanged(t)
	}
	return nil
}

// replace makes data the whole answer, a success.
func replace(resp *http.Response, data []byte) {
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header.Del("Content-Encoding")
	resp.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp.Header.Set("Content-Length", strconv.Itoa(len(data)))
	resp.ContentLength, resp.TransferEncoding, resp.Trailer = int64(len(data)), nil, nil
	resp.Body = &body{Reader: bytes.NewReader(data), Closer: resp.Body}
}

// bearer is the token of a call; "" when it has none.
func bearer(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// panicText names a panic without what it may carry of a message.
func panicText(p any) string {
	if err, ok := p.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", p)
}
