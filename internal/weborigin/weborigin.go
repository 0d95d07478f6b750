// Package weborigin recognises requests that a browser sends on behalf of
// another site's page. A page may post to any address that its visitor can
// reach. If its owner lets a name resolve to that address (DNS rebinding), it
// may read the answers as well. A listener therefore checks two things: that
// the browser does not report another origin ([Foreign]), and that the request
// was sent to one of the listener's own names ([Name], [Loopback]).
package weborigin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Foreign reports whether, according to the browser, a page of another origin made
// r: Sec-Fetch-Site is neither none nor same-origin, the origin in Origin is not
// r's own, or the header occurs several times. Unlike
// [http.CrossOriginProtection.Check] it makes no exception for GET, which may
// upgrade to a WebSocket or hold a stream.
//
// trusted has further origins of the listener. If it is nil they are unknown: then
// Origin is ignored if Sec-Fetch-Site is set, since a reverse proxy may have changed
// the Host that the browser sent.
func Foreign(trusted *http.CrossOriginProtection, r *http.Request) bool {
	switch origins := r.Header["Origin"]; {
	case len(origins) > 1:
		return true
	case len(origins) == 0 && len(r.Header["Sec-Fetch-Site"]) == 0:
		return false // not a browser, or a very old one: Check allows these too
	}
	if trusted == nil {
		return refuses(&http.CrossOriginProtection{}, r, "Sec-Fetch-Site", "Origin")
	}
	return refuses(trusted, r, "Sec-Fetch-Site") || refuses(trusted, r, "Origin")
}

// refuses reports whether p refuses a request like r that has these headers only.
func refuses(p *http.CrossOriginProtection, r *http.Request, names ...string) bool {
	header := http.Header{}
	for _, name := range names {
		header[name] = r.Header[name]
	}
	return p.Check(&http.Request{Method: http.MethodPost, URL: r.URL, Host: r.Host, Header: header}) != nil
}

// Name is the host name or the IP address in a Host header: without port and
// brackets, in lower case, without a dot at the end, an address as [netip] writes it.
func Name(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}

// Loopback reports whether a Host header names this machine: localhost or a
// loopback address. A name that resolves to one does not count.
func Loopback(hostport string) bool {
	host := Name(hostport)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
