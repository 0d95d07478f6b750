package entry

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
)

const (
	MaxConns     = maxConns
	StallTimeout = stallTimeout
	TunnelIdle   = tunnelIdle
	CALife       = caLife
	CARenew      = caRenew
)

func (e *Entry) SetResolver(r *net.Resolver) { e.resolver = r }

func (e *Entry) SetProxy(proxy string) {
	u, err := url.Parse(proxy)
	e.viaProxy = func(*url.URL) (*url.URL, error) { return u, err }
}

func (e *Entry) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	return e.certificate(hello)
}

// Steal signs for a name with the CA's key.
func (e *Entry) Steal(name string) (*tls.Certificate, error) {
	a, err := openAuthority(e.opts.DataDir, nil, e.notices)
	if err != nil {
		return nil, err
	}
	return (&issuer{authority: a}).issue([]string{name})
}

func Join(ctx context.Context, near, far net.Conn) { join(ctx, near, far) }
