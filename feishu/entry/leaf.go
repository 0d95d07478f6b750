package entry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	leafLife  = 90 * 24 * time.Hour
	leafRenew = 30 * 24 * time.Hour // a certificate that ends sooner is replaced
)

// issuer makes certificates for names in mode auto, each when it is first
// asked for, in memory.
type issuer struct {
	*authority
	*notices
	names []string

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by name, ""; at most one for each of names; guarded by mu
}

func (i *issuer) covers(name string) bool { return slices.Contains(i.names, name) }

// certificate returns one for name alone: some TLS libraries take offence at a
// CA's rules about IPs as soon as a certificate has one. For an IP nobody says
// which, and for a name that is not ours, it is one with all names, so that the
// client's error tells what it would have been valid for.
func (i *issuer) certificate(name string) (*tls.Certificate, error) {
	if name != "" && !i.covers(name) {
		i.once("a client asked for a certificate of another name: say in GATEWAY_PUBLIC_URL how the bot reaches the gateway",
			"name", name)
		name = ""
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if leaf := i.leaves[name]; leaf != nil && time.Until(leaf.Leaf.NotAfter) > leafRenew {
		return leaf, nil
	}
	names := []string{name}
	if name == "" {
		names = i.names
	}
	leaf, err := i.issue(names)
	if err != nil {
		return nil, err
	}
	if i.leaves == nil {
		i.leaves = map[string]*tls.Certificate{}
	}
	i.leaves[name] = leaf
	return leaf, nil
}

func (i *issuer) issue(names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	t := &x509.Certificate{
		// A name with a dot would be held against the CA's list of names where
		// the certificate has only IPs.
		Subject:               pkix.Name{CommonName: "feishu-relay"},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(leafLife),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if end := i.cert.NotAfter; t.NotAfter.After(end) {
		t.NotAfter = end
	}
	for _, name := range names {
		if ip, err := netip.ParseAddr(name); err == nil {
			t.IPAddresses = append(t.IPAddresses, ip.AsSlice())
		} else {
			t.DNSNames = append(t.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, i.cert, key.Public(), i.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
