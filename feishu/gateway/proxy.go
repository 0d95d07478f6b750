package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// Timeouts of calls to Feishu. A whole call, which may carry 100 MB, has none. After a timeout the bot gets a
// 502.
const (
	dialWait      = 10 * time.Second
	handshakeWait = 10 * time.Second
	answerWait    = 2 * time.Minute // from the last byte of the request to the answer's header
	continueWait  = time.Second
	idleWait      = 90 * time.Second
	idlePerHost   = 64
)

// newTransport returns the transport to upstream. The environment's proxies are used for the real Feishu only, not for
// a simulator.
func newTransport(upstream *url.URL, self net.Addr) (*http.Transport, error) {
	t := feishu.FindSilence(&http.Transport{
		DialContext:           notToUs(self),
		TLSHandshakeTimeout:   handshakeWait,
		ResponseHeaderTimeout: answerWait,
		ExpectContinueTimeout: continueWait,
		IdleConnTimeout:       idleWait,
		MaxIdleConns:          2 * idlePerHost,
		MaxIdleConnsPerHost:   idlePerHost,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // otherwise bodies would be unpacked
	})
	if feishu.IsOpenHost(upstream.Host) {
		t.Proxy = http.ProxyFromEnvironment
		if _, err := t.Proxy(&http.Request{URL: upstream}); err != nil {
			// Not err itself: it quotes the address, with its password.
			return nil, errors.New("gateway: HTTPS_PROXY or HTTP_PROXY is not a proxy's address")
		}
	}
	return t, nil
}

// errLoop names what two set-ups lead to: a proxy of the sidecar's own that is
// the gateway, and a network alias that makes the sidecar itself resolve
// Feishu's name to the gateway.
var errLoop = errors.New("the way to Feishu leads back to this gateway: take it out of the sidecar's HTTPS_PROXY, " +
	"and make Feishu's name an alias for the bot only")

// notToUs returns a dialer that refuses to connect to the gateway itself.
func notToUs(self net.Addr) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialWait, KeepAlive: 30 * time.Second}
	us, known := self.(*net.TCPAddr)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil || !known {
			return conn, err
		}
		from, _ := conn.LocalAddr().(*net.TCPAddr)
		to, _ := conn.RemoteAddr().(*net.TCPAddr)
		if from != nil && to != nil && to.Port == us.Port && to.IP.Equal(from.IP) {
			return nil, errors.Join(errLoop, conn.Close())
		}
		return conn, nil
	}
}

func (g *Gateway) newProxy(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      toFeishu{g, transport},
		FlushInterval:  -1,
		BufferPool:     &buffers{},
		ModifyResponse: g.answered,
		ErrorHandler:   g.unreachable,
		ErrorLog:       slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}

// rewrite sends the request on to Feishu, with the forwarding headers that it came with.
func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	p.SetURL(g.opts.Upstream)
	out.URL.RawQuery = in.URL.RawQuery // also what the standard library cannot parse
	retarget(in, out)
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := in.Header[name]; ok {
			out.Header[name] = v
		}
	}
	if in.Context().Value(tappedKey{}) != nil {
		// A send whose answer came packed in another way would not be relayed.
		feishu.AcceptOnly(out.Header, "", "identity", "gzip", "x-gzip", "deflate", "br")
	}
	out.Trailer = in.Trailer // filled in when the body ends
}

// retarget makes a reply or a reaction to a direct message of another agent, which
// Feishu does not know, one to the message that it is about.
func retarget(in, out *http.Request) {
	c := match(in.Method, in.URL.Path)
	if c.mail == "" {
		return
	}
	swap := func(path string) string { return strings.Replace(path, string(c.mail), string(c.message), 1) }
	out.URL.Path, out.URL.RawPath = swap(out.URL.Path), swap(out.URL.RawPath)
}

// codeUnreachable is the code of our own error answers. Feishu uses none like it.
const codeUnreachable = 99990502

// unreachable answers as Feishu would, so that SDKs show the reason. data is
// there for the Node SDK, which reads it before the code (docs/feishu.md 1.1).
func (g *Gateway) unreachable(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errGiven) {
		return
	}
	if errors.Is(err, context.Canceled) {
		g.count(countedAborted) // the bot has gone, nobody reads an answer
		return
	}
	if _, ok := errors.AsType[*senderError](err); ok {
		g.count(countedAborted)
		fail(w, http.StatusBadRequest, "the body of the request did not come whole")
		return
	}
	g.count(countedUpstreamError)
	g.log.Warn("Feishu cannot be reached", "upstream", g.opts.Upstream.Host, "err", err)
	fail(w, http.StatusBadGateway, fmt.Sprintf("cannot reach %s: %v", g.opts.Upstream.Host, err))
}

func fail(w http.ResponseWriter, status int, text string) {
	feishu.Fail(w, status, codeUnreachable, text)
}

// buffers holds the copy buffers of streamed bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }

// namesPeer reports whether a call is one for a chat with another agent, as far as its body was read.
func (g *Gateway) namesPeer(t *tapped, body []byte) bool {
	if g.opts.Peers == nil {
		return false
	}
	card := false
	if t.card != "" {
		_, card = g.opts.Peers.WithCard(t.card)
		card = card && !g.recent.cards.Contains(t.card) // else Feishu's chat is to see the change, too
	}
	return card || peerchat.Named(t.http, body)
}

// mayNamePeer reports whether the body of a call has to be read, since it may name a chat with another agent.
func (g *Gateway) mayNamePeer(r *http.Request) bool {
	return g.opts.Peers != nil && r.Body != nil && r.Body != http.NoBody && peerchat.BodyMayName(r)
}

// plain is the body of a call without its Content-Encoding, where it has one and may name a chat with another agent.
// unread: the chat that the call sends to is unknown, since its body could not be read whole.
func (g *Gateway) plain(t *tapped, body []byte, whole bool) (plain []byte, unread bool) {
	if !g.mayNamePeer(t.http) {
		return body, false
	}
	if encoding := t.http.Header.Get("Content-Encoding"); encoding != "" && whole {
		unpacked, err := t.held.unpack(encoding, body)
		if err == nil {
			return unpacked, false
		}
		whole = false
		t.crowded = t.crowded || errors.Is(err, feishu.ErrNoRoom)
	}
	if t.op == opCreate && !whole {
		return nil, true
	}
	return body, false
}

// completePeers adds what is known of the other agents and of the messages in their chats to the data of a look-up.
func (g *Gateway) completePeers(t *tapped, data map[string]json.RawMessage) bool {
	ask := t.http.Clone(t.http.Context())
	ask.URL.RawQuery = t.ours
	var ours struct {
		Code int
		Data map[string]json.RawMessage
	}
	if json.NewDecoder(g.opts.Peers.Answer(ask, nil, true).Body).Decode(&ours) != nil || ours.Code != 0 {
		return false
	}
	for name, raw := range ours.Data {
		var items, others []json.RawMessage
		if json.Unmarshal(raw, &others) == nil {
			_ = json.Unmarshal(data[name], &items) // a strange list is as none
			data[name], _ = relay.Marshal(append(items, others...))
			continue
		}
		all := members(data[name])
		maps.Copy(all, members(raw))
		data[name], _ = relay.Marshal(all)
	}
	return true
}

// toFeishu makes the calls of the bot. A call for a chat with another agent is answered here. If Feishu refuses a
// message that the gateway has changed for its content, the message is sent as the bot wrote it.
type toFeishu struct {
	g    *Gateway
	next http.RoundTripper
}

func (u toFeishu) RoundTrip(r *http.Request) (*http.Response, error) {
	t, _ := r.Context().Value(tappedKey{}).(*tapped)
	switch {
	case t != nil && t.peer:
		return u.g.answerPeer(t, r)
	case t == nil || t.changed == nil:
		return u.next.RoundTrip(r)
	}
	resp, err := u.next.RoundTrip(withBody(r, t.changed))
	if err != nil || !t.refusedFor(resp) {
		if r.Body != nil {
			_ = r.Body.Close() // it was read before
		}
		t.request = t.changed
		if err == nil && resp.StatusCode < http.StatusMultipleChoices {
			u.g.count(countedMentionWritten)
		}
		return resp, err
	}
	_ = resp.Body.Close()
	u.g.count(countedMentionRefused)
	u.g.log.Info("Feishu refused rewritten mentions; sending the message as the bot wrote it", "message_id", t.message)
	return u.next.RoundTrip(r)
}

// answerPeer answers a call for a chat with another agent. A message there is accepted only if there is room for a
// draft of it.
func (g *Gateway) answerPeer(t *tapped, r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, err := io.Copy(io.Discard, r.Body) // what is too long to be read is refused
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), hostWait)
	defer cancel()
	proven, err := g.proven(ctx, t.token)
	if err != nil {
		return nil, err // Feishu does not answer; the token may be valid
	}
	var resp *http.Response
	if t.crowded || t.op.says() && !g.reserve(t) {
		g.log.Error("too many calls are being recorded; the bot has to repeat a call for an agent")
		resp = peerchat.TooMany(r)
	} else {
		g.count(countedPeerAnswered)
		resp = g.opts.Peers.Answer(t.http, t.request, proven)
	}
	resp.Request = r
	return resp, nil
}

// undecided makes drafts of messages to other agents that the bot was told are sent and that the host has not recorded,
// since an earlier run was killed before it had the draft on disk, or the chats were switched off.
func (g *Gateway) undecided() {
	if g.opts.Peers == nil {
		return
	}
	for _, chat := range g.opts.Peers.List() {
		for _, m := range g.opts.Peers.Messages(chat) {
			if m.Own && m.Mail == nil && !m.Deleted && !g.drafts.holds(m.ID) {
				g.undecidedOne(m)
			}
		}
	}
}

func (g *Gateway) undecidedOne(m peerchat.Message) {
	d := g.peerDraft(m, m.Content)
	switch card := feishu.CardID(m.Content); {
	case card == "" && d.ready():
		g.drafts.add(d, func(*draft) {})
	case card != "" && g.drafts.onCard(card, func(*draft) {}):
		g.bind(d, card) // without its draft its text is unknown
	}
}

// draftAgain makes a draft of a message that the bot changes after its draft expired or was published; false if there
// is no such message.
func (g *Gateway) draftAgain(m peerchat.Message, found bool, content string) bool {
	if !found || m.Deleted {
		return false
	}
	d := g.peerDraft(m, content)
	d.Patched = true
	g.touch(d, false, false)
	g.drafts.add(d, func(*draft) {})
	return true
}

// peerDraft is a draft, as of now, of a message of the bot in a chat with another agent.
func (g *Gateway) peerDraft(m peerchat.Message, content string) *draft {
	d := &draft{Message: feishu.Message{ID: m.ID, ChatID: m.Chat, ParentID: m.Parent, RootID: m.Root, Type: m.Type,
		Content: content, CreateTime: m.Created}, CardID: m.Card, Created: relay.MillisOf(time.Now())}
	if m.Type == typeCard {
		d.Card = newCard(content)
	}
	g.touch(d, false, false)
	return d
}

// types reports whether the sign that the bot types is on the message that m answers. In a chat with an agent that is
// the newest mail before m, where it is no reply. There an old sign does not count.
func (g *Gateway) types(m *feishu.Message) bool {
	if !peerchat.IsID(m.ChatID) {
		return !g.recent.typingStays.Load() &&
			slices.ContainsFunc(g.recent.typing.Values(), func(on relay.MessageID) bool { return g.answers(m, on) })
	}
	if g.opts.Peers == nil {
		return false
	}
	answered := []relay.MessageID{m.ParentID, m.RootID}
	for _, one := range g.opts.Peers.Messages(m.ChatID) {
		if one.ID == m.ID {
			break
		}
		if m.ParentID == "" && !one.Own {
			answered = []relay.MessageID{one.ID}
		}
	}
	return slices.ContainsFunc(answered, func(id relay.MessageID) bool {
		one, _ := g.opts.Peers.Message(id)
		return slices.ContainsFunc(one.Reactions, func(r peerchat.Reaction) bool {
			return r.Emoji == typingSign && time.Since(r.At.Time()) < typingFor
		})
	})
}

// kind is what is known of a chat. What is said in a chat with another agent goes to the host, as what is said in a
// group does.
func (g *Gateway) kind(chat relay.ChatID) string {
	switch {
	case !peerchat.IsID(chat):
		return g.opts.Book.Chat(chat).Kind
	case g.opts.Peers != nil:
		return feishu.ChatGroup
	}
	return feishu.ChatP2P // they are switched off
}
