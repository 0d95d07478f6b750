package entry

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// pairCheck is how often at most a handshake looks whether the files changed.
const pairCheck = 10 * time.Second

// pair is the certificate of mode file, read again when its files change. A
// change that cannot be read leaves the last good one, and is said.
type pair struct {
	*notices
	certFile, keyFile string

	mu      sync.Mutex // guards what follows
	cert    *tls.Certificate
	seen    [2]os.FileInfo // of the files when they were read last
	checked time.Time
	trouble string // with the files as they are, already said
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
		return nil, fmt.Errorf("%s and %s are no pair: %w", p.certFile, p.keyFile, err)
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
