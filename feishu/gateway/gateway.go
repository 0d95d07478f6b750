// Package gateway is a transparent proxy between a bot's Feishu SDK and Feishu. Everything
// passes byte for byte; a simulator of Feishu gets a Via header as well. The gateway reads what
// the sidecar needs to know: what the bot says in groups, who it is, and what it hears. It changes
// two things, where the sidecar asks for it: a person's message, which the [Host] may withhold or
// put a text in front of, and plain names in what the bot sends (Options.RewriteMentions).
//
// # What is read
//
// [Gateway.Handler] serves the bot's REST calls, its long connection and, when
// configured, Feishu's webhook. It reads the REST calls that send or change a message or a
// card, and those that issue tokens (docs/feishu.md 4 to 6); uploads, downloads and all other
// calls stream through unread. It answers look-ups of what the bot was shown. A send is on disk before the bot sees
// Feishu's answer; a [Host] that is slow, fails or panics does not change that answer. The path
// of a call to Feishu and of its answer to the bot is call.go, which lists the calls that are read;
// the path of an event is hear.go, which [link.Events] calls.
//
// # Drafts
//
// The bot's answer is one message for the others, in whatever way it is written. A text or card has
// one due time: each write moves it ([Gateway.quiet]), and it is published at that time, or when the
// bot goes on in that conversation ([Gateway.goesOn]). Until then it is a record in the store of
// Options.Book. Placeholders ("Thinking…") are never published. A published text or card is kept for
// a while: what the bot makes of it is shown to readers, and given to other bots if it becomes
// another answer.
//
// # Whose calls
//
// A gateway serves one app. Calls of other apps and of users pass untouched and
// unread, with one warning.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/feishu/webhook"
	"feishu-relay/internal/weborigin"
	"feishu-relay/relay"
)

// Host is the sidecar behind the gateway. Its methods are called from many
// goroutines; a panic in one of them is caught and counted.
type Host interface {
	Hearer
	// Sent records and relays what the bot said in a group; on disk when it
	// returns nil. It is called once for a message id, and again after an error,
	// a crash or a repeat of the send with the same uuid.
	Sent(ctx context.Context, m Sent) error
	// Edited reports that the bot has changed the text of a message in a group. Sent is not called for the new
	// text. It may be a message that Sent was never called for.
	Edited(m Sent)
	// Injected finds a message that was injected into the bot.
	Injected(id relay.MessageID) (feishu.Message, bool)
	// Peer finds an injected peer by the open_id that the bot was shown.
	Peer(id relay.OpenID) (feishu.Bot, bool)
}

// Sent is a message of the bot in its final form.
type Sent struct {
	feishu.Message
	Doc  content.Doc
	Text string // what a person reads in it, with the names of those that it mentions
	// EditOf is the message whose text changed after it was given to the host: ID is one of
	// ours then, the same for the same text. "": a message of its own.
	EditOf relay.MessageID
}

// Options configure a [Gateway]. Upstream, Book and API are required.
type Options struct {
	Upstream  *url.URL // FEISHU_BASE_URL
	PublicURL *url.URL // GATEWAY_PUBLIC_URL; nil: from the request
	Address   func(*http.Request) (scheme, host string)
	Loopback  bool // the listener is loopback only

	// Book knows the bot's app; if it does not, that is the first whose secret or token Feishu accepts. Its store keeps
	// the drafts.
	Book *feishu.Directory
	API  *feishu.API
	Host Host // nil: everything passes unread

	// Peers are the private chats with other agents: calls for them do not reach Feishu, and what the bot says there
	// goes to the host as what it says in groups. nil: there are none.
	Peers *peerchat.Chats

	// Sending is called before a send goes to Feishu, and must not wait; nil: nothing.
	Sending func()
	// RewriteMentions makes real mentions of the plain names of people and bots in what the bot
	// sends to groups.
	RewriteMentions bool

	Settle     time.Duration // quiet behind the end of a card; 0: 1.5 s
	EditSettle time.Duration // quiet behind an edit; 0: 8 s
	// how long a card may stream without an end sign; 0: 10 min, as at Feishu (docs/feishu.md 5.2)
	StreamLife time.Duration

	Answered *dedup.Window    // events that the bot has answered; nil: those since New. The caller closes it
	Webhook  *webhook.Options // nil: no webhook. Its Events and Verified are set here
	Logger   *slog.Logger     // nil: silent
	Counter  func(feishu.Counted)
}

// Gateway is the front door of one bot. Make it with [New].
type Gateway struct {
	opts    Options
	log     *slog.Logger
	count   func(feishu.Counted)
	proxy   *httputil.ReverseProxy
	client  *http.Client // to Feishu
	close   func()       // idle connections to Feishu
	events  *link.Events
	conn    *link.Server
	hook    *webhook.Server            // nil: none
	tokens  *lru.Cache[string, string] // token: app id; in memory only
	others  sync.Once                  // logs that there are calls of other apps
	names   map[string]bool            // of the gateway, beside those that every gateway has
	origins *http.CrossOriginProtection
	warning *rate.Sometimes     // about web pages and other hosts
	mux     *http.ServeMux      // see routes
	large   *semaphore.Weighted // of requests that are held
	reading *semaphore.Weighted // of answers that are recorded; Close waits for them
	drafts  *drafts
	recent  *recents
	ctx     context.Context // of questions to Feishu; ended by Close
	cancel  context.CancelFunc
}

// New makes a gateway. It reads the drafts of an earlier run, and starts
// nothing.
func New(o Options) (*Gateway, error) {
	switch {
	case o.Upstream == nil || o.Upstream.Host == "" || (o.Upstream.Scheme != "http" && o.Upstream.Scheme != "https"):
		return nil, errors.New("gateway: the upstream (FEISHU_BASE_URL) must be an http or https URL")
	case o.Book == nil || o.API == nil:
		return nil, errors.New("gateway: Book and API are required")
	}
	o.Settle = cmp.Or(o.Settle, 1500*time.Millisecond)
	o.EditSettle = cmp.Or(o.EditSettle, 8*time.Second)
	o.StreamLife = cmp.Or(o.StreamLife, 10*time.Minute)
	o.Logger, o.Answered = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.Answered, dedup.Memory(0))
	if o.Counter == nil {
		o.Counter = func(feishu.Counted) {}
	}
	transport, err := newTransport(o.Upstream)
	if err != nil {
		return nil, err
	}
	var calls http.RoundTripper = transport
	if !feishu.IsOpenHost(o.Upstream.Host) {
		calls = marked{transport}
	}
	g := &Gateway{opts: o, log: o.Logger, count: o.Counter, close: transport.CloseIdleConnections,
		client: &http.Client{Transport: calls, Timeout: bootstrapWait},
		large:  semaphore.NewWeighted(maxLarge), reading: semaphore.NewWeighted(maxReading),
		tokens: newLRU[string, string](maxTokens)}
	g.recent = &recents{chats: newLRU[relay.MessageID, relay.ChatID](maxRecent),
		sent: newLRU[relay.MessageID, feishu.Message](maxRecent), typing: newLRU[string, relay.MessageID](maxRecent),
		gone: newLRU[relay.MessageID, struct{}](maxRecent)}
	g.names, g.origins = map[string]bool{weborigin.Name(o.Upstream.Host): true}, &http.CrossOriginProtection{}
	g.warning = &rate.Sometimes{First: 1, Interval: time.Minute}
	if u := o.PublicURL; u != nil {
		g.names[weborigin.Name(u.Host)] = true
		if err := g.origins.AddTrustedOrigin(strings.ToLower(u.Scheme + "://" + u.Host)); err != nil {
			return nil, fmt.Errorf("gateway: GATEWAY_PUBLIC_URL: %w", err)
		}
	}
	g.mux = g.routes()
	g.drafts = loadDrafts(&g.opts)
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.proxy = g.newProxy(calls)
	g.events = &link.Events{Logger: o.Logger, Counter: o.Counter, Answered: o.Answered}
	if o.Host != nil {
		Hear(g.events, o.Book, ears{o.Host, g})
	}
	g.conn = link.NewServer(link.Options{
		Upstream: o.Upstream, Client: g.client,
		PublicURL: o.PublicURL, Address: o.Address, Loopback: o.Loopback, Bootstrapped: g.bootstrapped, Events: g.events,
	})
	if o.Webhook != nil {
		w := *o.Webhook
		w.Events, w.Verified = g.events, func(app string) { g.learn(app) }
		if g.hook, err = webhook.New(w); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// bootstrapWait bounds the bootstrap call of the long connection; the Node SDK times out after
// 15 s (docs/feishu.md 1.1).
const bootstrapWait = 30 * time.Second

// Handler serves everything of GATEWAY_ADDR: REST calls, the long connection,
// and the webhook when it is configured.
func (g *Gateway) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := feishu.SingleSlashes(r.URL.Path)
		hook := g.hook != nil && strings.HasPrefix(path, "/webhook/")
		post := hook && r.Method == http.MethodPost && (r.URL.Path == webhook.EventPath || r.URL.Path == webhook.CardPath)
		switch {
		case r.Method == http.MethodConnect:
			fail(w, http.StatusMethodNotAllowed, "CONNECT is not served here")
		case !g.admits(w, r, post):
		case hook:
			g.hook.ServeHTTP(w, r)
		case g.conn.Handles(r):
			g.conn.WebSocket(w, r)
		case r.Method == http.MethodPost && path == "/callback/ws/endpoint":
			g.conn.Bootstrap(w, r)
		default:
			g.serve(w, r)
		}
	})
}

// WebhookHandler serves /webhook/… only, for a listener of its own. There must be a webhook.
func (g *Gateway) WebhookHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.admits(w, r, true) {
			g.hook.ServeHTTP(w, r)
		}
	})
}

// Inject writes an event to the bot once: over its long connection when it has
// one, else to its webhook. It returns nil when the bot acknowledged it, and the
// errors of [link.Server.Inject] and [webhook.Server.Inject].
func (g *Gateway) Inject(ctx context.Context, in feishu.Injection) error {
	if g.hook != nil && !g.conn.Connected() {
		return g.hook.Inject(ctx, in)
	}
	return g.conn.Inject(ctx, in)
}

// Present reports whether the bot is known to be there: connected, or reached by
// the last post to its webhook.
func (g *Gateway) Present() bool { return g.conn.Connected() || g.hook != nil && g.hook.Reached() }

// Connected reports whether Inject can reach the bot. With a webhook it is always true: only a
// post by Inject shows that a bot which was away has come back.
func (g *Gateway) Connected() bool { return g.conn.Connected() || g.hook != nil }

// Changed is closed at the next change of the long connection's state.
func (g *Gateway) Changed() <-chan struct{} { return g.conn.Changed() }

// Status is the gateway's part of GET /v1/status, to be encoded as JSON.
type Status struct {
	AppID          string       `json:"app_id,omitempty"`
	OpenID         relay.OpenID `json:"open_id,omitempty"`
	Connected      bool         `json:"connected"`
	LongConnection link.Status  `json:"long_connection"`
	Webhook        bool         `json:"webhook"`
	Drafts         int          `json:"drafts"` // waiting to be final
}

// Status returns who the bot is, how it is connected, and how many drafts wait.
func (g *Gateway) Status() Status {
	self := g.opts.Book.Self()
	return Status{
		AppID: self.AppID, OpenID: self.OpenID,
		Connected:      g.conn.Connected() || g.hook != nil && g.hook.Connected(),
		LongConnection: g.conn.Status(),
		Webhook:        g.hook != nil, Drafts: g.drafts.waiting(),
	}
}

// Close ends the long connections, so that bots connect again elsewhere, until ctx ends. Calls that are under way or
// come later are served all the same. It may be called twice.
func (g *Gateway) Close(ctx context.Context) error {
	defer g.close()
	defer g.cancel()
	err := g.conn.Close(ctx)
	if g.reading.Acquire(ctx, maxReading) == nil {
		g.reading.Release(maxReading)
	}
	return err
}

// bootstrapped learns the app of a bootstrap call that Feishu has accepted, and keeps its credentials in memory: a bot
// that calls nothing else has shown no token yet when the sidecar needs one.
func (g *Gateway) bootstrapped(app, secret string) {
	defer g.caught("identity")
	if g.learn(app) {
		g.opts.API.SawCredentials(app, secret)
		g.knowSelf()
	}
}

// caught ends a panic of ours: the bot comes first.
func (g *Gateway) caught(where string) {
	if p := recover(); p != nil {
		g.count("panic")
		g.log.Error("a panic was caught in the gateway", "where", where, "panic", fmt.Sprintf("%T", p),
			"stack", string(debug.Stack())) // not p itself, which may carry a message
	}
}

// admits answers 403 to a request that a foreign web page made a browser send,
// and to one for a host that is not the gateway's own unless anyHost is set: a page could make the gateway serve
// another app, and call Feishu through it. A request of the gateway itself gets 508.
func (g *Gateway) admits(w http.ResponseWriter, r *http.Request, anyHost bool) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case strings.Contains(strings.Join(r.Header["Via"], ","), feishu.Via):
		g.count("upstream_error")
		const loop = "FEISHU_BASE_URL is the address of this gateway; it must be Feishu's"
		g.warning.Do(func() { g.log.Error(loop) })
		fail(w, http.StatusLoopDetected, loop)
		return false
	case weborigin.Foreign(g.origins, r):
		g.count("cross_origin")
		g.warning.Do(func() { g.log.Warn("a web page's request to the gateway was refused") })
		fail(w, http.StatusForbidden, "requests of web pages are not served")
		return false
	case anyHost || g.ownHost(r, local):
		return true
	}
	g.count("foreign_host")
	host := fmt.Sprintf("%.100s", r.Host)
	g.warning.Do(func() {
		g.log.Warn("a request for a host that is not the gateway's own was refused; if the bot sent it, set "+
			"GATEWAY_PUBLIC_URL",
			"host", host)
	})
	fail(w, http.StatusForbidden, fmt.Sprintf("%s is not known as this gateway's name. If the bot uses it, "+
		"set GATEWAY_PUBLIC_URL=http://%[1]s (https:// where it speaks TLS)", host))
	return false
}

// ownHost reports whether r is for a host of the gateway's: this machine, the
// address that its connection reached, a name without a dot, as in Compose, Docker's
// name for the host, the host of GATEWAY_PUBLIC_URL, over TLS any, since a browser has checked the
// certificate, and Feishu's own hosts, for bots that use the gateway as a proxy or by an alias.
// Whatever another name resolves to, it is somebody else's.
func (g *Gateway) ownHost(r *http.Request, local net.Addr) bool {
	host := weborigin.Name(r.Host)
	if g.names[host] || weborigin.Loopback(host) {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		tcp, ok := local.(*net.TCPAddr)
		return ok && tcp.AddrPort().Addr().Unmap().WithZone("") == ip
	}
	return plainName.MatchString(host) || host == "" && !r.ProtoAtLeast(1, 1) || host == "host.docker.internal" ||
		feishu.IsOpenHost(host) || r.TLS != nil
}

// plainName is a host name without a dot.
var plainName = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)

// maxRecent bounds each table of recents. What is forgotten costs a hint, never
// a message.
const (
	maxRecent = 2048
	maxText   = 4 << 10 // bytes of a content in them
)

// recents remembers the last messages and typing signs.
type recents struct {
	chats       *lru.Cache[relay.MessageID, relay.ChatID]   // where a message was said
	sent        *lru.Cache[relay.MessageID, feishu.Message] // own messages that went out, with contents of up to maxText
	typing      *lru.Cache[string, relay.MessageID]         // reaction id: the message it is on
	typingStays atomic.Bool                                 // a sign outlasted editQuiet: some bots remove none
	gone        *lru.Cache[relay.MessageID, struct{}]       // recalled messages
}

// newLRU returns a cache of the newest size entries, size above 0.
func newLRU[K comparable, V any](size int) *lru.Cache[K, V] {
	c, _ := lru.New[K, V](size) // fails only for a size below 1
	return c
}

func (r *recents) chatOf(id relay.MessageID) relay.ChatID {
	chat, _ := r.chats.Get(id)
	return chat
}

// Counted is what Options.Counter gets from a gateway, beside what packages link and webhook count:
//
//	sent               a message went to the host
//	sent_error         a message did not go to the host, which failed or panicked; it is tried again
//	draft              a message waits until it is final
//	draft_published    a draft went to the host, also as an edit of what went there before
//	draft_expired      a draft timed out: it got no text, or the host did not take it
//	draft_private      a draft turned out to be in a private chat
//	draft_recalled     a draft was recalled
//	draft_lost         a draft was dropped, since too many cannot be published, or too large ones
//	native             another bot's message came from Feishu and was stored
//	native_refused     another bot's message was not stored; Feishu is to deliver it again
//	heard_error        a person's message could not be recorded
//	withheld           a person's message is not passed to the bot now
//	mention_written    a message was sent with real mentions in the place of plain names
//	mention_refused    Feishu refused a message with written mentions: it was sent as the bot wrote it
//	lookup_answered    a look-up got an answer of ours
//	peer_answered      a call for a chat with another agent was answered here
//	foreign_app        a call of another app passed unread
//	foreign_user       a call of a user passed unread
//	foreign_host       a request named a host that is not the gateway's own
//	cross_origin       a request was made by somebody else's web page
//	untapped_large     a watched call was too large to read
//	untapped_encoding  the answer to a watched call was packed in an unknown way
//	untapped_busy      a watched call was not read: too much is held of other calls
//	unreadable         the answer to a send has no message in it
//	card_unreadable    a change of a card makes no sense
//	answer_cut         an answer of Feishu ended early
//	tap_slow           the bot got its answer before the host was done
//	aborted            the bot hung up
//	upstream_error     Feishu cannot be reached, or a call to it came back here
//	panic              a panic of ours was caught
var Counted = []feishu.Counted{"sent", "sent_error", "draft", "draft_published", "draft_expired", "draft_private",
	"draft_recalled", "draft_lost", "native", "native_refused", "heard_error", "withheld", "mention_written",
	"mention_refused", "lookup_answered", "peer_answered", "foreign_app", "foreign_user", "foreign_host",
	"cross_origin", "untapped_large", "untapped_encoding", "untapped_busy", "unreadable", "card_unreadable",
	"answer_cut", "tap_slow", "aborted", "upstream_error", "panic"}
