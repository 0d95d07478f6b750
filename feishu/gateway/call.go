package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

const (
	// maxBody bounds what is read of a request, and of its answer. A larger one passes unread, and is counted as
	// "untapped_large".
	maxBody = 1 << 20
	// smallBody is up to which size a body takes no room. That of a call that passes unread is read, too, before it is
	// sent on: so it can be sent again if Feishu has just closed an idle connection.
	smallBody = 64 << 10
	// maxLarge bounds how many larger requests are held at a time. Another one passes unread, and is counted as
	// "untapped_busy".
	maxLarge = 32
	// maxReading bounds the bytes of the calls that are recorded at a time. Each counts with its body, its answer and
	// readingCost. Another one waits, and so does the bot, for hostWait; then it stays unread, as "untapped_busy".
	maxReading  = 32 << 20
	readingCost = 32 << 10
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
	http    *http.Request // as it came
	path    *http.Request // as it matched: it has the ids of the path
	message relay.MessageID
	token   string                // of the Authorization header
	read    func(*call)           // reads Feishu's answer; nil: the call passes unread
	shown   func(*call) object    // answers a look-up of what the bot was shown; nil: it is none
	sends   bool                  // it sends a message to a chat, or as a reply
	peer    bool                  // it is for a chat with another agent, and is answered here
	cut     bool                  // its body was not read whole
	request []byte                // its body
	changed []byte                // what is sent in its place; nil: nothing
	proxy   httputil.ReverseProxy // which passes it on
	status  int                   // of Feishu's answer
	answer  []byte
}

type callKey struct{}

// routes are the calls that are read, and what reads Feishu's answer to them (docs/feishu.md 4 to 6), and the look-ups
// that may be answered here. They also match with doubled slashes, which the Node SDK makes (docs/feishu.md 7.1), and
// with one at the end.
func (g *Gateway) routes() *http.ServeMux {
	const im, cards = "/open-apis/im/v1/", "/open-apis/cardkit/v1/cards"
	const element = cards + "/{card}/elements/{element}"
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	for pattern, read := range map[string]func(*call){
		"POST /open-apis/auth/v3/tenant_access_token/internal": g.tokenAnswer,
		"POST /open-apis/auth/v3/app_access_token/internal":    g.tokenAnswer,
		"GET /open-apis/bot/v3/info":                           g.selfAnswer,
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
			t := callOf(r)
			t.path, t.read, t.message = r, read, relay.MessageID(r.PathValue("message"))
			t.sends = strings.HasSuffix(pattern, " "+im+"messages") || strings.HasSuffix(pattern, "/reply")
		})
	}
	for pattern, shown := range map[string]func(*call) object{
		"GET /open-apis/bot/v3/bots/basic_batch": g.shownBots,
		"GET /open-apis/contact/v3/users/{user}": g.shownUser,
		"GET " + im + "messages/mget":            g.shownMessages,
		"GET " + im + "messages/{message}":       g.shownMessages,
	} {
		mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
			t := callOf(r)
			t.path, t.shown = r, shown
		})
	}
	return mux
}

// callOf is the call of a request, which is nil unless it is read or answered here.
func callOf(r *http.Request) *call {
	t, _ := r.Context().Value(callKey{}).(*call)
	return t
}

// match finds out what a call is.
func (g *Gateway) match(r *http.Request) *call {
	t := &call{http: r, token: bearer(r)}
	as := r.WithContext(context.WithValue(r.Context(), callKey{}, t))
	as.URL = &url.URL{Path: strings.TrimSuffix(feishu.SingleSlashes(r.URL.Path), "/"), RawQuery: r.URL.RawQuery}
	if t.path = as; strings.HasPrefix(as.URL.Path, "/open-apis/") && !strings.Contains(as.URL.Path, "/.") {
		g.mux.ServeHTTP(nil, as) // of a path that needs no redirect; the handlers write nothing
	}
	return t
}

// bearer is the token of a call; "" when it has none.
func bearer(r *http.Request) string {
	if kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(kind, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// serve passes a REST call on to Feishu, and reads one of the bot that matters.
func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	t := g.match(r)
	if g.opts.Host == nil || !g.watches(t.token) {
		t.read, t.shown = nil, nil
	}
	out := r.WithContext(r.Context())
	defer g.readRequest(t, out)()
	if t.peer = g.opts.Peers != nil && g.namesPeer(t); t.peer {
		g.answerPeer(w, t)
		return
	}
	if g.lookUp(w, t) {
		return
	}
	if t.read != nil {
		g.retarget(t, out)
		if t.sends && g.opts.Sending != nil {
			g.opts.Sending()
		}
		t.changed = g.withMentions(t)
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		defer cancel()
		defer context.AfterFunc(r.Context(), func() { time.AfterFunc(afterLeave, cancel) })()
		out = out.WithContext(context.WithValue(ctx, callKey{}, t))
	}
	t.proxy = *g.proxy
	t.proxy.ServeHTTP(w, out)
}

// readRequest reads the body of a call, as far as it matters, and puts it back into out, the request to Feishu. release
// is to be called when the call has ended.
func (g *Gateway) readRequest(t *call, out *http.Request) (release func()) {
	r, release := t.http, func() {}
	reads := r.Method != http.MethodGet && (t.read != nil || g.opts.Peers != nil && peerchat.BodyMayName(r))
	if r.Body == nil || r.Body == http.NoBody || !reads && (r.ContentLength < 0 || r.ContentLength > smallBody) {
		return release
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, smallBody+1))
	if len(data) > smallBody {
		if t.cut = !g.large.TryAcquire(1); t.cut {
			out.Body = again(r.Body, data)
			g.unread(t, "untapped_busy")
			return release
		}
		release = func() { g.large.Release(1) }
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(r.Body, int64(maxBody+1-len(data))))
		data = append(data, rest...)
	}
	if err != nil {
		release()
		g.count("aborted") // the bot has ended the call; Feishu has got nothing of it
		panic(http.ErrAbortHandler)
	}
	t.request, out.Body = data, again(r.Body, data)
	if t.cut = len(data) > maxBody; t.cut {
		g.unread(t, "untapped_large")
		return release
	}
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	return release
}

// unread lets a call pass that would be read.
func (g *Gateway) unread(t *call, why feishu.Counted) {
	if t.read != nil {
		g.count(why)
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
	t := callOf(resp.Request)
	if t == nil || t.read == nil || resp.StatusCode < http.StatusOK {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	resp.Body = again(resp.Body, data)
	switch {
	case err != nil:
		g.count("answer_cut")
		return nil
	case len(data) > maxBody:
		g.unread(t, "untapped_large")
		return nil
	case resp.Header.Get("Content-Encoding") != "":
		g.count("untapped_encoding")
		g.log.Warn("an answer of Feishu cannot be read", "encoding", resp.Header.Get("Content-Encoding"))
		return nil
	}
	t.status, t.answer, t.proxy.FlushInterval = resp.StatusCode, data, 0
	g.record(t)
	return nil
}

// record records a call with its answer, for which the bot does not wait longer than tapWait once there is room.
func (g *Gateway) record(t *call) {
	ctx, cancel := context.WithTimeout(context.Background(), hostWait)
	defer cancel()
	size := int64(readingCost + len(t.request) + len(t.answer))
	if g.reading.Acquire(ctx, size) != nil {
		g.unread(t, "untapped_busy")
		g.log.Warn("a call is not recorded, since the recording of others takes too long")
		return
	}
	recorded := make(chan struct{})
	go func() {
		defer close(recorded)
		defer g.reading.Release(size)
		defer g.caught("tap")
		t.read(t)
	}()
	if !wait.Closed(recorded, tapWait) {
		g.count("tap_slow")
		g.log.Warn("recording a call takes long; the bot gets its answer first")
	}
}

// accepted reads the answer to a call. ok reports whether Feishu accepted the call.
func accepted[T any](t *call) (data T, ok bool) {
	data, err := feishu.ReadAnswer[T](t.answer)
	return data, err == nil && t.status < http.StatusMultipleChoices
}

// again is a body of which data was read: source goes on, also with the error that ended it.
func again(source io.ReadCloser, data []byte) io.ReadCloser {
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(data), source), source}
}
