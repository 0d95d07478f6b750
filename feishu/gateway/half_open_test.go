package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"feishu-relay/internal/test/netfault"
)

// A connection to Feishu that goes silent, as behind a router that forgot it, carries all of a bot's calls by
// HTTP/2. It is found, and the calls take a new one.
func TestSilentHTTP2Connection(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	path := netfault.Start(t, srv.Listener.Addr().String())
	transport, err := newTransport(&url.URL{Scheme: "https", Host: path.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: "example.com"}
	if checks := transport.HTTP2; checks != nil {
		checks.SendPingTimeout, checks.PingTimeout = 50*time.Millisecond, 50*time.Millisecond
	}
	call := func(limit time.Duration) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+path.Addr(), nil)
		if err != nil {
			return "", err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	if proto, err := call(time.Minute); err != nil || proto != "HTTP/2.0" {
		t.Fatalf("got %q, %v, want an answer by HTTP/2", proto, err)
	}
	path.Silence(true)
	if _, err := call(100 * time.Millisecond); err == nil {
		t.Fatal("a call on a silent path was answered")
	}
	path.Silence(false)
	for end := time.Now().Add(time.Minute); ; {
		_, err := call(time.Second)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the path works again, and no call is answered: %v", err)
		}
	}
}
