package entry

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/internal/wait"
)

const (
	caFile    = "ca.pem"
	keyFolder = "private"
	keyFile   = "ca-key.pem"
	lockFile  = "ca.lock"

	// caName begins the CA's common name, and marks a certificate that
	// may be recreated.
	caName = "feishu-relay CA "

	caLife  = 10 * 365 * 24 * time.Hour
	caRenew = 30 * 24 * time.Hour // a CA that ends sooner is recreated

	leafLife = 90 * 24 * time.Hour

	// skew makes a certificate valid where the clock is behind this machine's.
	skew = time.Hour
	// lockWait is how long to wait for the lock, which other sidecars hold for
	// milliseconds; then New fails.
	lockWait = 10 * time.Second
)

// authority is the CA. Its certificate lists the names it may sign for (RFC 5280
// 4.2.1.10). A new GATEWAY_PUBLIC_URL, or another sidecar that shares the folder, may add
// names later: then the certificate is signed again,
// with the old names and the new, and with the same key and subject. So a bot
// that trusts the earlier one goes on as before, and only a bot that uses a new
// name must read ca.pem again. An expiring CA is recreated in the same way.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// openAuthority reads the CA in dir, and creates or recreates it if
// needed; of several processes one does.
func openAuthority(dir string, names []string, n *notices) (*authority, error) {
	if dir == "" {
		return nil, errors.New("a folder for the CA is needed: set DATA_DIR")
	}
	root, err := safefile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	// The common case needs no lock, and works in a read-only folder.
	a, err := loadAuthority(root)
	if err != nil || a.cert != nil && a.lacks(names) == "" {
		return a, err
	}
	private, err := safefile.OpenSub(root, keyFolder)
	if err != nil {
		return nil, err
	}
	defer private.Close()
	lock, err := safefile.Open(private, lockFile, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // which frees it
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	err = wait.Until(ctx, 5*time.Millisecond, func(context.Context) (bool, error) { return safefile.TryLock(lock) })
	if err != nil {
		return nil, fmt.Errorf("lock %s, which another process may hold: %w", lock.Name(), err)
	}
	if a, err = loadAuthority(root); err != nil { // another process may have made it
		return nil, err
	}
	if a.cert == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		err = safefile.Replace(private, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
		if a.key = key; err != nil {
			return nil, fmt.Errorf("make the CA's key: %w", err)
		}
	} else {
		why := a.lacks(names)
		switch {
		case why == "":
			return a, nil
		case !strings.HasPrefix(a.cert.Subject.CommonName, caName):
			return nil, fmt.Errorf("%s in %s %s, and was not made here: replace it", caFile, dir, why)
		}
		n.log.Warn("the CA certificate was renewed with the same key: bots started from now on need the new file",
			"file", caFile, "reason", why)
	}
	if err = a.sign(names); err == nil {
		err = safefile.Replace(root, caFile, a.pem)
	}
	if err == nil { // bots run as other users: everybody who may read the folder may read it
		err = root.Chmod(caFile, 0o644)
	}
	if err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	return a, nil
}

// loadAuthority reads the files. Without a certificate it is the zero authority: nobody has trusted a key alone, whose
// sidecar was killed.
func loadAuthority(root *os.Root) (*authority, error) {
	const keyPath = keyFolder + "/" + keyFile
	certPEM, err := safefile.ReadFile(root, caFile)
	if errors.Is(err, fs.ErrNotExist) {
		return &authority{}, nil
	}
	keyPEM, keyErr := safefile.ReadFile(root, keyPath)
	if err := errors.Join(err, keyErr); err != nil {
		return nil, fmt.Errorf("read the CA: %w; restore it, or remove %s and let the bots load the new one", err, caFile)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err == nil && !pair.Leaf.IsCA {
		err = errors.New("it is not a CA certificate")
	}
	if err != nil {
		return nil, fmt.Errorf("%s and %s do not match (%w): restore them, or remove both files and let the bots load "+
			"the new %s", caFile, keyPath, err, caFile)
	}
	return &authority{cert: pair.Leaf, key: pair.PrivateKey.(crypto.Signer), pem: certPEM}, nil // as all in X509KeyPair
}

// lacks returns why the certificate does not suffice for names; "" if it does.
func (a *authority) lacks(names []string) string {
	if time.Until(a.cert.NotAfter) < caRenew {
		return "ends on " + a.cert.NotAfter.Format(time.DateOnly)
	}
	for _, name := range names {
		if !Permits(a.cert, name) {
			return "may not sign for " + name
		}
	}
	return ""
}

// Permits reports whether the CA of mode auto may sign for a name or an address.
func Permits(ca *x509.Certificate, name string) bool {
	if ip, err := netip.ParseAddr(name); err == nil {
		return len(ca.PermittedIPRanges) == 0 || slices.ContainsFunc(ca.PermittedIPRanges, func(n *net.IPNet) bool {
			return n.Contains(ip.AsSlice())
		})
	}
	return len(ca.PermittedDNSDomains) == 0 || slices.ContainsFunc(ca.PermittedDNSDomains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
}

// template is what all certificates have that are made here.
func template(life time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{NotBefore: now.Add(-skew), NotAfter: now.Add(life), BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
}

// sign makes the certificate for the key, for names and those of the
// certificate before.
func (a *authority) sign(names []string) error {
	t := template(caLife)
	t.IsCA, t.MaxPathLenZero, t.KeyUsage, t.PermittedDNSDomainsCritical = true, true, x509.KeyUsageCertSign, true
	if a.cert == nil {
		host, _ := os.Hostname() // what identifies this CA in a list of trusted ones; the whole has 64 characters at most
		t.Subject = pkix.Name{CommonName: caName + strings.TrimSpace(host[:min(len(host), 30)]+" "+rand.Text()[:8])}
	} else {
		t.Subject = a.cert.Subject
		t.PermittedDNSDomains = slices.Clone(a.cert.PermittedDNSDomains)
		t.PermittedIPRanges = slices.Clone(a.cert.PermittedIPRanges)
	}
	for _, name := range names {
		ip, err := netip.ParseAddr(name)
		switch {
		case err != nil && (len(t.PermittedDNSDomains) == 0 || !Permits(t, name)):
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, name)
		case err == nil && (len(t.PermittedIPRanges) == 0 || !Permits(t, name)):
			bits := ip.BitLen()
			if name == "127.0.0.1" {
				bits = 8 // all of the loopback network
			}
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{
				IP: netip.PrefixFrom(ip, bits).Masked().Addr().AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())})
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, a.key.Public(), a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return err
}

// issuer makes the certificates of mode auto, one for each handshake.
type issuer struct {
	*authority
	*notices
	names []string
}

// certificate returns one for name alone: some TLS libraries reject a certificate
// with an IP because of the CA's rules about IPs. For an IP, which clients do not
// name, and for an unknown name it has all names, so that the
// client's error shows the names that are valid.
func (i *issuer) certificate(name string) (*tls.Certificate, error) {
	if slices.Contains(i.names, name) {
		return i.issue([]string{name})
	}
	if name != "" {
		i.once("a client asked for a certificate of another name: say in GATEWAY_PUBLIC_URL how the bot reaches the gateway",
			"name", name)
	}
	return i.issue(i.names)
}

func (i *issuer) issue(names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := template(min(leafLife, time.Until(i.cert.NotAfter)))
	// A name with a dot would be checked against the CA's list of names if
	// the certificate has only IPs.
	t.Subject, t.KeyUsage = pkix.Name{CommonName: "feishu-relay"}, x509.KeyUsageDigitalSignature
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

// pair is the certificate of mode file. Its files are read at each handshake, as somebody renews them; if they cannot
// be used it logs why, and the last certificate stays.
type pair struct {
	*notices
	certFile, keyFile string
	last              atomic.Pointer[tls.Certificate]
}

func openPair(certFile, keyFile string, n *notices) (*pair, error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("set GATEWAY_CERT_FILE and GATEWAY_KEY_FILE")
	}
	p := &pair{notices: n, certFile: certFile, keyFile: keyFile}
	if err := p.read(); err != nil {
		return nil, fmt.Errorf("%s and %s do not match, or cannot be read: %w", certFile, keyFile, err)
	}
	return p, nil
}

func (p *pair) read() error {
	cert, err := tls.LoadX509KeyPair(p.certFile, p.keyFile)
	if err == nil {
		p.last.Store(&cert)
	}
	return err
}

func (p *pair) certificate(string) (*tls.Certificate, error) {
	if err := p.read(); err != nil {
		p.once("the changed certificate cannot be used; the previous one stays in use", "err", err)
	}
	return p.last.Load(), nil
}
