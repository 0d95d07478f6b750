package gateway

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

const (
	// maxRequest bounds what is read of a request. A larger one passes unread, and is counted as "untapped_large".
	maxRequest = 1 << 20
	// smallBody is up to which size the body of a call that passes unread is read before it is sent on: so it can be
	// sent again if Feishu has just closed an idle connection. A larger one streams.
	smallBody = 64 << 10
	// maxHeld bounds what is held of all requests and answers together, but for the first freeBytes of each. What has
	// no room passes unread, and is counted as "untapped_busy".
	maxHeld   = 24 << 20
	freeBytes = 8 << 10
	// tapWait is how long the bot waits for its answer while the call is recorded.
	tapWait = 2 * time.Second
	// hostWait bounds one call of the host.
	hostWait = 10 * time.Second
	// afterLeave is how long Feishu's answer is awaited after the bot has closed its connection: Feishu may have
	// accepted a send.
	afterLeave = 10 * time.Second
)

// call is a call of the bot that is read.
type call struct {
	g       *Gateway
	http    *http.Request // as it came
	path    *http.Request // as it matched: it has the ids of the path
	message relay.MessageID
	bot     http.ResponseWriter
	token   string      // of the Authorization header
	read    func(*call) // reads Feishu's answer; nil: the call passes unread
	sends   bool        // it sends a message to a chat, or as a reply
	peer    bool        // it is for a chat with another agent, and is answered here
	cut     bool        // its body was not read whole
	crowded bool        // since there was no room
	held    int64       // bytes of maxHeld
	request []byte      // its body
	changed []byte      // what is sent in its place; nil: nothing
	status  int         // of Feishu's answer
	answer  []byte      // unpacked
	instead []byte      // what the bot gets in place of the answer; nil: nothing
}

type callKey struct{}

// routes are the calls that are read, and what reads Feishu's answer to them (docs/feishu.md 4 to 6). They also match
// with doubled slashes, which the Node SDK makes (docs/feishu.md 7.1), and with one at the end.
func (g *Gateway) routes() *http.ServeMux {
	const im, cards = "/open-apis/im/v1/", "/open-apis/cardkit/v1/cards"
	const element = cards + "/{card}/elements/{element}"
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	for pattern, read := range map[string]func(*call){
		"POST /open-apis/auth/v3/tenant_access_token/internal": g.tokenAnswer,
		"POST /open-apis/auth/v3/app_access_token/internal":    g.tokenAnswer,
		"GET /open-apis/bot/v3/info":                           g.selfAnswer,
		"POST /open-apis/bot/v1/openclaw_bot/ping":             g.selfAnswer,
		"GET /open-apis/bot/v3/bots/basic_batch":               g.lookUp(g.completeBots),
		"GET /open-apis/contact/v3/users/{user}":               g.lookUp(g.completeUser),
		"GET " + im + "chats/{chat}":                           g.chatAnswer,
		"GET " + im + "chats/{chat}/members/bots":              g.chatBotsAnswer,
		"GET " + im + "messages/mget":                          g.lookUp(g.completeMessages),
		"GET " + im + "messages/{message}":                     g.lookUp(g.completeMessages),
		"POST " + im + "messages":                              g.sent,
		"POST " + im + "messages/merge_forward":                g.sent,
		"POST " + im + "messages/{message}/forward":            g.sent,
		"POST " + im + "threads/{thread}/forward":              g.sent,
		"POST " + im + "messages/{message}/reply":              g.sent,
		"PUT " + im + "messages/{message}":                     g.edited,
		"PATCH " + im + "messages/{message}":                   g.edited,
		"DELETE " + im + "messages/{message}":                  g.deleted,
		"POST " + im + "messages/{message}/reactions":          g.reacted,
		"DELETE " + im + "messages/{message}/reactions/{one}":  g.reacted,
		"POST " + cards:                          g.cardMade,
		"POST " + cards + "/id_convert":          g.cardConverted,
		"PUT " + cards + "/{card}":               g.cardChanged,
		"PATCH " + cards + "/{card}/settings":    g.cardChanged,
		"POST " + cards + "/{card}/batch_update": g.cardChanged,
		"POST " + cards + "/{card}/elements":     g.cardChanged,
		"PUT " + element:                         g.cardChanged,
		"PATCH " + element:                       g.cardChanged,
		"DELETE " + element:                      g.cardChanged,
		"PUT " + element + "/content":            g.cardChanged,
	} {
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
			t, _ := r.Context().Value(callKey{}).(*call)
			t.path, t.read, t.message = r, read, relay.MessageID(r.PathValue("message"))
			t.sends = strings.HasSuffix(pattern, " "+im+"messages") || strings.HasSuffix(pattern, "/reply")
		})
	}
	return mux
}

// match finds out what a call is.
func (g *Gateway) match(w http.ResponseWriter, r *http.Request) *call {
	t := &call{g: g, http: r, bot: w, token: bearer(r)}
	as := r.WithContext(context.WithValue(r.Context(), callKey{}, t))
	as.URL = &url.URL{Path: strings.TrimSuffix(feishu.SingleSlashes(r.URL.Path), "/"), RawQuery: r.URL.RawQuery}
	as.RequestURI = ""
	if t.path = as; strings.HasPrefix(as.URL.Path, "/open-apis/") && !strings.Contains(as.URL.Path, "/.") {
		g.mux.ServeHTTP(nil, as) // of a path that needs no redirect; the handlers write nothing
	}
	return t
}

// bearer is the token of a call; "" when it has none.
func bearer(r *http.Request) string {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// serve passes a REST call on to Feishu, and reads one of the bot that matters.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	t := g.match(w, r)
	defer func() { g.memory.Release(t.held) }()
	if g.opts.Host == nil || !g.watches(t.token) {
		t.read = nil
	}
	out := r.WithContext(r.Context())
	t.readRequest(out)
	if t.peer = g.opts.Peers != nil && g.namesPeer(t); !t.peer && t.read != nil {
		g.retarget(t, out)
		if t.sends && g.opts.Sending != nil {
			g.opts.Sending()
		}
		t.changed = g.withMentions(t)
	}
	if t.peer || t.read != nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		defer context.AfterFunc(r.Context(), func() { time.AfterFunc(afterLeave, cancel) })()
		out = out.WithContext(context.WithValue(ctx, callKey{}, t))
	}
	g.proxy.ServeHTTP(w, out)
}

// readRequest reads the body of a call, as far as it matters, and puts it back into out, the request to Feishu.
func (t *call) readRequest(out *http.Request) {
	r := t.http
	reads := r.Method != http.MethodGet && (t.read != nil || t.g.opts.Peers != nil && peerchat.BodyMayName(r))
	limit := smallBody
	if reads {
		limit = maxRequest
	}
	if r.Body == nil || r.Body == http.NoBody || !reads && (r.ContentLength < 0 || r.ContentLength > smallBody) {
		return
	}
	data, whole, err := t.readUpTo(r.Body, r.ContentLength, limit)
	if err != nil && !errors.Is(err, errNoRoom) {
		t.g.count("aborted") // the bot has ended the call; Feishu has got nothing of it
		panic(http.ErrAbortHandler)
	}
	t.request, out.Body = data, again(r.Body, data)
	if whole {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
		return
	}
	t.cut, t.crowded = true, err != nil
	t.unread(err)
}

// unread counts that a call is not read, since its body is too large, or all bodies together are.
func (t *call) unread(err error) {
	switch {
	case t.read == nil:
	case errors.Is(err, errNoRoom):
		t.g.count("untapped_busy")
	default:
		t.g.count("untapped_large")
	}
	t.read = nil
}

// retarget makes a reply or a reaction to a direct message of another agent, which Feishu does not know, one to the
// message that it is about.
func (g *Gateway) retarget(t *call, out *http.Request) {
	about, ok := feishu.AboutMail(t.message)
	if !ok || t.http.Method == http.MethodGet {
		return
	}
	path := strings.Replace(t.http.URL.Path, string(t.message), string(about), 1)
	out.URL, t.message = &url.URL{Path: path, RawQuery: t.http.URL.RawQuery}, about
}

// answered is the ReverseProxy's ModifyResponse: it reads the answer to a call and records it before the bot gets it.
func (g *Gateway) answered(resp *http.Response) error {
	t, ok := resp.Request.Context().Value(callKey{}).(*call)
	if !ok || t.read == nil || resp.StatusCode < http.StatusOK {
		return nil
	}
	raw, whole, err := t.readUpTo(resp.Body, resp.ContentLength, feishu.MaxAnswer)
	resp.Body = again(resp.Body, raw)
	if err != nil && !errors.Is(err, errNoRoom) {
		g.count("answer_cut")
		return nil
	}
	if !whole {
		t.unread(err)
		return nil
	}
	t.status = resp.StatusCode
	if t.answer, err = t.unpack(resp.Header.Get("Content-Encoding"), raw); err != nil {
		g.count("untapped_encoding")
		g.log.Warn("an answer of Feishu cannot be read", "encoding", resp.Header.Get("Content-Encoding"), "err", err)
		return nil
	}
	given := make(chan struct{})
	slow := time.AfterFunc(tapWait, func() {
		defer close(given)
		defer g.caught("tap")
		g.count("tap_slow")
		g.log.Warn("recording a call takes long; the bot gets its answer first")
		t.give(resp, raw)
	})
	func() {
		defer g.caught("tap")
		t.read(t)
	}()
	if !slow.Stop() {
		<-given
		return errGiven
	}
	if t.instead != nil {
		replace(resp, t.instead)
	}
	return nil
}

// errGiven is returned if the bot has its answer already.
var errGiven = errors.New("the bot has its answer")

// give writes an answer to the bot while the goroutine that serves the call is still recording it. The bot cannot use
// the connection again before that ends, so it is asked to close it.
func (t *call) give(resp *http.Response, body []byte) {
	feishu.CopyHeader(t.bot.Header(), resp.Header)
	t.bot.Header().Set("Connection", "close")
	t.bot.Header().Set("Content-Length", strconv.Itoa(len(body)))
	t.bot.WriteHeader(resp.StatusCode)
	_, _ = t.bot.Write(body) // the bot may have gone
	_ = http.NewResponseController(t.bot).Flush()
}

// accepted reads the answer to a call. ok reports whether Feishu accepted the call.
func accepted[T any](t *call) (data T, ok bool) {
	data, err := feishu.ReadAnswer[T](t.answer)
	return data, err == nil && t.status < http.StatusMultipleChoices
}

var errNoRoom = errors.New("too much memory is used for other bodies")

// readUpTo reads at most limit bytes of r, which is size bytes long (-1: unknown), and has room for them but for the
// first freeBytes. whole is false when there is more, which is then not read, and after an error.
func (t *call) readUpTo(r io.Reader, size int64, limit int) (data []byte, whole bool, err error) {
	data, err = io.ReadAll(io.LimitReader(r, freeBytes))
	if err != nil || len(data) < freeBytes {
		return data, err == nil, err
	}
	if size >= 0 {
		limit = min(limit, int(size))
	}
	if !t.take(limit) {
		return data, false, errNoRoom
	}
	rest, err := io.ReadAll(io.LimitReader(r, int64(limit+1-len(data))))
	data = append(data, rest...)
	return data, err == nil && len(data) <= limit, err
}

// take reports whether there is room for n more bytes. What was accepted for another agent is always read.
func (t *call) take(n int) bool {
	if t.peer {
		return true
	}
	if !t.g.memory.TryAcquire(int64(n)) {
		return false
	}
	t.held += int64(n)
	return true
}

// body reads from one place and closes another.
type body struct {
	io.Reader
	io.Closer
}

// again is a body of which data was read: source goes on, also with the error that ended it.
func again(source io.ReadCloser, data []byte) io.ReadCloser {
	return body{io.MultiReader(bytes.NewReader(data), source), source}
}

// unpack undoes a Content-Encoding; at most [feishu.MaxAnswer] bytes come out.
func (t *call) unpack(encoding string, data []byte) ([]byte, error) {
	switch encoding {
	case "":
		return data, nil
	case "gzip":
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		out, whole, err := t.readUpTo(r, -1, feishu.MaxAnswer)
		if err == nil && !whole {
			err = errors.New("unpacked, it is larger than is read here")
		}
		return out, err
	}
	return nil, errors.New("the encoding is unknown")
}

// replace makes data the whole answer, a success.
func replace(resp *http.Response, data []byte) {
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header.Del("Content-Encoding")
	resp.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp.Header.Set("Content-Length", strconv.Itoa(len(data)))
	resp.ContentLength, resp.TransferEncoding, resp.Trailer = int64(len(data)), nil, nil
	resp.Body = body{bytes.NewReader(data), resp.Body}
}
