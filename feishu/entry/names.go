package entry

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// maxNames is the most names that the CA may sign for; more are an error.
const maxNames = 100

// standing are the names that every certificate authority of ours may sign
// for: the hosts of feishu.IsOpenHost, and this machine.
var standing = []string{"open.feishu.cn", "open.larksuite.com", "localhost", "127.0.0.1", "::1"}

// certNames returns the standing names and further ones, each once, in the
// form in which they are compared.
func certNames(further []string) ([]string, error) {
	names := slices.Clone(standing)
	for _, name := range further {
		name = canonicalHost(name)
		if name == "" || slices.Contains(names, name) {
			continue
		}
		if !validHost(name) {
			return nil, fmt.Errorf("%q is no name for a certificate; want a host name or an IP, without scheme or port", name)
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

// openName is the form in which Options.Open is asked.
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
	if err != nil {
		return false
	}
	return ip.IsLoopback() || sameIP(local, ip)
}

func sameIP(a net.Addr, ip netip.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.AddrPort().Addr().Unmap().WithZone("") == ip.Unmap()
}
