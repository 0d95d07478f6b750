package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"feishu-relay/feishu/entry"
	"feishu-relay/internal/loopback"
	"feishu-relay/internal/selftest"
)

// freePort is an address on which nobody listens now.
func freePort(t *testing.T) string {
	t.Helper()
	addr, err := loopback.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// withTLS configures a gateway with TLS of the mode.
func withTLS(t *testing.T, mode string) (data string) {
	t.Helper()
	newTenant(t)
	t.Setenv("GATEWAY_ADDR", freePort(t))
	t.Setenv("GATEWAY_TLS", mode)
	return os.Getenv("DATA_DIR")
}

// The certificate authority that the gateway makes at its first start.
func TestCheckCertificateAuto(t *testing.T) {
	data := withTLS(t, "auto")
	_, found := checked(t)
	wants(t, found, "gateway certificate", selftest.OK,
		"ca.pem will be made at the first start; then the bot needs NODE_EXTRA_CA_CERTS")
	_, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: data, Handler: http.NotFoundHandler(),
		Names: []string{"localhost", "127.0.0.1", "open.feishu.cn", "open.larksuite.com"}})
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(data, "ca.pem")
	chmod(t, ca, 0o644)
	_, found = checked(t)
	wants(t, found, "gateway certificate", selftest.OK, "REQUESTS_CA_BUNDLE (Python) set to "+ca)
	chmod(t, ca, 0o600)
	_, found = checked(t)
	wants(t, found, "gateway certificate", selftest.Warn, "chmod 644 "+ca)
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// selfSigned writes a certificate for names and its key.
func selfSigned(t *testing.T, dir string, ends time.Time, names ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends,
		DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	chmod(t, filepath.Join(dir, "cert.pem"), 0o644)
}

func TestCheckCertificateFile(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name   string
		lasts  time.Duration
		names  []string
		public string
		status selftest.Status
		says   string
	}{
		{"for localhost", year, []string{"localhost"}, "", selftest.OK, "valid for localhost, 127.0.0.1 until "},
		{"that the bot does not know", year, []string{"localhost"}, "", selftest.OK, "NODE_EXTRA_CA_CERTS (Node)"},
		{"ends soon", 29 * 24 * time.Hour, []string{"localhost"}, "", selftest.Warn, "renew it"},
		{"has ended", -time.Hour, []string{"localhost"}, "", selftest.Fail, "it ended on "},
		{"for another name than the public one", year, []string{"localhost"}, "https://relay.example", selftest.Fail, "no name by which a bot may know the gateway"},
		{"for the public name", year, []string{"relay.example"}, "https://relay.example", selftest.OK, "relay.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withTLS(t, "file")
			dir := t.TempDir()
			selfSigned(t, dir, time.Now().Add(tt.lasts), tt.names...)
			t.Setenv("GATEWAY_CERT_FILE", filepath.Join(dir, "cert.pem"))
			t.Setenv("GATEWAY_KEY_FILE", filepath.Join(dir, "key.pem"))
			t.Setenv("GATEWAY_PUBLIC_URL", tt.public)
			_, found := checked(t)
			wants(t, found, "gateway certificate", tt.status, tt.says)
		})
	}
}
