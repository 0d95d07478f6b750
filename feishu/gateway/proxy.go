package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"feishu-relay/feishu"
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
func newTransport(upstream *url.URL) (*http.Transport, error) {
	t := feishu.FindSilence(&http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialWait}).DialContext,
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
		t.Proxy, t.ProxyConnectHeader = http.ProxyFromEnvironment, http.Header{"Via": {feishu.Via}}
		if _, err := t.Proxy(&http.Request{URL: upstream}); err != nil {
			// Not err itself: it quotes the address, with its password.
			return nil, errors.New("gateway: HTTPS_PROXY or HTTP_PROXY is not a proxy's address")
		}
	}
	return t, nil
}

// marked adds [feishu.Via] to the requests to an upstream that is not one of Feishu's own hosts. It may be this gateway
// itself, which refuses them then.
type marked struct{ http.RoundTripper }

func (m marked) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Add("Via", feishu.Via)
	return m.RoundTripper.RoundTrip(r)
}

func (g *Gateway) newProxy(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        g.rewrite,
		Transport:      toFeishu{g, transport},
		FlushInterval:  -1, // but for what was read whole
		BufferPool:     &buffers{sync.Pool{New: func() any { return new(buffer) }}},
		ModifyResponse: g.answered,
		ErrorHandler:   g.unreachable,
		ErrorLog:       slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
}

// buffers are those through which answers are copied.
type buffers struct{ sync.Pool }

type buffer = [32 << 10]byte

func (b *buffers) Get() []byte  { return b.Pool.Get().(*buffer)[:] }
func (b *buffers) Put(p []byte) { b.Pool.Put((*buffer)(p)) }

// rewrite sends the request on to Feishu.
func (g *Gateway) rewrite(p *httputil.ProxyRequest) {
	p.SetURL(g.opts.Upstream)
	p.Out.URL.RawQuery = p.In.URL.RawQuery // also what the standard library cannot parse
	if callOf(p.In) != nil {
		p.Out.Header.Del("Accept-Encoding") // a send whose answer came packed would not be relayed
	}
}

// codeUnreachable is the code of our own error answers. Feishu uses none like it.
const codeUnreachable = 99990502

// unreachable answers as Feishu would, so that SDKs show the reason.
func (g *Gateway) unreachable(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		g.count("aborted") // the bot has gone, nobody reads an answer
		return
	}
	g.count("upstream_error")
	g.log.Warn("Feishu cannot be reached", "upstream", g.opts.Upstream.Host, "err", err)
	fail(w, http.StatusBadGateway, fmt.Sprintf("cannot reach %s: %v", g.opts.Upstream.Host, err))
}

func fail(w http.ResponseWriter, status int, text string) {
	feishu.Fail(w, status, codeUnreachable, text)
}

// toFeishu makes the calls of the bot. If Feishu refuses a message that the gateway has changed, the message is sent as
// the bot wrote it.
type toFeishu struct {
	g    *Gateway
	next http.RoundTripper
}

func (u toFeishu) RoundTrip(r *http.Request) (*http.Response, error) {
	t := callOf(r)
	if t == nil || t.changed == nil {
		return u.next.RoundTrip(r)
	}
	changed := r.Clone(r.Context())
	changed.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(t.changed)), nil }
	changed.Body, _ = changed.GetBody()
	changed.ContentLength, changed.TransferEncoding = int64(len(t.changed)), nil
	resp, err := u.next.RoundTrip(changed)
	if err == nil && resp.StatusCode == http.StatusBadRequest {
		_ = resp.Body.Close()
		u.g.count("mention_refused")
		u.g.log.Info("Feishu refused rewritten mentions; sending the message as the bot wrote it", "message_id", t.message)
		return u.next.RoundTrip(r)
	}
	_ = r.Body.Close() // it was read before
	t.request = t.changed
	if err == nil && resp.StatusCode < http.StatusMultipleChoices {
		u.g.count("mention_written")
	}
	return resp, err
}
