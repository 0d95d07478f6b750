package redislink

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
)

// pems is an authority, a client's certificate of it, and a file that is neither.
type pems struct {
	authority     *redistest.Authority
	ca, cert, key string
	noPEM         string
}

func newPEMs(t *testing.T) pems {
	t.Helper()
	dir := t.TempDir()
	a, err := redistest.NewAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := pems{authority: a, ca: a.File(), noPEM: filepath.Join(dir, "text")}
	if p.cert, p.key, err = a.Issue("client", ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.noPEM, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// query is the parameters of a URL, from names and values in turn.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}

// ping does what a client does first, and returns the error as it is shown.
func ping(t *testing.T, text string) error {
	t.Helper()
	o, err := ParseURL(text)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewUniversalClient(Options(o, 2, 10*time.Second, 10*time.Second))
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Explain(c.Set(ctx, "k", "v", 0).Err(), Words{TLS: true})
}

func TestTLSWithCertificates(t *testing.T) {
	t.Parallel()
	p := newPEMs(t)
	own := query("ca_file", p.ca, "cert_file", p.cert, "key_file", p.key)
	open := redistest.StartTLS(t, p.authority, "--tls-auth-clients", "no")
	// In TLS 1.2 a refused client hears why; in 1.3 the connection may be gone before.
	mutual := redistest.StartTLS(t, p.authority, "--tls-protocols", "TLSv1.2")
	other := newPEMs(t)
	for _, tt := range []struct{ name, url, says string }{
		{"authority alone", open.URL() + query("ca_file", p.ca), ""},
		{"own certificate", mutual.URL() + own, ""},
		{"unchecked", open.URL() + "?skip_verify=true", ""},
		{"unknown authority", open.URL(), "ca_file"},
		{"authority of others", open.URL() + query("ca_file", other.ca), "ca_file"},
		{"no certificate of its own", mutual.URL() + query("ca_file", p.ca), "cert_file"},
		{"certificate of another authority",
			mutual.URL() + query("ca_file", p.ca, "cert_file", other.cert, "key_file", other.key), "cert_file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := ping(t, tt.url)
			if tt.says == "" && err != nil {
				t.Error(err)
			}
			if tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("got %v, want %q in it", err, tt.says)
			}
		})
	}
}

func TestURLWithWrongFilesNamesParameterAndFile(t *testing.T) {
	p := newPEMs(t)
	missing := filepath.Join(t.TempDir(), "missing.pem")
	for _, tt := range []struct {
		name  string
		query string
		says  []string
	}{
		{"certificate without a key", query("cert_file", p.cert), []string{"cert_file", "key_file"}},
		{"key without a certificate", query("key_file", p.key), []string{"cert_file", "key_file"}},
		{"no such authority", query("ca_file", missing), []string{"ca_file", missing, "no such file"}},
		{"no such certificate", query("cert_file", missing, "key_file", p.key), []string{"cert_file", missing}},
		{"no such key", query("cert_file", p.cert, "key_file", missing), []string{"key_file", missing}},
		{"a folder", query("ca_file", filepath.Dir(p.ca)), []string{"ca_file", filepath.Dir(p.ca)}},
		{"no PEM in the authority", query("ca_file", p.noPEM), []string{"ca_file", p.noPEM, "PEM"}},
		{"no PEM in the certificate", query("cert_file", p.noPEM, "key_file", p.key), []string{"cert_file", p.noPEM, "PEM"}},
		{"no PEM in the key", query("cert_file", p.cert, "key_file", p.noPEM), []string{"key_file", p.noPEM, "PEM"}},
		{"a key where the authority is wanted", query("ca_file", p.key), []string{"ca_file", p.key}},
		{"another certificate's key", query("cert_file", p.ca, "key_file", p.key), []string{"key_file", p.key}},
	} {
		for _, form := range []string{"rediss://:pw@h", "rediss+sentinel://:pw@h/m", "rediss+cluster://:pw@h"} {
			_, err := ParseURL(form + tt.query)
			if err == nil {
				t.Errorf("%s, %s: got no error", tt.name, form)
				continue
			}
			for _, part := range append(tt.says, "redis URL") {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s, %s: got %q, want %q in it", tt.name, form, err, part)
				}
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "pw@") {
				t.Errorf("%s: quotes a secret: %q", tt.name, err)
			}
		}
	}
	if _, err := ParseURL("redis://h" + query("ca_file", p.ca)); err == nil || !strings.Contains(err.Error(), "rediss://") {
		t.Errorf("got %v without TLS, want rediss:// in it", err)
	}
}
