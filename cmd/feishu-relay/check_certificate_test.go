package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu/entry"
	"feishu-relay/internal/loopback"
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

// tree lists the files below dir, with their rights and times.
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files = append(files, path+" "+info.Mode().String()+" "+info.ModTime().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestCheckCertificateAuto(t *testing.T) {
	data := withTLS(t, "auto")
	before := tree(t, data)
	_, found := checked(t)
	wants(t, found, "gateway certificate", statusOK, "ca.pem will be made at the first start; then the bot needs NODE_EXTRA_CA_CERTS")
	if diff := cmp.Diff(before, tree(t, data)); diff != "" {
		t.Errorf("the check changed the folder (-before +after):\n%s", diff)
	}

	stop := beside(t, versionText())
	ca := filepath.Join(data, "ca.pem")
	const valid = "valid for localhost, 127.0.0.1, open.feishu.cn, open.larksuite.com until "
	code, found := checked(t)
	wants(t, found, "gateway certificate", statusOK, valid)
	wants(t, found, "gateway certificate", statusOK, "REQUESTS_CA_BUNDLE (Python) set to "+ca)
	wants(t, found, "gateway", statusWarn, "no bot is connected")
	if code != 0 {
		t.Errorf("status %d: %v", code, found)
	}
	key := filepath.Join(data, "private", "ca-key.pem")
	keep := map[string][]byte{}
	for _, path := range []string{ca, key} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		keep[path] = text
	}

	// The files are another CA's than the sidecar has in memory.
	for _, path := range []string{ca, key} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: data, Handler: http.NotFoundHandler()}); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t)
	wants(t, found, "gateway certificate", statusFail, "restart the sidecar, which has another "+ca)
	for path, text := range keep {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop()

	// Without a sidecar the same is shown on another port.
	chmod(t, ca, 0o644)
	chmod(t, key, 0o600)
	before = tree(t, data)
	_, found = checked(t)
	wants(t, found, "gateway certificate", statusOK, valid)
	if len(found["gateway certificate"]) != 1 {
		t.Errorf("got %+v", found["gateway certificate"])
	}
	if diff := cmp.Diff(before, tree(t, data)); diff != "" {
		t.Errorf("the check changed the folder (-before +after):\n%s", diff)
	}

	chmod(t, ca, 0o600)
	chmod(t, key, 0o644)
	_, found = checked(t)
	wants(t, found, "gateway certificate", statusWarn, "chmod 644 "+ca)
	wants(t, found, "gateway certificate", statusWarn, "chmod 600 "+key)
	t.Setenv("GATEWAY_PUBLIC_URL", "https://relay.example")
	_, found = checked(t)
	wants(t, found, "gateway certificate", statusWarn, "may not sign for relay.example yet")
	t.Setenv("GATEWAY_PUBLIC_URL", "")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	_, found = checked(t)
	wants(t, found, "gateway certificate", statusFail, "or rm "+ca+" "+key)
}

// The running gateway does not take the check for a bot that refuses the certificate.
func TestCheckCertificateLeavesNoTraceInTheLog(t *testing.T) {
	data := withTLS(t, "auto")
	cfg, err := loadConfig()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	asked := 0
	e, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: data, Names: names(&cfg), Loopback: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ })})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Serve(l) }()
	found := shake(t.Context(), &cfg, l.Addr().String(), filepath.Join(data, "ca.pem"), time.Now())
	if err := e.Shutdown(t.Context()); err != nil { // waits for the connections
		t.Error(err)
	}
	<-ended
	if strings.Contains(log.String(), "WARN") || asked > 0 || len(found) != 1 || found[0].Status != statusOK {
		t.Errorf("%d requests went to Feishu, %v, and the log says:\n%s", asked, found, &log)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestCheckCertificateOfASidecarWithout(t *testing.T) {
	withTLS(t, "auto")
	if err := func() error {
		_, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: os.Getenv("DATA_DIR"), Names: []string{"127.0.0.1"}, Handler: http.NotFoundHandler()})
		return err
	}(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GATEWAY_TLS", "off")
	beside(t, versionText())
	t.Setenv("GATEWAY_TLS", "auto")
	_, found := checked(t)
	wants(t, found, "gateway certificate", statusFail, "which may run without GATEWAY_TLS=auto")
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
		status status
		says   string
	}{
		{"for localhost", year, []string{"localhost"}, "", statusOK, "valid for localhost, 127.0.0.1 until "},
		{"that the bot does not know", year, []string{"localhost"}, "", statusOK, "NODE_EXTRA_CA_CERTS (Node)"},
		{"ends soon", endsSoon - time.Hour, []string{"localhost"}, "", statusWarn, "renew it"},
		{"has ended", -time.Hour, []string{"localhost"}, "", statusFail, "it ended on "},
		{"for another name than the public one", year, []string{"localhost"}, "https://relay.example", statusFail, "it is not valid for relay.example"},
		{"for the public name", year, []string{"relay.example"}, "https://relay.example", statusOK, "relay.example"},
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
	t.Run("missing", func(t *testing.T) {
		withTLS(t, "file")
		t.Setenv("GATEWAY_CERT_FILE", "/does/not/exist")
		t.Setenv("GATEWAY_KEY_FILE", "/does/not/exist")
		_, found := checked(t)
		wants(t, found, "gateway certificate", statusFail, "set GATEWAY_CERT_FILE and GATEWAY_KEY_FILE")
	})
}
