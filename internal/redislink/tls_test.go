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

// authority makes an authority with a client's certificate.
func authority(t *testing.T) (a *redistest.Authority, cert, key string) {
	t.Helper()
	a, err := redistest.NewAuthority(t.TempDir())
	if err == nil {
		cert, key, err = a.Issue("client", "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return a, cert, key
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
	a, cert, key := authority(t)
	other, otherCert, otherKey := authority(t)
	open := redistest.StartTLS(t, a, "--tls-auth-clients", "no")
	// In TLS 1.2 a refused client hears why; in 1.3 the connection may be gone before.
	mutual := redistest.StartTLS(t, a, "--tls-protocols", "TLSv1.2")
	for name, tt := range map[string]struct{ url, says string }{
		"authority alone":           {open.URL() + query("ca_file", a.File()), ""},
		"own certificate":           {mutual.URL() + query("ca_file", a.File(), "cert_file", cert, "key_file", key), ""},
		"unchecked":                 {open.URL() + "?skip_verify=true", ""},
		"unknown authority":         {open.URL(), "ca_file"},
		"authority of others":       {open.URL() + query("ca_file", other.File()), "ca_file"},
		"no certificate of its own": {mutual.URL() + query("ca_file", a.File()), "cert_file"},
		"certificate of others":     {mutual.URL() + query("ca_file", a.File(), "cert_file", otherCert, "key_file", otherKey), "cert_file"},
	} {
		err := ping(t, tt.url)
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: got %v, want %q in it", name, err, tt.says)
		}
	}
}

func TestURLWithWrongFilesNamesParameterAndFile(t *testing.T) {
	a, cert, key := authority(t)
	missing, noPEM := filepath.Join(t.TempDir(), "missing.pem"), filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(noPEM, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		query string
		says  []string
	}{
		{query("cert_file", cert), []string{"cert_file", "key_file"}},
		{query("key_file", key), []string{"cert_file", "key_file"}},
		{query("ca_file", missing), []string{"ca_file", missing, "no such file"}},
		{query("cert_file", missing, "key_file", key), []string{"cert_file", missing, "no such file"}},
		{query("cert_file", cert, "key_file", missing), []string{"key_file", missing, "no such file"}},
		{query("ca_file", filepath.Dir(a.File())), []string{"ca_file", filepath.Dir(a.File())}},
		{query("ca_file", noPEM), []string{"ca_file", noPEM, "PEM"}},
		{query("cert_file", noPEM, "key_file", key), []string{"cert_file", noPEM, "PEM"}},
		{query("cert_file", cert, "key_file", noPEM), []string{"key_file", noPEM, "PEM"}},
		{query("ca_file", key), []string{"ca_file", key}},
		{query("cert_file", a.File(), "key_file", key), []string{"key_file", key}},
	} {
		for _, form := range []string{"rediss://:pw@h", "rediss+sentinel://:pw@h/m", "rediss+cluster://:pw@h"} {
			_, err := ParseURL(form + tt.query)
			for _, part := range append(tt.says, "redis URL") {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Fatalf("%s%s: got %v, want %q in it", form, tt.query, err, part)
				}
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "pw@") {
				t.Errorf("%s%s: quotes a secret: %q", form, tt.query, err)
			}
		}
	}
	if _, err := ParseURL("redis://h" + query("ca_file", a.File())); err == nil || !strings.Contains(err.Error(), "rediss://") {
		t.Errorf("got %v without TLS, want rediss:// in it", err)
	}
}
