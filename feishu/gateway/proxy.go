package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
)

// Timeouts of calls to Feishu. There is none for a whole call: 100 MB may be on
// their way. A wait that runs out gives the bot a 502.
const (
	dialWait      = 10 * time.Second
	handshakeWait = 10 * time.Second
	answerWait    = 2 * time.Minute // from the last byte of the request to the answer's header
	continueWait  = time.Second
	idleWait      = 90 * time.Second
	idlePerHost   = 64
)

// newTransport reaches upstream. Environment proxies are for the real Feishu
// only: a stand-in is near.
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
		DisableCompression:    true, // else bodies would be unpacked on the way
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

// notToUs dials like any dialer, but not the gateway itself.
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
		Transport:      mentioning{g, peering{g, transport}},
		FlushInterval:  -1,
		BufferPool:     &buffers{},
		ModifyResponse: g.answered,
		ErrorHandler:   g.unreachable,
		ErrorLog:       slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}

// rewrite sends the request on as it came, only to another host: what
// ReverseProxy tidies up beyond the hop-by-hop headers is put back.
func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	out.URL.Scheme, out.URL.Host, out.URL.User = g.opts.Upstream.Scheme, g.opts.Upstream.Host, nil
	out.Host = g.opts.Upstream.Host
	out.URL.RawQuery, out.URL.ForceQuery = in.URL.RawQuery, in.URL.ForceQuery
	if base := strings.TrimRight(g.opts.Upstream.EscapedPath(), "/"); base != "" {
		out.URL.Path = strings.TrimRight(g.opts.Upstream.Path, "/") + in.URL.Path
		out.URL.RawPath = base + in.URL.EscapedPath()
	} else if raw, ok := rawPath(in); ok && raw != out.URL.EscapedPath() && !strings.HasPrefix(raw, "//") {
		out.URL.Opaque = raw // a spelling that net/url would tidy up
	}
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
	out.URL.Opaque, out.URL.Path, out.URL.RawPath = swap(out.URL.Opaque), swap(out.URL.Path), swap(out.URL.RawPath)
}

// rawPath is the path as it stood in the request line of an origin-form request.
func rawPath(r *http.Request) (string, bool) {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return "", false
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path, true
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
	body, _ := json.Marshal(map[string]any{"code": codeUnreachable, "msg": "feishu-relay: " + text, "data": struct{}{}})
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
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
