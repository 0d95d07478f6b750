package entry

import (
	"bytes"
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
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
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

	// skew makes a certificate valid where the clock is behind this machine's.
	skew = time.Hour
	// maxPEM is the most bytes of a certificate or key file; more is an error.
	maxPEM = 1 << 20
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
	defer warnOpenKey(root, n)
	// The common case needs no lock, and works in a read-only folder.
	if a, err := loadAuthority(root); err == nil && a.cert != nil && a.lacks(names) == "" {
		return a, nil
	}
	private, err := safefile.OpenSub(root, keyFolder)
	if err != nil {
		return nil, err
	}
	defer private.Close()
	unlock, err := lock(private)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, err := loadAuthority(root)
	if err != nil {
		return nil, err
	}
	if a.cert != nil {
		why := a.lacks(names)
		if why == "" {
			return a, nil
		}
		if !strings.HasPrefix(a.cert.Subject.CommonName, caName) {
			return nil, fmt.Errorf("%s in %s %s, and was not made here: replace it", caFile, dir, why)
		}
		n.log.Warn("the CA certificate was renewed with the same key: bots started from now on need the new file",
			"file", caFile, "reason", why)
	}
	if a.key == nil {
		if a.key, err = newKey(private); err != nil {
			return nil, fmt.Errorf("make the CA's key: %w", err)
		}
	}
	if err := a.sign(names); err != nil {
		return nil, fmt.Errorf("make the CA: %w", err)
	}
	if err := publish(root, a.pem); err != nil {
		return nil, fmt.Errorf("write %s: %w", caFile, err)
	}
	return a, nil
}

func lock(folder *os.Root) (unlock func(), err error) {
	f, err := safefile.Open(folder, lockFile, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	err = jsonl.Retry(ctx, func() error {
		free, err := safefile.TryLock(f)
		if err == nil && !free {
			return jsonl.ErrLocked
		}
		return err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("another process holds %s for %s: stop it", f.Name(), lockWait)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // which frees it
}

// loadAuthority reads the files: none, a key alone (its sidecar was
// killed), or both.
func loadAuthority(root *os.Root) (*authority, error) {
	keyPath := keyFolder + "/" + keyFile
	keyPEM, keyErr := readFile(root, keyPath)
	certPEM, certErr := readFile(root, caFile)
	noKey, noCert := errors.Is(keyErr, fs.ErrNotExist), errors.Is(certErr, fs.ErrNotExist)
	const remedy = "restore it, or remove both files and let the bots load the new " + caFile
	switch {
	case noKey && noCert:
		return &authority{}, nil
	case noKey && certErr == nil:
		return nil, fmt.Errorf("%s exists and its key %s is missing: %s", caFile, keyPath, remedy)
	case keyErr != nil:
		return nil, fmt.Errorf("read the CA's key: %w", keyErr)
	case noCert:
		key, err := parseKey(keyPEM)
		if err != nil {
			return nil, fmt.Errorf("%s is not a private key (%w): %s", keyPath, err, remedy)
		}
		return &authority{key: key}, nil
	case certErr != nil:
		return nil, fmt.Errorf("read the CA: %w", certErr)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s do not match (%w): %s", caFile, keyPath, err, remedy)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("%s is not a CA certificate: %s", caFile, remedy)
	}
	return &authority{cert: pair.Leaf, key: key, pem: certPEM}, nil
}

func readFile(root *os.Root, name string) ([]byte, error) {
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return readPEM(f)
}

// readPEM reads all of f and closes it.
func readPEM(f *os.File) ([]byte, error) {
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPEM+1))
	if err == nil && len(data) > maxPEM {
		err = fmt.Errorf("%s is larger than %d bytes", f.Name(), maxPEM)
	}
	return data, err
}

// warnOpenKey logs a warning if everybody may read the key: a copied folder or a
// mount may have lost its permissions.
func warnOpenKey(root *os.Root, n *notices) {
	const path = keyFolder + "/" + keyFile
	info, err := root.Stat(path)
	if err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" {
		n.log.Warn("the CA's key is readable by every user: chmod 600", "file", path)
	}
}

func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("cannot sign")
	}
	return signer, nil
}

func newKey(private *os.Root) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, safefile.Replace(private, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// publish writes the certificate for bots, which run as other users:
// everybody who may read the folder may read it.
func publish(root *os.Root, data []byte) error {
	const next = caFile + ".new"
	if err := safefile.Replace(root, next, data); err != nil {
		return err
	}
	info, err := root.Stat(next)
	if err != nil {
		return err
	}
	if err := root.Chmod(next, info.Mode().Perm()|0o044); err != nil {
		return err
	}
	return root.Rename(next, caFile)
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

// sign makes the certificate for the key, for names and those of the
// certificate before.
func (a *authority) sign(names []string) error {
	now := time.Now()
	t := &x509.Certificate{
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(caLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},

		PermittedDNSDomainsCritical: true,
	}
	if a.cert == nil {
		t.Subject = pkix.Name{CommonName: caName + commonName()}
	} else {
		t.Subject = a.cert.Subject
		t.PermittedDNSDomains = slices.Clone(a.cert.PermittedDNSDomains)
		t.PermittedIPRanges = slices.Clone(a.cert.PermittedIPRanges)
	}
	permit(t, names)
	if len(t.PermittedDNSDomains)+len(t.PermittedIPRanges) > maxNames {
		return fmt.Errorf("%s has had more than %d names: remove it and the folder %s, and let the bots load the new one",
			caFile, maxNames, keyFolder)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, a.key.Public(), a.key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	var out bytes.Buffer
	err = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.pem = out.Bytes()
	return err
}

func permit(t *x509.Certificate, names []string) {
	asked := &authority{cert: t}
	for _, name := range names {
		ip, err := netip.ParseAddr(name)
		switch {
		case err != nil && (len(t.PermittedDNSDomains) == 0 || !Permits(asked.cert, name)):
			t.PermittedDNSDomains = append(t.PermittedDNSDomains, name)
		case err == nil && (len(t.PermittedIPRanges) == 0 || !Permits(asked.cert, name)):
			bits := ip.BitLen()
			if name == "127.0.0.1" {
				bits = 8 // all of the loopback network
			}
			n := netip.PrefixFrom(ip, bits).Masked()
			t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: n.Addr().AsSlice(),
				Mask: net.CIDRMask(bits, ip.BitLen())})
		}
	}
}

// commonName returns what identifies this CA in a list of trusted ones.
func commonName() string {
	const maxHost = 30 // the whole name has 64 characters at most
	host, _ := os.Hostname()
	return strings.TrimSpace(host[:min(len(host), maxHost)] + " " + rand.Text()[:8])
}

const (
	leafLife  = 90 * 24 * time.Hour
	leafRenew = 30 * 24 * time.Hour // a certificate that ends sooner is replaced
)

// issuer makes certificates for names in mode auto, in memory, each at its first use.
type issuer struct {
	*authority
	*notices
	names []string

	mu     sync.Mutex
	leaves map[string]*tls.Certificate // by name, ""; at most one for each of names; guarded by mu
}

func (i *issuer) covers(name string) bool { return slices.Contains(i.names, name) }

// certificate returns one for name alone: some TLS libraries reject a certificate
// with an IP because of the CA's rules about IPs. For an IP, which clients do not
// name, and for an unknown name it has all names, so that the
// client's error shows the names that are valid.
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
		// A name with a dot would be checked against the CA's list of names if
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

// pairCheck is the shortest time between two checks whether the files changed.
const pairCheck = 10 * time.Second

// pair is the certificate of mode file, read again when its files change. If that
// fails it logs why and keeps the previous one.
type pair struct {
	*notices
	certFile, keyFile string

	mu      sync.Mutex // guards the fields below
	cert    *tls.Certificate
	seen    [2]os.FileInfo // of the files when they were read last
	checked time.Time
	trouble string // the error with the files as they are, which was logged
}

func openPair(certFile, keyFile string, n *notices) (*pair, error) {
	if certFile == "" || keyFile == "" {
		return nil, errors.New("set GATEWAY_CERT_FILE and GATEWAY_KEY_FILE")
	}
	p := &pair{notices: n, certFile: certFile, keyFile: keyFile}
	seen, err := p.stat()
	if err != nil {
		return nil, err
	}
	if p.cert, err = p.load(); err != nil {
		return nil, err
	}
	p.seen, p.checked = seen, time.Now()
	return p, nil
}

func (p *pair) certificate(string) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checked) < pairCheck {
		return p.cert, nil
	}
	p.checked = time.Now()
	seen, err := p.stat()
	if err == nil && same(seen[0], p.seen[0]) && same(seen[1], p.seen[1]) {
		return p.cert, nil
	}
	var cert *tls.Certificate
	if err == nil {
		p.seen = seen // also when it turns out broken: it is read again when it changes again
		cert, err = p.load()
	}
	if err != nil {
		if p.trouble != err.Error() {
			p.trouble = err.Error()
			p.log.Warn("the changed certificate cannot be used; the previous one stays in use", "err", err)
		}
		return p.cert, nil
	}
	p.log.Info("certificate reloaded", "file", p.certFile)
	p.cert, p.trouble = cert, ""
	return p.cert, nil
}

func (p *pair) covers(name string) bool {
	cert, _ := p.certificate(name)
	return cert.Leaf.VerifyHostname(name) == nil
}

func (p *pair) stat() (seen [2]os.FileInfo, err error) {
	for i, name := range []string{p.certFile, p.keyFile} {
		if seen[i], err = os.Stat(name); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (p *pair) load() (*tls.Certificate, error) {
	certPEM, err := readPath(p.certFile)
	if err != nil {
		return nil, fmt.Errorf("GATEWAY_CERT_FILE: %w", err)
	}
	keyPEM, err := readPath(p.keyFile)
	if err != nil {
		return nil, fmt.Errorf("GATEWAY_KEY_FILE: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s and %s do not match: %w", p.certFile, p.keyFile, err)
	}
	if now := time.Now(); now.After(cert.Leaf.NotAfter) {
		p.log.Warn("the certificate has expired; bots will refuse it", "file", p.certFile, "end", cert.Leaf.NotAfter)
	}
	return &cert, nil
}

// readPath reads a file that the operator named, wherever its links lead.
func readPath(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return readPEM(f)
}
