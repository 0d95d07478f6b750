package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Authority signs the certificates of servers and of their clients. Its files are in PEM
// form.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority with its files in dir.
func NewAuthority(dir string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, key: key, cert: template("authority " + rand.Text())}
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return a, writePEM(a.File(), "CERTIFICATE", der)
}

// File is the authority's certificate.
func (a *Authority) File() string { return filepath.Join(a.dir, "ca.pem") }

// Issue writes a certificate for host, an IP address or "" for a client alone, and its key.
func (a *Authority) Issue(name, host string) (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	t := template(name)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if host != "" {
		t.IPAddresses = []net.IP{net.ParseIP(host)}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, private.Public(), a.key)
	if err != nil {
		return "", "", err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	cert, key = a.names(name)
	if err := writePEM(cert, "CERTIFICATE", der); err != nil {
		return "", "", err
	}
	return cert, key, writePEM(key, "PRIVATE KEY", pkcs8)
}

// names are the files of the certificate name and its key.
func (a *Authority) names(name string) (cert, key string) {
	return filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // its error is nil: rand.Reader never fails
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
}

func writePEM(name, kind string, der []byte) error {
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// certificate is the name of s's certificate.
func (s *Server) certificate() string { return "server-" + s.host + "-" + s.port }

// options are redis-server's for TLS on s's address, names and values in turn.
func (a *Authority) options(s *Server) ([]string, error) {
	cert, key, err := a.Issue(s.certificate(), s.host)
	if err != nil {
		return nil, err
	}
	return []string{"--tls-port", s.port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", a.File(), "--tls-replication", "yes"}, nil
}

// Query are the parameters of REDIS_URL with which a client trusts a and has the certificate name of it.
func (a *Authority) Query(name string) string {
	cert, key := a.names(name)
	return "?" + url.Values{"ca_file": {a.File()}, "cert_file": {cert}, "key_file": {key}}.Encode()
}

// TLSForm is a Redis over TLS that wants a certificate of its clients.
type TLSForm struct {
	Name   string // single, sentinel or cluster
	URL    string // as REDIS_URL has it
	Direct string // of the one server that has the data
}

// StartTLSForms runs, until the test ends, a server, a Sentinel that names it, and a Cluster of one node. The
// certificates are in dir.
func StartTLSForms(tb TB, dir string) []TLSForm {
	tb.Helper()
	a, err := NewAuthority(dir)
	if err != nil {
		tb.Fatal(err)
	}
	const client = "client"
	if _, _, err := a.Issue(client, ""); err != nil {
		tb.Fatal(err)
	}
	single := StartTLS(tb, a)
	sentinel := StartSentinel(tb, single, watchedName)
	node := startNode(tb, a)
	own := a.Query(client)
	return []TLSForm{
		{"single", single.URL() + own, single.URL() + own},
		{"sentinel", "rediss+sentinel://" + sentinel.Addr() + "/" + watchedName + own, single.URL() + own},
		{"cluster", "rediss+cluster://" + node.Addr() + own, node.URL() + own},
	}
}
