package entry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
)

// maxNames is the most names that the CA may sign for; more are an error.
const maxNames = 100

// basicNames are the names that every CA of mode auto may sign
// for: the hosts of feishu.IsOpenHost, and this machine.
var basicNames = []string{"open.feishu.cn", "open.larksuite.com", "localhost", "127.0.0.1", "::1"}

// certNames returns basicNames and further ones, each once, in the
// form in which they are compared.
func certNames(further []string) ([]string, error) {
	names := slices.Clone(basicNames)
	for _, name := range further {
		name = canonicalHost(name)
		if name == "" || slices.Contains(names, name) {
			continue
		}
		if !validHost(name) {
			return nil, fmt.Errorf("%q is not a name for a certificate; want a host name or an IP, without scheme or port", name)
		}
		names = append(names, name)
	}
	if len(names) > maxNames {
		return nil, fmt.Errorf("%d names for the certificate; %d is the most", len(names), maxNames)
	}
	return names, nil
}

func validHost(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return !strings.Contains(name, "%")
	}
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
	})
}

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

// openName returns the argument of Options.Open.
func openName(host, port string) string {
	if port == "80" || port == "443" {
		return host
	}
	return net.JoinHostPort(host, port)
}

// isOurs reports whether host and port name the listener whose connections
// come in on local.
func (e *Entry) isOurs(local net.Addr, host, port string) bool {
	_, ourPort, err := net.SplitHostPort(local.String())
	if err != nil || port != ourPort {
		return false
	}
	if host == "localhost" || slices.Contains(e.names, host) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsLoopback() || sameIP(local, ip))
}

func sameIP(a net.Addr, ip netip.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.AddrPort().Addr().Unmap().WithZone("") == ip.Unmap()
}

// errForbidden is returned for an address that the proxy does not connect to.
var errForbidden = errors.New("the address is one of this machine or of its link")

// thisNetwork holds addresses of this machine other than 0.0.0.0 (RFC 1122 3.2.1.3).
var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// isForbidden reports whether ip is loopback, link-local or unspecified.
func isForbidden(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() ||
		ip.IsInterfaceLocalMulticast() || thisNetwork.Contains(ip)
}

// mayReach reports whether addr (host:port) may be connected to as far as its text shows: a name may still
// lead to a forbidden address.
func (e *Entry) mayReach(addr string) bool {
	host, _ := split(addr, "")
	ip, err := netip.ParseAddr(host)
	return err != nil || !isForbidden(ip) || e.isAllowed(addr)
}

// isAllowed reports whether addr is in Options.Allow.
func (e *Entry) isAllowed(addr string) bool {
	host, port := split(addr, "")
	return slices.Contains(e.allow, net.JoinHostPort(host, port))
}

// dialChecked connects to addr. Each address that its name leads to is checked when it is connected
// to, so that a second look-up cannot replace it; the error is errForbidden where one was refused.
func (e *Entry) dialChecked(ctx context.Context, network, addr string) (net.Conn, error) {
	d := dialer
	d.Resolver = e.resolver
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
	c, err := d.DialContext(ctx, network, addr)
	if err != nil && refused.Load() {
		return nil, errForbidden
	}
	return c, err
}
