package entry_test

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu/entry"
	"feishu-relay/internal/test/childtest"
)

func open(t *testing.T, dir string, names ...string) *entry.Entry {
	t.Helper()
	e, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: dir, Names: names, Handler: http.HandlerFunc(said)})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func parse(t *testing.T, data []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(data)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one PEM block: %q", data)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// leafFor is the certificate that a client which names name is shown.
func leafFor(t *testing.T, e *entry.Entry, name string) *x509.Certificate {
	t.Helper()
	cert, err := e.Certificate(&tls.ClientHelloInfo{ServerName: name})
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf
}

// verifyChain checks a leaf as a client does that trusts ca.
func verifyChain(ca []byte, leaf *x509.Certificate, name string) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name, CurrentTime: time.Now()})
	return err
}

func TestTheAuthorityAndItsRights(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	e := open(t, dir)
	for path, want := range map[string]os.FileMode{"ca.pem": 0o644, "private": 0o700, "private/ca-key.pem": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s: got %o, want %o", path, got, want)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "ca.pem")); err != nil || !bytes.Equal(data, e.CA()) {
		t.Errorf("the file is not what CA returns: %v", err)
	}
	cert := parse(t, e.CA())
	if !cert.IsCA || !cert.MaxPathLenZero || !cert.PermittedDNSDomainsCritical ||
		!strings.HasPrefix(cert.Subject.CommonName, "feishu-relay CA ") {
		t.Errorf("got %+v", cert.Subject)
	}
	if life := cert.NotAfter.Sub(cert.NotBefore); life < entry.CALife {
		t.Errorf("it lives %s", life)
	}
	if again := open(t, dir); !bytes.Equal(again.CA(), e.CA()) {
		t.Error("a second start made another CA")
	}
}

func TestLeaves(t *testing.T) {
	e := open(t, t.TempDir(), "Gateway.Example.", "10.1.2.3", "")
	for _, name := range []string{"localhost", "open.feishu.cn", "open.larksuite.com", "gateway.example", "127.0.0.1",
		"::1", "10.1.2.3"} {
		for _, asked := range []string{name, ""} {
			leaf := leafFor(t, e, asked)
			if err := verifyChain(e.CA(), leaf, name); err != nil {
				t.Errorf("%s, asked for %q: %v", name, asked, err)
			}
			if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 91*24*time.Hour {
				t.Errorf("it lives %s", life)
			}
		}
	}
	if got := leafFor(t, e, "localhost").IPAddresses; got != nil {
		t.Errorf("the one for a name has IPs: %v", got)
	}
	if err := verifyChain(e.CA(), leafFor(t, e, "example.com"), "example.com"); err == nil {
		t.Error("it signed for example.com")
	}
}

// What a thief of the key can do with it.
func TestTheAuthorityMaySignForItsNamesOnly(t *testing.T) {
	e := open(t, t.TempDir(), "gateway.example")
	for name, allowed := range map[string]bool{
		"open.feishu.cn": true, "gateway.example": true, "127.0.0.2": true,
		"example.com": false, "feishu.cn": false, "10.0.0.1": false, "xopen.feishu.cn": false, "::2": false,
	} {
		leaf, err := e.Steal(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := verifyChain(e.CA(), leaf.Leaf, name); (err == nil) != allowed {
			t.Errorf("%s: got %v, want allowed: %v", name, err, allowed)
		}
	}
}

// Sidecars with other names share a folder: the CA grows, and who trusts it as
// it was goes on as before.
func TestFurtherNamesKeepTheKey(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, "a.example")
	second := open(t, dir, "b.example", "10.0.0.2")
	if bytes.Equal(first.CA(), second.CA()) {
		t.Fatal("the CA does not know the new name")
	}
	for name, e := range map[string]*entry.Entry{"a.example": first, "b.example": second, "10.0.0.2": second,
		"open.feishu.cn": first, "localhost": second} {
		if err := verifyChain(second.CA(), leafFor(t, e, name), name); err != nil {
			t.Errorf("%s, with the new file: %v", name, err)
		}
	}
	for _, name := range []string{"open.feishu.cn", "localhost", "127.0.0.1"} {
		if err := verifyChain(first.CA(), leafFor(t, second, name), name); err != nil {
			t.Errorf("%s, with the earlier file: %v", name, err)
		}
	}
	if third := open(t, dir); !bytes.Equal(third.CA(), second.CA()) {
		t.Error("names that are not asked for any more were taken away")
	}
}

func TestAnEndingAuthorityIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		first := open(t, dir, "a.example")
		time.Sleep(entry.CALife - entry.CARenew - time.Hour)
		if again := open(t, dir, "a.example"); !bytes.Equal(first.CA(), again.CA()) {
			t.Error("made anew too early")
		}
		time.Sleep(2 * time.Hour)
		var log bytes.Buffer
		second, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: dir, Handler: http.HandlerFunc(said),
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(first.CA(), second.CA()) || !strings.Contains(log.String(), "was renewed") {
			t.Errorf("not made anew, or not said: %s", &log)
		}
		for _, ca := range [][]byte{first.CA(), second.CA()} {
			if err := verifyChain(ca, leafFor(t, second, "localhost"), "localhost"); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(entry.CARenew)
		if err := verifyChain(first.CA(), leafFor(t, second, "localhost"), "localhost"); err == nil {
			t.Error("the first one never ends")
		}
		if err := verifyChain(second.CA(), leafFor(t, second, "localhost"), "localhost"); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsBrokenIsNotOverwritten(t *testing.T) {
	whole := t.TempDir()
	other := t.TempDir()
	open(t, whole)
	open(t, other)
	for name, tt := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"a torn certificate": {func(dir string) error { return os.Truncate(dir+"/ca.pem", 100) }, "do not match"},
		"an empty key": {func(dir string) error { return os.Truncate(dir+"/private/ca-key.pem", 0) },
			"do not match"},
		"no key": {func(dir string) error { return os.Remove(dir + "/private/ca-key.pem") }, "restore it"},
		"another key": {func(dir string) error {
			return copyFile(other+"/private/ca-key.pem",
				dir+"/private/ca-key.pem")
		}, "do not match"},
		"another certificate": {func(dir string) error { return copyFile(other+"/ca.pem", dir+"/ca.pem") },
			"do not match"},
		"a certificate of a leaf": {leafAsCA, "not a CA certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			if err := tt.change(dir); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			_, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: dir, Handler: http.HandlerFunc(said)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
			if after := contents(t, dir); after != before {
				t.Error("something was overwritten")
			}
		})
	}
}

func leafAsCA(dir string) error {
	cert, key := selfSigned("localhost")
	if err := os.WriteFile(dir+"/ca.pem", cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(dir+"/private/ca-key.pem", key, 0o600)
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"ca.pem", "private/ca-key.pem"} {
		data, _ := os.ReadFile(filepath.Join(dir, name))
		all.WriteString(name + ":" + string(data))
	}
	return all.String()
}

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]func([]string) error{"authority": func(args []string) error {
		e, err := entry.New(entry.Options{Mode: entry.ModeAuto, DataDir: args[0], Handler: http.HandlerFunc(said)})
		if err == nil {
			fmt.Printf("%x\n", e.CA())
		}
		return err
	}})
}

func TestOneAuthorityForManyProcesses(t *testing.T) {
	dir := t.TempDir()
	var all []*childtest.Child
	for range 8 {
		all = append(all, childtest.Start(t, "authority", dir))
	}
	first := ""
	for _, c := range all {
		ca := c.Line()
		if first = cmp.Or(first, ca); ca != first {
			t.Errorf("got another CA: %q and %q", ca, first)
		}
		c.Wait()
	}
}

// An untrusted certificate is said with its mend, whichever way a client ends.
func TestDistrustIsSaid(t *testing.T) {
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir()})
	if _, err := tls.Dial("tcp", r.addr, &tls.Config{ServerName: "localhost"}); err == nil {
		t.Fatal("trusted by nobody, and accepted")
	}
	r.log.await(t, "refused the certificate")
	// As Node does it: the handshake succeeds, and then nothing is asked.
	c, err := tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true, ServerName: "elsewhere"})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	r.log.await(t, "without a request")
	if log := r.log.String(); !strings.Contains(log, "NODE_EXTRA_CA_CERTS") ||
		!strings.Contains(log, "GATEWAY_PUBLIC_URL") {
		t.Errorf("no mend is said:\n%s", log)
	}
	wantBody(t, client(t, "", r.trusting()), "https://localhost:"+r.port(), "POST /")
}
