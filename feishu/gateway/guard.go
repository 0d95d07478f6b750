package gateway

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"feishu-relay/feishu"
	"feishu-relay/internal/weborigin"
)

// guard keeps web pages off the gateway: a page could make it serve another app,
// and call Feishu through it.
type guard struct {
	names   map[string]bool // of the gateway, beside those that every gateway has
	origins *http.CrossOriginProtection
	warning *rate.Sometimes
}

func newGuard(o Options) (guard, error) {
	g := guard{names: map[string]bool{weborigin.Name(o.Upstream.Host): true}, origins: &http.CrossOriginProtection{},
		warning: &rate.Sometimes{First: 1, Interval: time.Minute}}
	if o.PublicURL != nil {
		g.names[weborigin.Name(o.PublicURL.Host)] = true
		if err := g.origins.AddTrustedOrigin(strings.ToLower(o.PublicURL.Scheme + "://" + o.PublicURL.Host)); err != nil {
			return guard{}, fmt.Errorf("gateway: GATEWAY_PUBLIC_URL: %w", err)
		}
	}
	return g, nil
}

// admits answers 403 to a request that a foreign web page made a browser send,
// and to one for a host that is not the gateway's own unless anyHost is set.
func (g *Gateway) admits(w http.ResponseWriter, r *http.Request, anyHost bool) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	switch {
	case weborigin.Foreign(g.guard.origins, r):
		g.count(countedCrossOrigin)
		g.guard.warning.Do(func() { g.log.Warn("a web page's request to the gateway was refused") })
		fail(w, http.StatusForbidden, "requests of web pages are not served")
		return false
	case anyHost || g.ownHost(r, local):
		return true
	}
	g.count(countedForeignHost)
	host := fmt.Sprintf("%.100s", r.Host)
	g.guard.warning.Do(func() {
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
// name for the host, the host of GATEWAY_PUBLIC_URL, over TLS one of a certificate,
// and Feishu's own hosts, for bots that use the gateway as a proxy or by an alias.
// Whatever another name resolves to, it is somebody else's.
func (g *Gateway) ownHost(r *http.Request, local net.Addr) bool {
	host := weborigin.Name(r.Host)
	if g.guard.names[host] || weborigin.Loopback(host) {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		tcp, ok := local.(*net.TCPAddr)
		return ok && tcp.AddrPort().Addr().Unmap().WithZone("") == ip
	}
	return plainName.MatchString(host) || host == "" && !r.ProtoAtLeast(1, 1) || host == "host.docker.internal" ||
		feishu.IsOpenHost(host) || r.TLS != nil && g.opts.Certified(host)
}

// plainName is a host name without a dot.
var plainName = regexp.MustCompile(`^[a-z0-9_-]{1,63}$`)
