package entry_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"feishu-relay/feishu/entry"
)

// selfSigned is a certificate for one name that is valid in this century.
func selfSigned(name string) (certPEM, keyPEM []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Hour),
		NotAfter:     time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames:     []string{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		panic(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	oldCert, oldKey := selfSigned("old.example")
	newCert, newKey := selfSigned("new.example")
	write(t, certFile, oldCert)
	write(t, keyFile, oldKey)
	var log bytes.Buffer
	e, err := entry.New(entry.Options{Mode: entry.ModeFile, CertFile: certFile, KeyFile: keyFile,
		Handler: http.HandlerFunc(said), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if e.CA() != nil {
		t.Error("it has a CA")
	}
	shown := func(want string) {
		t.Helper()
		if got := leafFor(t, e, "any").DNSNames[0]; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	shown("old.example")
	write(t, certFile, newCert)
	shown("old.example") // half of the change is none
	shown("old.example")
	if got := strings.Count(log.String(), "cannot be used"); got != 1 {
		t.Errorf("said %d times, want once: %s", got, &log)
	}
	write(t, keyFile, newKey)
	shown("new.example")
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	shown("new.example")
}

func TestFileModeOpensWhatItsCertificateIsFor(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, key := selfSigned("open.feishu.cn")
	write(t, certFile, cert)
	write(t, keyFile, key)
	_, elsewhere := origin(t)
	r := start(t, entry.Options{Mode: entry.ModeFile, CertFile: certFile, KeyFile: keyFile, Allow: []string{elsewhere},
		Open: func(host string) bool { return host == "open.feishu.cn" || host == elsewhere }})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	c := client(t, "http://"+r.addr, &tls.Config{RootCAs: pool})
	wantBody(t, c, "https://open.feishu.cn/a", "POST /a|")
	c = client(t, "http://"+r.addr, &tls.Config{InsecureSkipVerify: true})
	wantBody(t, c, "https://"+elsewhere, "origin")
}

func TestAFileThatIsNoPair(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cert, _ := selfSigned("a.example")
	_, key := selfSigned("b.example")
	write(t, certFile, cert)
	write(t, keyFile, key)
	if _, err := entry.New(entry.Options{Mode: entry.ModeFile, CertFile: certFile, KeyFile: keyFile, Handler: http.HandlerFunc(said)}); err == nil || !strings.Contains(err.Error(), "do not match") {
		t.Errorf("got %v", err)
	}
}
