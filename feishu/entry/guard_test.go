package entry_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"feishu-relay/feishu/entry"
)

// local is a server on this machine's loopback addresses that nothing proxied may reach.
func local(t *testing.T) (port string, reached *atomic.Int64) {
	t.Helper()
	reached = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		fmt.Fprint(w, "private")
	}))
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port, reached
}

// names answers look-ups: a name with dots leads to these addresses.
func names(t *testing.T, hosts map[string]string) *net.Resolver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Additionals = true, nil
			h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
			ip, err := netip.ParseAddr(hosts[strings.TrimSuffix(q.Name.String(), ".")])
			switch {
			case err != nil:
				m.RCode = dnsmessage.RCodeNameError
			case ip.Is4() && q.Type == dnsmessage.TypeA:
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}}}
			case ip.Is6() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}}}
			}
			if out, err := m.Pack(); err == nil {
				_, _ = c.WriteTo(out, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", c.LocalAddr().String())
	}}
}

func TestNoProxiedRequestReachesThisMachine(t *testing.T) {
	port, reached := local(t)
	for _, token := range []string{"", "token"} { // on loopback, and beyond it
		r := start(t, entry.Options{Loopback: token == "", Token: token})
		r.SetResolver(names(t, map[string]string{"four.test": "127.0.0.1", "six.test": "::1", "mapped.test": "::ffff:127.0.0.1",
			"link.test": "169.254.169.254"}))
		for _, host := range []string{"127.0.0.1", "127.9.9.9", "0.0.0.0", "localhost", "LOCALHOST", "[::1]", "[::]", "[::ffff:127.0.0.1]",
			"169.254.169.254", "[fe80::1]", "[fe80::1%25lo]", "[ff02::1]",
			"four.test", "six.test", "mapped.test", "link.test"} {
			auth := "Proxy-Authorization: Bearer " + token + "\r\n\r\n"
			target := host + ":" + port
			if res, body := raw(t, r.addr, "CONNECT "+target+" HTTP/1.1\r\nHost: x\r\n"+auth); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s: got %s %s", target, res.Status, body)
			}
		}
		if reached.Load() != 0 || r.counted("proxy_refused") == 0 {
			t.Errorf("the server was reached %d times; counted %v", reached.Load(), r.events)
		}
		if n := strings.Count(r.log.String(), "GATEWAY_CONNECT_ALLOW"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	}
}

func TestAllowedAddressesOfThisMachine(t *testing.T) {
	port, _ := local(t)
	other, _ := local(t)
	r := start(t, entry.Options{Loopback: true, Allow: []string{"127.0.0.1:" + port, "named.test:" + other}})
	r.SetResolver(names(t, map[string]string{"four.test": "127.0.0.1", "named.test": "127.0.0.1"}))
	for addr, want := range map[string]int{
		"127.0.0.1:" + port: 200, "[::ffff:127.0.0.1]:" + port: 200, "four.test:" + port: 200, "named.test:" + other: 200,
		"127.0.0.1:" + other: 403, "four.test:" + other: 403, "127.0.0.2:" + port: 403,
	} {
		if res, _ := raw(t, r.addr, "CONNECT "+addr+" HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != want {
			t.Errorf("CONNECT %s: got %d, want %d", addr, res.StatusCode, want)
		}
	}
}

// The network's own proxy may be on this machine; what it is asked for may not.
func TestTheSidecarsOwnProxyIsNotAskedForThisMachine(t *testing.T) {
	asked := make(chan string, 10)
	proxy := peer(t, func(c *net.TCPConn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			t.Error(err)
			return
		}
		asked <- r.Host
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	})
	r := start(t, entry.Options{Loopback: true})
	r.SetProxy("http://" + proxy)
	for _, c := range []struct {
		host string
		want int
	}{{"169.254.169.254:80", 403}, {"[fe80::1]:80", 403}, {"origin.test:80", 200}} {
		if res, _ := raw(t, r.addr, "CONNECT "+c.host+" HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != c.want {
			t.Errorf("CONNECT %s: got %d, want %d", c.host, res.StatusCode, c.want)
		}
	}
	if len(asked) != 1 {
		t.Errorf("the proxy was asked %d times, want 1", len(asked))
	}
}
