package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// Bounds of what is read of a watched call. A larger body passes unread and is
// counted as "untapped_large".
const (
	maxRequest = 1 << 20
	smallBody  = 64 << 10 // up to here any body is read before it is sent on; larger ones stream
)

const (
	// tapWait is how long the bot waits for its answer while the call is recorded.
	tapWait = 2 * time.Second
	// hostWait bounds one call of the host.
	hostWait = 10 * time.Second
	// afterLeave is how long Feishu's answer is awaited after the bot has closed its connection: Feishu may have
	// accepted a send.
	afterLeave = 10 * time.Second
	// maxTaps is how many calls are recorded at a time, since they accumulate while a host hangs. One more passes
	// unread, and is counted as "untapped_busy".
	maxTaps = 256
)

// tapped is a watched call in progress.
type tapped struct {
	call
	http    *http.Request
	bot     http.ResponseWriter
	token   string // of the Authorization header
	request []byte // up to maxRequest
	changed []byte // what is sent in its place; nil: nothing
	status  int
	answer  []byte // unpacked
	held    *holding
	peer    bool   // it is for a chat with another agent, and is answered here
	ours    string // the query of a look-up with the ids that Feishu is not asked for; "": it is asked for all
	crowded bool   // there was no room for its body
	slot    bool   // it has one of Gateway.slots
}

type tappedKey struct{}

// serve passes a REST call on to Feishu, and keeps a copy of a watched one.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	t := &tapped{call: match(r.Method, r.URL.Path), http: r, bot: w, token: bearer(r)}
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
		case errors.Is(err, feishu.ErrNoRoom):
			t.crowded = true
			if watched {
				g.count(countedUntappedBusy)
			}
		case err != nil:
			g.count(countedAborted) // the bot has ended the call; Feishu has got nothing of it
			panic(http.ErrAbortHandler)
		case !whole && watched:
			g.count(countedUntappedLarge)
		}
		t.request = data
		if watched && whole {
			if g.opts.Sending != nil && (t.op == opCreate || t.op == opReply) {
				g.opts.Sending()
			}
			t.changed = g.withMentions(t)
		}
		out = hold(r, data, whole)
	}
	if plain, unread := g.plain(t, data, whole); unread || g.namesPeer(t, plain) {
		var real string
		if real, t.ours = g.opts.Peers.Split(r); t.ours != "" {
			out = out.WithContext(out.Context())
			out.URL = new(*out.URL)
			out.URL.RawQuery = real
		} else {
			t.peer, t.request = true, plain
		}
	}
	if t.peer || watched && whole {
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		defer context.AfterFunc(r.Context(), func() { time.AfterFunc(afterLeave, cancel) })()
		out = out.WithContext(context.WithValue(ctx, tappedKey{}, t))
	}
	g.proxy.ServeHTTP(w, out)
}

// answered is the ReverseProxy's ModifyResponse: it reads the answer of a watched call and records it
// before the bot gets it.
func (g *Gateway) answered(resp *http.Response) error {
	if resp.StatusCode < 100 {
		return fmt.Errorf("the status %03d is not one of HTTP", resp.StatusCode)
	}
	t, ok := resp.Request.Context().Value(tappedKey{}).(*tapped)
	if !ok || resp.StatusCode < http.StatusOK || t.peer && !t.op.says() {
		return nil
	}
	held := t.held
	if t.peer {
		held = newHolding(semaphore.NewWeighted(feishu.MaxAnswer)) // it is in memory already, and is not to be lost
	}
	raw, whole, err := held.readUpTo(resp.Body, resp.ContentLength, feishu.MaxAnswer)
	resp.Body = again(resp.Body, raw, whole, err)
	switch {
	case errors.Is(err, feishu.ErrNoRoom):
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
	if errors.Is(err, feishu.ErrNoRoom) {
		g.count(countedUntappedBusy)
		return nil
	}
	if err != nil {
		g.count(countedUntappedEncoding)
		g.log.Warn("an answer of Feishu cannot be read", "encoding", resp.Header.Get("Content-Encoding"), "err", err)
		return nil
	}
	if !g.reserve(t) {
		g.log.Error("too many calls are being recorded; one passes unread")
		return nil
	}
	given := make(chan struct{})
	slow := time.AfterFunc(tapWait, func() {
		defer close(given)
		defer g.caught("tap")
		g.count(countedTapSlow)
		g.log.Warn("recording a call takes long; the bot gets its answer first")
		t.give(resp, raw)
	})
	instead := g.observe(t)
	if !slow.Stop() {
		<-given
		return errGiven
	}
	if instead != nil {
		replace(resp, instead)
	}
	return nil
}

// errGiven is returned if the bot has its answer already.
var errGiven = errors.New("the bot has its answer")

// give writes an answer to the bot while the goroutine that serves the call is still recording it. The bot cannot use
// the connection again before that ends, so it is asked to close it.
func (t *tapped) give(resp *http.Response, body []byte) {
	feishu.CopyHeader(t.bot.Header(), resp.Header)
	t.bot.Header().Set("Connection", "close")
	t.bot.Header().Set("Content-Length", strconv.Itoa(len(body)))
	t.bot.WriteHeader(resp.StatusCode)
	_, _ = t.bot.Write(body) // the bot may have gone
	_ = http.NewResponseController(t.bot).Flush()
}

// observe records a watched call. For a look-up it may return another answer than Feishu's. Close waits for it, and its
// panics are caught.
func (g *Gateway) observe(t *tapped) []byte {
	if g.begin() {
		defer g.busy.Done()
	} // else it is one of the last calls while the gateway closes
	defer g.caught("tap")       // which leaves nil
	ctx := context.Background() // each call below has a timeout of its own
	switch t.op {
	case opToken:
		g.tokenAnswer(t)
	case opBotInfo, opBotPing:
		g.selfAnswer(t)
	case opChat:
		g.chatAnswer(t)
	case opChatBots:
		g.chatBotsAnswer(t)
	case opBots, opUser, opUsers, opMessage, opMessages:
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

// sent takes a message that Feishu accepted.
func (g *Gateway) sent(ctx context.Context, t *tapped) {
	m, err := feishu.ParseSent(t.answer)
	if refusal, ok := errors.AsType[*feishu.CodeError](err); ok {
		g.refused(ctx, t, refusal.Code)
		return
	}
	if err != nil || m.ID == "" || m.ChatID == "" || t.status >= http.StatusMultipleChoices {
		g.count(countedUnreadable)
		g.log.Warn("the answer to a send cannot be read; the message is not relayed", "status", t.status, "err", err)
		return
	}
	if !g.ours(t, m.Sender) {
		return
	}
	g.opts.Book.LearnSelf(feishu.Self{Tenant: m.Sender.Tenant})
	g.opts.Book.LearnMentions(m.Mentions)
	g.recent.chats.Add(m.ID, m.ChatID)
	if g.opts.Peers != nil && !t.peer && (m.Type == typeCard || m.Type == "") {
		if card := feishu.CardID(t.sendRequest().Content); card != "" {
			g.recent.cards.Add(card, struct{}{})
		}
	}
	kind := g.kindOf(t, m.ChatID)
	if !t.peer {
		g.opts.Book.SawChat(m.ChatID, kind)
	}
	if kind == feishu.ChatP2P {
		return // a private chat never leaves its bot
	}
	if !t.peer {
		g.joined(m.ChatID, m.CreateTime)
	}
	if g.recent.sent.Contains(m.ID) || g.drafts.holds(m.ID) {
		return // the same send again, by its uuid
	}
	if m.Type == typeCard || m.Type == "" || m.Content == "" { // cards are simplified in answers
		req := t.sendRequest()
		m.Type, m.Content = cmp.Or(m.Type, req.MsgType), cmp.Or(req.Content, m.Content)
	} else {
		g.asWritten(&m, t)
	}
	d := &draft{Message: m, Created: relay.MillisOf(time.Now())}
	if m.Type == typeCard {
		if id := feishu.CardID(m.Content); id != "" {
			g.bind(d, id)
			return
		}
		if card, err := feishu.NewCard([]byte(m.Content)); err == nil {
			d.Card = card
		}
	}
	g.add(ctx, d)
}

// publish hands a final message of a group to the host.
func (g *Gateway) publish(ctx context.Context, out Sent) (err error) {
	err = errPanicked // unless it gets to its end
	defer g.caught("sent")
	if g.recent.gone.Contains(cmp.Or(out.EditOf, out.ID)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hostWait)
	defer cancel()
	out = g.finished(out)
	if err := g.opts.Host.Sent(ctx, out); err != nil {
		g.count(countedSentError)
		g.log.Error("a message of the bot cannot be recorded yet", "chat", out.ChatID, "message_id", out.ID, "err", err)
		return err
	}
	if out.EditOf == "" {
		if len(out.Content) > maxText {
			out.Content = ""
		}
		g.recent.sent.Add(out.ID, out.Message)
	}
	g.count(countedSent)
	return nil
}

// op is what a watched call does (docs/feishu.md 4, 5, 6).
type op int

const (
	opNone op = iota
	opToken
	opBotInfo
	opBotPing
	opChat
	opChatBots
	opBots
	opUser
	opUsers
	opMessage
	opMessages

	// From here on the request's body is read too.
	opCreate
	opReply
	opForward
	opMergeForward
	opEdit
	opPatch
	opRecall
	opReact
	opUnreact
	opCardCreate
	opCardReplace
	opCardSettings
	opCardBatch
	opCardConvert
	opElementAdd
	opElementContent
	opElementReplace
	opElementPatch
	opElementDelete
)

// says reports whether a call says something in a chat or changes it.
func (o op) says() bool { return o >= opCreate }

func (o op) readsRequest() bool { return o.says() || o == opToken }

// call is a watched call with the ids of its path.
type call struct {
	op       op
	message  relay.MessageID
	mail     relay.MessageID // what is in the path for message: a direct message of another agent, about it
	chat     relay.ChatID
	card     string
	element  string
	user     string
	reaction string
}

// routes are the watched calls.
var routes = feishu.NewRoutes(map[string]op{
	"POST auth/v3/tenant_access_token/internal":              opToken,
	"POST auth/v3/app_access_token/internal":                 opToken,
	"GET bot/v3/info":                                        opBotInfo,
	"POST bot/v1/openclaw_bot/ping":                          opBotPing,
	"GET bot/v3/bots/basic_batch":                            opBots,
	"GET contact/v3/users/batch":                             opUsers,
	"GET contact/v3/users/{user}":                            opUser,
	"GET im/v1/chats/{chat}":                                 opChat,
	"GET im/v1/chats/{chat}/members/bots":                    opChatBots,
	"GET im/v1/messages/mget":                                opMessages,
	"GET im/v1/messages/{message}":                           opMessage,
	"POST im/v1/messages":                                    opCreate,
	"POST im/v1/messages/merge_forward":                      opMergeForward,
	"PUT im/v1/messages/{message}":                           opEdit,
	"PATCH im/v1/messages/{message}":                         opPatch,
	"DELETE im/v1/messages/{message}":                        opRecall,
	"POST im/v1/messages/{message}/reply":                    opReply,
	"POST im/v1/messages/{message}/forward":                  opForward,
	"POST im/v1/threads/{thread}/forward":                    opForward,
	"POST im/v1/messages/{message}/reactions":                opReact,
	"DELETE im/v1/messages/{message}/reactions/{reaction}":   opUnreact,
	"POST cardkit/v1/cards":                                  opCardCreate, // CardKit: docs/feishu.md 5.2
	"POST cardkit/v1/cards/id_convert":                       opCardConvert,
	"PUT cardkit/v1/cards/{card}":                            opCardReplace,
	"PATCH cardkit/v1/cards/{card}/settings":                 opCardSettings,
	"POST cardkit/v1/cards/{card}/batch_update":              opCardBatch,
	"POST cardkit/v1/cards/{card}/elements":                  opElementAdd,
	"PUT cardkit/v1/cards/{card}/elements/{element}":         opElementReplace,
	"PATCH cardkit/v1/cards/{card}/elements/{element}":       opElementPatch,
	"DELETE cardkit/v1/cards/{card}/elements/{element}":      opElementDelete,
	"PUT cardkit/v1/cards/{card}/elements/{element}/content": opElementContent,
})

// match finds what a call is, by method and path; opNone for all that passes unread.
func match(method, path string) call {
	op, ids, _ := routes.Match(method, path)
	c := call{op: op, message: relay.MessageID(ids["message"]), chat: relay.ChatID(ids["chat"]), card: ids["card"],
		element: ids["element"], user: ids["user"], reaction: ids["reaction"]}
	if op == opReply || op == opReact || op == opUnreact {
		if about, ok := feishu.AboutMail(c.message); ok {
			c.mail, c.message = c.message, about
		}
	}
	return c
}

// body reads from one place and closes another.
type body struct {
	io.Reader
	io.Closer
}

// incoming is the body of a request; its errors are *senderError.
type incoming struct{ io.ReadCloser }

// senderError is an error of the sender of a request, not of Feishu.
type senderError struct{ error }

func (b incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &senderError{err}
	}
	return n, err
}

// readUpTo reads at most limit bytes of r, which is size bytes long (-1: unknown),
// and holds them; see [feishu.ReadUpTo].
func (h *holding) readUpTo(r io.Reader, size int64, limit int) (data []byte, whole bool, err error) {
	first := freeBytes
	if size >= 0 && size < freeBytes {
		first = int(size) + 1 // its end is seen without another piece
	}
	had := first
	return feishu.ReadUpTo(r, first, limit, func(size int) bool {
		if size > had && !h.take(size-had) {
			return false
		}
		had = max(had, size)
		return true
	})
}

// again is a body of which readUpTo has read data: followed by nothing, by the
// rest of source, or by the error that ended it.
func again(source io.ReadCloser, data []byte, whole bool, err error) io.ReadCloser {
	first := bytes.NewReader(data)
	switch {
	case err != nil && !errors.Is(err, feishu.ErrNoRoom):
		return &body{io.MultiReader(first, failing{err}), source}
	case whole:
		return &body{first, source}
	}
	return &body{io.MultiReader(first, source), source}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

var errTooLarge = errors.New("unpacked, it is larger than is read here")

// unpack undoes a Content-Encoding; at most feishu.MaxAnswer bytes come out.
func (h *holding) unpack(encoding string, data []byte) ([]byte, error) {
	if encoding == "" {
		return data, nil
	}
	r, err := feishu.Decoder(encoding, data)
	if err != nil {
		return nil, err
	}
	out, whole, err := h.readUpTo(r, -1, feishu.MaxAnswer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack %s: %w", encoding, err)
	case !whole:
		return nil, errTooLarge
	}
	return out, nil
}

// hold returns r with the part of its body that was read put back. A body that was read whole can be sent again on a
// new connection: otherwise a POST would fail if Feishu has just closed an idle connection.
func hold(r *http.Request, data []byte, whole bool) *http.Request {
	out := r.WithContext(r.Context())
	out.Body = again(r.Body, data, whole, nil)
	if whole && len(r.Trailer) == 0 {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	return out
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

// Bounds of all that is held of requests and answers at one time. What has no room
// passes unread.
const (
	freeBytes    = 8 << 10  // of each body, beside the budgets: an ordinary call is read whatever else goes on
	botBytes     = 16 << 20 // of calls with a token that is known to be the bot's
	strangeBytes = 8 << 20  // of all others
)

// budgets are two, so that other callers cannot use up the bot's.
type budgets struct{ bot, strange *semaphore.Weighted }

func newBudgets() budgets {
	return budgets{semaphore.NewWeighted(botBytes), semaphore.NewWeighted(strangeBytes)}
}

// holding is what one call holds of a budget.
type holding struct {
	of    *semaphore.Weighted
	bytes int64
}

func newHolding(of *semaphore.Weighted) *holding { return &holding{of: of} }

// take reports whether there is room for n more bytes.
func (h *holding) take(n int) bool {
	if !h.of.TryAcquire(int64(n)) {
		return false
	}
	h.bytes += int64(n)
	return true
}

func (h *holding) release() { h.of.Release(h.bytes) }

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
