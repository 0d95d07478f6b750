package entry

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// newForwarder returns the proxy for http:// requests to hosts other than Feishu's.
func (e *Entry) newForwarder() *httputil.ReverseProxy {
	direct := &http.Transport{
		DialContext:         e.dialChecked,
		DisableCompression:  true,
		MaxIdleConns:        64,
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     idleTimeout,
	}
	proxied := direct.Clone() // connects to the proxy, which may be on this machine
	proxied.DialContext = dialer.DialContext
	proxied.Proxy = func(r *http.Request) (*url.URL, error) { return e.proxyFor(r.Context(), r.URL) }
	e.closeIdle = func() {
		direct.CloseIdleConnections()
		proxied.CloseIdleConnections()
	}
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			// A forward proxy changes nothing; the defaults are for a reverse proxy.
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values, ok := p.In.Header[name]; ok {
					p.Out.Header[name] = values
				}
			}
		},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if proxy, err := e.proxyFor(r.Context(), r.URL); proxy != nil || err != nil {
				return proxied.RoundTrip(r)
			}
			return direct.RoundTrip(r)
		}),
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, errForbidden) {
				e.forbid(w, r.URL.Host)
				return
			}
			e.count("proxy_failed")
			e.log.Debug("forward", "host", r.URL.Host, "err", err)
			refuse(w, http.StatusBadGateway, "cannot reach "+r.URL.Host)
		},
		ErrorLog: e.server.ErrorLog,
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// proxyFor returns the proxy that the sidecar's own environment names for u, or
// nil. In a container that sets HTTPS_PROXY for the bot and the sidecar
// it may name this gateway itself, and is then ignored.
func (e *Entry) proxyFor(ctx context.Context, u *url.URL) (*url.URL, error) {
	proxy, err := e.viaProxy(u)
	if proxy == nil || err != nil {
		return nil, err
	}
	host, port := split(proxy.Host, map[string]string{"http": "80", "https": "443"}[proxy.Scheme])
	if local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok && e.isOurs(local, host, port) {
		e.once("the sidecar's own HTTP_PROXY or HTTPS_PROXY names its gateway, and is not used")
		return nil, nil
	}
	return proxy, nil
}

// dial connects to addr, through the environment's proxy if there is one, which
// then resolves names by its own rules.
func (e *Entry) dial(ctx context.Context, addr string) (net.Conn, error) {
	if !e.mayReach(addr) {
		return nil, errForbidden
	}
	u := &url.URL{Scheme: "https", Host: addr}
	if _, port := split(addr, ""); port == "80" {
		u.Scheme = "http"
	}
	proxy, err := e.proxyFor(ctx, u)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return e.dialChecked(ctx, "tcp", addr)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := dialProxy(ctx, proxy)
	if err != nil {
		return nil, fmt.Errorf("connect to the proxy: %w", err)
	}
	far, err := askProxy(ctx, c, proxy, addr)
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	return far, nil
}

func dialProxy(ctx context.Context, proxy *url.URL) (net.Conn, error) {
	switch proxy.Scheme {
	case "http":
		_, port := split(proxy.Host, "80")
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), port))
	case "https":
		_, port := split(proxy.Host, "443")
		d := tls.Dialer{NetDialer: &dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12}}
		return d.DialContext(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), port))
	}
	return nil, fmt.Errorf("a proxy of the scheme %q is not served", proxy.Scheme)
}

// askProxy opens a tunnel to addr on c, a connection to proxy.
func askProxy(ctx context.Context, c net.Conn, proxy *url.URL, addr string) (net.Conn, error) {
	// A deadline in the past unblocks what is read when ctx ends.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr,
		Header: http.Header{"User-Agent": {""}}}
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := r.Write(c); err != nil {
		return nil, err
	}
	in := bufio.NewReader(io.LimitReader(c, maxAnswerHeader))
	answer, err := http.ReadResponse(in, r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(answer.Status)
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	ahead, _ := in.Peek(in.Buffered()) // no more than what is there: no error
	return &conn{Conn: c, ahead: ahead}, nil
}

const (
	// maxTunnels is the most tunnels at a time. A further one is answered 503.
	maxTunnels = 256
	// tunnelIdle closes a tunnel without data in either direction. It is longer than the pause between the
	// pings of a WebSocket.
	tunnelIdle = 10 * time.Minute
	// dialTimeout is how long connecting to the far side may take, and a
	// proxy on the way to it may take to answer.
	dialTimeout = 10 * time.Second
)

var dialer = net.Dialer{Timeout: dialTimeout}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// tunnel joins the bot with addr and reads nothing of it. A tunnel to one of
// Feishu's hosts (feishu) is refused if it leads back to this gateway, as a host
// alias on this machine would make it do.
func (e *Entry) tunnel(w http.ResponseWriter, r *http.Request, addr string, feishu bool) {
	select {
	case e.tunnels <- struct{}{}:
		defer func() { <-e.tunnels }()
	default:
		e.count("tunnel_full")
		e.once("too many tunnels at a time", "max", maxTunnels)
		refuse(w, http.StatusServiceUnavailable, "too many tunnels at a time")
		return
	}
	far, err := e.dial(r.Context(), addr)
	if errors.Is(err, errForbidden) {
		e.forbid(w, addr)
		return
	}
	if err != nil {
		e.count("proxy_failed")
		e.log.Debug("tunnel", "addr", addr, "err", err)
		refuse(w, http.StatusBadGateway, "cannot reach "+addr)
		return
	}
	defer far.Close()
	if feishu && e.isOurselves(r.Context(), far) {
		e.count("proxy_failed")
		e.once("the name of Feishu's host leads back to this gateway: set GATEWAY_TLS=auto, or do not use the gateway "+
			"as a proxy", "addr", addr)
		refuse(w, http.StatusLoopDetected, addr+" leads back to this gateway")
		return
	}
	near, err := takeOver(w)
	if err != nil {
		e.log.Error("take over a connection", "err", err)
		return
	}
	defer near.Close()
	if _, err := near.Write([]byte(established)); err != nil {
		return
	}
	e.count("tunnel")
	join(r.Context(), near, far)
}

// isOurselves reports whether far was connected to the listener on which the
// request of ctx came in.
func (e *Entry) isOurselves(ctx context.Context, far net.Conn) bool {
	local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	remote, isTCP := far.RemoteAddr().(*net.TCPAddr)
	if !ok || !isTCP {
		return false
	}
	host, port := split(remote.String(), "")
	return e.isOurs(local, host, port)
}

// join copies both ways until both sides have ended, one of them
// fails, no data came for tunnelIdle, or ctx ends. It closes both.
func join(ctx context.Context, a, b net.Conn) {
	hangUp := func() {
		_ = a.Close()
		_ = b.Close()
	}
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	idle := time.AfterFunc(tunnelIdle, hangUp)
	defer idle.Stop()
	moved := func() { idle.Reset(tunnelIdle) }
	var back sync.WaitGroup
	back.Go(func() { oneWay(a, b, moved, hangUp) })
	oneWay(b, a, moved, hangUp)
	back.Wait()
}

// oneWay copies until src ends, which closes the writing side of dst, or either fails, which
// ends the other direction too.
func oneWay(dst, src net.Conn, moved, hangUp func()) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			moved()
			if _, err := dst.Write(buf[:n]); err != nil {
				hangUp()
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if closeWrite(dst) != nil {
				hangUp()
			}
			return
		default:
			hangUp()
			return
		}
	}
}
