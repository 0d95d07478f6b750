package entry

import (
	"bufio"
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"feishu-relay/feishu"
)

// established answers a CONNECT.
const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// ports are those of URLs without one.
var ports = map[string]string{"http": "80", "https": "443"}

// route serves the three forms of a request (RFC 9112 3.2).
func (e *Entry) route(w http.ResponseWriter, r *http.Request) {
	c, _ := r.Context().Value(connKey{}).(*conn)
	if t := c.tls.Load(); t != nil {
		state := t.ConnectionState()
		r.TLS = &state
	}
	if r.Body != nil && r.Body != http.NoBody {
		in := &body{ReadCloser: r.Body, control: http.NewResponseController(w)}
		in.deadline(time.Now().Add(stallTimeout)) // also for what the HTTP server reads of it behind the handler
		defer in.over.Store(true)
		r.Body = in
	}
	switch {
	case r.Method == http.MethodConnect:
		e.connect(w, r, c)
	case r.URL.Scheme != "" || r.URL.Host != "":
		e.absolute(w, r)
	default:
		e.opts.Handler.ServeHTTP(w, r)
	}
}

// body is a request's body. Its sender may pause for stallTimeout at most.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	over    atomic.Bool // its request was answered: a copy to Feishu may outlive that
}

// deadline sets the deadline of reads; the zero time: none.
func (b *body) deadline(at time.Time) {
	if !b.over.Load() {
		_ = b.control.SetReadDeadline(at) // fails if the connection has gone, which a read reports
	}
}

func (b *body) Read(data []byte) (int, error) {
	b.deadline(time.Now().Add(stallTimeout))
	n, err := b.ReadCloser.Read(data)
	if errors.Is(err, io.EOF) {
		b.deadline(time.Time{})
	}
	return n, err
}

// connect serves CONNECT: a tunnel to Feishu is served by this server itself, the rest is tunnelled.
func (e *Entry) connect(w http.ResponseWriter, r *http.Request, c *conn) {
	host, port := split(r.URL.Host, "")
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || n == 0 || err != nil {
		refuse(w, http.StatusBadRequest, "CONNECT wants host:port")
		return
	}
	if c.target != "" {
		refuse(w, http.StatusNotImplemented, "a tunnel inside of a tunnel is not served")
		return
	}
	if r.Header.Get("Via") == feishu.Via {
		e.once("the sidecar's own HTTPS_PROXY names its gateway: take it out of the sidecar's environment")
		refuse(w, http.StatusLoopDetected, "the sidecar's own proxy is this gateway")
		return
	}
	open := e.opens(host, port)
	switch {
	case e.isOurs(c.LocalAddr(), host, port), open && (port == "80" || e.certified(host)):
		e.enter(w, host)
	case open:
		e.once("a tunnel to Feishu passes unseen, since there is no certificate for its host: set GATEWAY_TLS=auto "+
			"and let the bot trust the CA", "host", host)
		e.tunnel(w, r, net.JoinHostPort(host, port))
	case e.mayTunnel(w, r):
		e.tunnel(w, r, net.JoinHostPort(host, port))
	}
}

// enter makes what follows a CONNECT a connection of this server.
func (e *Entry) enter(w http.ResponseWriter, host string) {
	near, err := takeOver(w, host)
	if err != nil {
		e.log.Error("take over a connection", "err", err)
		return
	}
	e.count("opened")
	inside := &again{&conn{begun: near, entry: e}}
	if _, err = near.Write([]byte(established)); err == nil {
		_ = e.server.Serve(inside) // which goes on behind its return
	}
	if inside.one != nil {
		_ = near.Close()
	}
}

// absolute serves a request to a proxy without CONNECT.
func (e *Entry) absolute(w http.ResponseWriter, r *http.Request) {
	fallback := ports[r.URL.Scheme]
	host, port := split(r.URL.Host, fallback)
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case fallback == "" || host == "":
		refuse(w, http.StatusBadRequest, "a proxied request wants http:// or https:// and a host")
	case e.opens(host, port) || local != nil && e.isOurs(local, host, port):
		e.count("opened")
		e.opts.Handler.ServeHTTP(w, originForm(r))
	default:
		refuse(w, http.StatusNotImplemented, "other hosts than Feishu's are served by CONNECT only: use HTTPS_PROXY and "+
			"no HTTP_PROXY, or list the host in the bot's NO_PROXY")
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

// refuse answers a request that is not forwarded.
func refuse(w http.ResponseWriter, status int, why string) {
	http.Error(w, "feishu-relay: "+why, status)
}

const (
	// tunnelIdle closes a tunnel without data in either direction. It is longer than the pause between the
	// pings of a WebSocket.
	tunnelIdle = 10 * time.Minute
	// dialTimeout is how long connecting to the far side may take, and a
	// proxy on the way to it may take to answer.
	dialTimeout = 10 * time.Second
	// maxAnswerHeader is the most bytes of such a proxy's answer.
	maxAnswerHeader = 64 << 10
)

// tunnel joins the bot with addr and reads nothing of it.
func (e *Entry) tunnel(w http.ResponseWriter, r *http.Request, addr string) {
	far, err := e.dial(r.Context(), addr)
	switch {
	case errors.Is(err, errForbidden):
		e.count("proxy_refused")
		e.once("a proxied request to this machine or its link was refused: list the address in GATEWAY_CONNECT_ALLOW, "+
			"or in the bot's NO_PROXY", "addr", fmt.Sprintf("%.100s", addr))
		refuse(w, http.StatusForbidden, "this address is, or leads to, one of the gateway's own machine or link: "+
			"list host:port in GATEWAY_CONNECT_ALLOW, or the host in the bot's NO_PROXY")
		return
	case err != nil:
		e.count("proxy_failed")
		e.log.Debug("tunnel", "addr", addr, "err", err)
		refuse(w, http.StatusBadGateway, "cannot reach "+addr)
		return
	}
	defer far.Close()
	near, err := takeOver(w, "")
	if err != nil {
		e.log.Error("take over a connection", "err", err)
		return
	}
	defer near.Close()
	if _, err := near.Write([]byte(established)); err == nil {
		e.count("tunnel")
		join(e.living, near, far)
	}
}

// join copies both ways until both sides have ended, one of them
// fails, no data came for tunnelIdle, or ctx ends. It closes both.
func join(ctx context.Context, near, far net.Conn) {
	hangUp := func() {
		_ = near.Close()
		_ = far.Close()
	}
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	idle := time.AfterFunc(tunnelIdle, hangUp)
	defer idle.Stop()
	var ways sync.WaitGroup
	carry := func(to, from net.Conn) {
		if _, err := io.Copy(to, &watched{from, idle}); err != nil || closeWrite(to) != nil {
			hangUp()
		}
	}
	ways.Go(func() { carry(near, far) })
	carry(far, near)
	ways.Wait()
}

// watched is a side of a tunnel that is used when something is read from it.
type watched struct {
	io.Reader
	idle *time.Timer
}

func (s *watched) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.idle.Reset(tunnelIdle)
	return n, err
}

// dial connects to addr, through the environment's proxy if there is one, which
// then resolves names by its own rules.
func (e *Entry) dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if !e.mayReach(addr) {
		return nil, errForbidden
	}
	u := &url.URL{Scheme: "https", Host: addr}
	if _, port := split(addr, ""); port == "80" {
		u.Scheme = "http"
	}
	proxy, err := e.viaProxy(u)
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		return e.dialChecked(ctx, addr)
	}
	far, err := e.dialProxy(ctx, proxy, addr)
	if err != nil {
		return nil, fmt.Errorf("the sidecar's own proxy: %w", err)
	}
	return far, nil
}

// dialProxy has a proxy open a tunnel to addr.
func (e *Entry) dialProxy(ctx context.Context, proxy *url.URL, addr string) (far net.Conn, err error) {
	at := net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), ports[proxy.Scheme]))
	c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	if proxy.Scheme == "https" {
		c = tls.Client(c, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() {
		if !stop() || err != nil {
			far, err = nil, cmp.Or(err, context.Cause(ctx))
			_ = c.Close()
		}
	}()
	r := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr,
		Header: http.Header{"User-Agent": {""}, "Via": {feishu.Via}}}
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		r.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := r.Write(c); err != nil {
		return nil, err
	}
	in := bufio.NewReader(io.LimitReader(c, maxAnswerHeader))
	answer, err := http.ReadResponse(in, r)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	if err != nil {
		return nil, err
	}
	ahead, _ := in.Peek(in.Buffered()) // no more than what is there: no error
	return &begun{Conn: c, ahead: ahead}, nil
}

// basicNames are the names that every CA of mode auto may sign
// for: the hosts of feishu.IsOpenHost, and this machine.
var basicNames = []string{"open.feishu.cn", "open.larksuite.com", "localhost", "127.0.0.1", "::1"}

// canonicalHost writes a host name (no port) in the one form in which names
// are compared: lower case, no dot at the end, no brackets, an IP as Go writes it.
func canonicalHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}

// split cuts the authority of a proxied request in two, with fallback as the
// port where it names none.
func split(authority, fallback string) (host, port string) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host, port = authority, fallback
	}
	return canonicalHost(host), port
}

// opens asks Options.Open.
func (e *Entry) opens(host, port string) bool {
	if port != "80" && port != "443" {
		host = net.JoinHostPort(host, port)
	}
	return e.opts.Open(host)
}

// isOurs reports whether host and port name the listener whose connections
// come in on local.
func (e *Entry) isOurs(local net.Addr, host, port string) bool {
	ourHost, ourPort := split(local.String(), "")
	ip, err := netip.ParseAddr(host)
	return port == ourPort && (host == "localhost" || host == ourHost || slices.Contains(e.names, host) ||
		err == nil && ip.IsLoopback())
}

// errForbidden is returned for an address that the proxy does not connect to.
var errForbidden = errors.New("the address is one of this machine or of its link")

// mayReach reports whether addr (host:port) may be connected to as far as its text shows: a name may still
// lead to a forbidden address.
func (e *Entry) mayReach(addr string) bool {
	host, _ := split(addr, "")
	ip, err := netip.ParseAddr(host)
	ip = ip.WithZone("")
	return err != nil || !ip.IsLoopback() && !ip.IsUnspecified() && !ip.IsLinkLocalUnicast() &&
		!ip.IsLinkLocalMulticast() && !ip.IsInterfaceLocalMulticast() || e.isAllowed(addr)
}

// isAllowed reports whether addr is in Options.Allow.
func (e *Entry) isAllowed(addr string) bool {
	host, port := split(addr, "")
	return slices.Contains(e.allow, net.JoinHostPort(host, port))
}

// dialChecked connects to addr. Each address that its name leads to is checked when it is connected
// to, so that a second look-up cannot replace it; the error is errForbidden where one was refused.
func (e *Entry) dialChecked(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Resolver: e.resolver}
	var refused atomic.Bool
	if !e.isAllowed(addr) {
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if !e.mayReach(address) {
				refused.Store(true)
				return errForbidden
			}
			return nil
		}
	}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil && refused.Load() {
		return nil, errForbidden
	}
	return c, err
}
