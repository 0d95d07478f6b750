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
	"time"
)

// newForwarder is the plain proxy for http:// to hosts that are not Feishu's.
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
			// A proxy that was asked for changes nothing, where a gateway in
			// front of a server would be careful.
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

// proxyFor is the proxy that the sidecar's own environment names for u, or
// nil. In a container that sets HTTPS_PROXY for the bot and the sidecar alike
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

// dial connects to addr, through the environment's proxy where there is one, which
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
