package entry

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// established answers a CONNECT.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// route serves the three forms of a request (RFC 9112 3.2).
func (e *Entry) route(w http.ResponseWriter, r *http.Request) {
	if r.Body != nil && r.Body != http.NoBody {
		in := &incoming{ReadCloser: r.Body, control: http.NewResponseController(w)}
		r.Body = in
		defer in.leave()
	}
	switch {
	case r.Method == http.MethodConnect:
		e.connect(w, r)
	case r.URL.Scheme != "" || r.URL.Host != "":
		e.absolute(w, r)
	default:
		e.opts.Handler.ServeHTTP(w, r)
	}
}

// connect serves CONNECT: a tunnel to Feishu is served by this server itself, the rest is tunnelled.
func (e *Entry) connect(w http.ResponseWriter, r *http.Request) {
	host, port := split(r.URL.Host, "")
	c, _ := r.Context().Value(connKey{}).(*conn)
	if n, err := strconv.ParseUint(port, 10, 16); c == nil || host == "" || n == 0 || err != nil {
		refuse(w, http.StatusBadRequest, "CONNECT wants host:port")
		return
	}
	if c.target != "" {
		refuse(w, http.StatusNotImplemented, "a tunnel inside of a tunnel is not served")
		return
	}
	open := e.opts.Open(openName(host, port))
	switch {
	case e.isOurs(c.LocalAddr(), host, port), open && (port == "80" || e.certs != nil && e.certs.covers(host)):
		e.enter(w, c, host)
	case open:
		e.once("a tunnel to Feishu passes unseen, since there is no certificate for its host: set GATEWAY_TLS=auto "+
			"and let the bot trust the CA", "host", host)
		e.tunnel(w, r, net.JoinHostPort(host, port), true)
	case !e.mayTunnel(w, r):
	default:
		e.tunnel(w, r, net.JoinHostPort(host, port), false)
	}
}

// enter makes what follows a CONNECT a connection of this server.
func (e *Entry) enter(w http.ResponseWriter, c *conn, host string) {
	near, err := takeOver(w)
	if err != nil {
		e.log.Error("take over a connection", "err", err)
		return
	}
	e.count("opened")
	near.listener, near.target = c.listener, host
	if _, err := near.Conn.Write([]byte(established)); err != nil {
		_ = near.Close()
		return
	}
	c.listener.start(near)
}

// takeOver takes a connection over from the HTTP server, with what that has
// read already.
func takeOver(w http.ResponseWriter) (*conn, error) {
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	ahead, _ := rw.Peek(rw.Reader.Buffered()) // no more than what is there: no error
	return &conn{Conn: nc, ahead: bytes.Clone(ahead)}, nil
}

// absolute serves a request to a proxy without CONNECT.
func (e *Entry) absolute(w http.ResponseWriter, r *http.Request) {
	fallback := map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	host, port := split(r.URL.Host, fallback)
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case fallback == "" || host == "":
		refuse(w, http.StatusBadRequest, "a proxied request wants http:// or https:// and a host")
	case e.opts.Open(openName(host, port)) || local != nil && e.isOurs(local, host, port):
		e.count("opened")
		e.opts.Handler.ServeHTTP(w, originForm(r))
	case !e.mayTunnel(w, r):
	case !e.mayReach(net.JoinHostPort(host, port)):
		e.forbid(w, r.URL.Host)
	case r.URL.Scheme == "https":
		refuse(w, http.StatusNotImplemented, "https:// to this host is served by CONNECT only")
	default:
		e.count("forward")
		e.forwarder.ServeHTTP(w, r)
	}
}

// originForm returns r as the host itself would have received it, without the headers for a proxy.
func originForm(r *http.Request) *http.Request {
	out := r.WithContext(context.WithValue(r.Context(), proxiedKey{}, true))
	u := *r.URL
	u.Scheme, u.Host, u.User = "", "", nil
	if u.Path == "" {
		u.Path = "/"
	}
	out.URL, out.RequestURI = &u, u.RequestURI()
	out.Header = r.Header.Clone()
	out.Header.Del("Proxy-Authorization")
	out.Header.Del("Proxy-Connection")
	return out
}

// mayTunnel reports whether r may reach a host other than Feishu's. If it may not,
// mayTunnel answers it.
func (e *Entry) mayTunnel(w http.ResponseWriter, r *http.Request) bool {
	if e.opts.Loopback {
		return true
	}
	given, header := "", r.Header.Get("Proxy-Authorization")
	switch scheme, rest, _ := strings.Cut(header, " "); {
	case strings.EqualFold(scheme, "Bearer"):
		given = rest
	case strings.EqualFold(scheme, "Basic"):
		pair, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)) // invalid base64 has no colon before the token
		_, given, _ = strings.Cut(string(pair), ":")                        // any user name will do
	}
	if e.opts.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(e.opts.Token)) == 1 {
		return true
	}
	e.count("proxy_denied")
	e.once("a tunnel without the API token was refused: use HTTPS_PROXY=http://relay:<API_TOKEN>@…, " +
		"or NO_PROXY for hosts that need none")
	if header != "" {
		if wait := e.opts.Failures.Count(r.RemoteAddr); wait > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(wait))
			refuse(w, http.StatusTooManyRequests, "too many wrong tokens from this address; the right API_TOKEN is "+
				"accepted at any time")
			return false
		}
	}
	w.Header().Set("Proxy-Authenticate", `Basic realm="feishu-relay"`)
	refuse(w, http.StatusProxyAuthRequired,
		"hosts other than Feishu's want the API_TOKEN: http://relay:<API_TOKEN>@… as the proxy")
	return false
}

// forbid refuses a request whose address is, or leads to, one of this machine or of its link.
func (e *Entry) forbid(w http.ResponseWriter, addr string) {
	e.count("proxy_refused")
	e.once("a proxied request to this machine or its link was refused: list the address in GATEWAY_CONNECT_ALLOW, "+
		"or in the bot's NO_PROXY", "addr", fmt.Sprintf("%.100s", addr))
	refuse(w, http.StatusForbidden, "this address is, or leads to, one of the gateway's own machine or link: "+
		"list host:port in GATEWAY_CONNECT_ALLOW, or the host in the bot's NO_PROXY")
}

// refuse answers a request that is not forwarded.
func refuse(w http.ResponseWriter, status int, why string) {
	http.Error(w, fmt.Sprintf("feishu-relay: %s", why), status)
}
