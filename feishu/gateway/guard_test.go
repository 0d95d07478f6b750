package gateway

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/feishu/webhook"
)

// ask makes a request of the gateway with a Host header of its own and further headers.
func (r *rig) ask(method, path, host string, header http.Header) (status int, body string) {
	r.t.Helper()
	const evil = `{"app_id":"cli_evil","app_secret":"s","AppID":"cli_evil","AppSecret":"s"}`
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(evil))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host, req.Header = host, header
	return r.do(req)
}

// gatewayRoutes are one request of each kind that the gateway serves.
var gatewayRoutes = []struct {
	method, path string
	header       http.Header
}{
	{"POST", "/open-apis/auth/v3/tenant_access_token/internal", nil},
	{"POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", nil},
	{"GET", "/open-apis/im/v1/messages/om_1", nil},
	{"OPTIONS", "/open-apis/im/v1/messages", nil},
	{"POST", "/callback/ws/endpoint", nil},
	{"POST", "//callback//ws/endpoint", nil},
	{"GET", "/ws?device_id=d", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}},
	{"GET", "/webhook/event?device_id=d", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}},
	{"POST", "/webhook/other", nil},
	{"GET", "/anything", nil},
}

// A page of somebody else, or one whose name was made to resolve to the gateway, must neither
// reach Feishu through it nor decide which app it serves.
func TestWebPagesAreRefused(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Book.Forget()
		o.Webhook = &webhook.Options{BotURL: "http://127.0.0.1:1", VerificationToken: "token"}
	})
	ours := strings.TrimPrefix(r.url, "http://")
	foreign := map[string]struct {
		host   string
		header http.Header
	}{
		"a rebound name":                          {"evil.example", nil},
		"the same with the port":                  {"evil.example:" + mustURL(r.url).Port(), http.Header{"Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"same-origin"}}},
		"a name below localhost":                  {"localhost.evil.example", nil},
		"an address in a name":                    {"127.0.0.1.evil.example", nil},
		"another address":                         {"192.0.2.1:80", nil},
		"another origin":                          {ours, http.Header{"Origin": {"https://evil.example"}}},
		"another port":                            {ours, http.Header{"Origin": {"http://127.0.0.1:1"}}},
		"a page without origin":                   {ours, http.Header{"Origin": {"null"}}},
		"a page elsewhere":                        {ours, http.Header{"Sec-Fetch-Site": {"cross-site"}}},
		"a page at a sibling":                     {ours, http.Header{"Sec-Fetch-Site": {"same-site"}}},
		"another origin that says it is the same": {ours, http.Header{"Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"same-origin"}}},
		"another origin that says it is none":     {ours, http.Header{"Origin": {"http://evil.example"}, "Sec-Fetch-Site": {"none"}}},
		"two origins":                             {ours, http.Header{"Origin": {r.url, "http://evil.example"}}},
		"two ports":                               {"evil:1:2", nil},
		"two hosts":                               {"localhost,evil", nil},
		"a certificate's name without TLS":        {"gateway.example.com", nil},
	}
	for name, f := range foreign {
		for _, route := range gatewayRoutes {
			header := http.Header{}
			maps.Copy(header, route.header)
			maps.Copy(header, f.header)
			if status, body := r.ask(route.method, route.path, f.host, header); status != http.StatusForbidden {
				t.Errorf("%s, %s %s: got %d %s, want 403", name, route.method, route.path, status, body)
			}
		}
	}
	if got := r.up.seen(); len(got) > 0 {
		t.Errorf("Feishu was asked %s %s", got[0].Method, got[0].URI)
	}
	if app := r.book.Self().AppID; app != "" {
		t.Errorf("the gateway serves %s now", app)
	}
	if _, body := r.ask("GET", "/x", "relay.ns.svc.cluster.local:8788", http.Header{}); !strings.Contains(body, "GATEWAY_PUBLIC_URL=http://relay.ns.svc.cluster.local:8788") {
		t.Errorf("the answer to a name with dots does not say what to set: %s", body)
	}
}

// What SDKs, other clients and reverse proxies send to the gateway.
func TestOwnNamesAreServed(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.PublicURL = mustURL("https://Relay.example.com:8443")
	})
	r.up.say("GET /x", 200, "{}")
	ours := strings.TrimPrefix(r.url, "http://")
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]:8788", "[::ffff:127.0.0.1]:1", "relay", "relay-a:443", "my_relay.:80",
		"host.docker.internal:8788", "relay.example.com", "relay.example.com:8443", "relay.example.com.:1", "open.feishu.cn", "open.larksuite.com:443",
		"open.feishu.cn:8788"} {
		if status, body := r.ask("GET", "/x", host, http.Header{}); status != http.StatusOK {
			t.Errorf("%s: got %d %s", host, status, body)
		}
	}
	for name, header := range map[string]http.Header{
		"a client that names its own origin":    {"Origin": {r.url}},
		"one behind a proxy that names another": {"Origin": {"https://relay.example.com:8443"}},
		"a browser's address bar":               {"Sec-Fetch-Site": {"none"}},
		"Node's fetch":                          {"Sec-Fetch-Mode": {"cors"}},
	} {
		if status, body := r.ask("GET", "/x", ours, header); status != http.StatusOK {
			t.Errorf("%s: got %d %s", name, status, body)
		}
	}
}

// An address is the gateway's own where a connection reached it there. Over TLS a browser has checked the certificate
// for the name; HTTP/1.0 has no Host.
func TestNamesOfOtherConnections(t *testing.T) {
	r := newRig(t, nil)
	for name, c := range map[string]struct {
		host  string
		tls   *tls.ConnectionState
		minor int
		want  bool
	}{
		"the address that was reached": {"198.51.100.7:8788", nil, 1, true},
		"another one":                  {"198.51.100.8:8788", nil, 1, false},
		"one of version 6":             {"[2001:db8::1]:8788", nil, 1, false},
		"over TLS":                     {"gateway.example.com:8788", &tls.ConnectionState{}, 1, true},
		"none in HTTP/1.0":             {"", nil, 0, true},
		"none in HTTP/1.1":             {"", nil, 1, false},
	} {
		req := newRequest("GET", "/x", "")
		req.Host, req.TLS, req.ProtoMajor, req.ProtoMinor = c.host, c.tls, 1, c.minor
		if got := r.ownHost(req, &net.TCPAddr{IP: net.ParseIP("198.51.100.7"), Port: 8788}); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// Feishu calls the webhook by its public name, which is not the gateway's to know; pages are
// refused there, too.
func TestTheWebhookIsServedUnderAnyName(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Webhook = &webhook.Options{BotURL: "http://127.0.0.1:1", VerificationToken: "token"}
	})
	for name, handler := range map[string]http.Handler{"the gateway": r.Handler(), "an address of its own": r.WebhookHandler()} {
		for origin, want := range map[string]string{"": "not proven", "https://evil.example": "web pages"} {
			w, req := httptest.NewRecorder(), httptest.NewRequest("POST", "http://hooks.example.com/webhook/event", strings.NewReader("{}"))
			if origin != "" {
				req.Header.Set("Origin", origin)
			}
			if handler.ServeHTTP(w, req); !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s, a post of %q: got %d %s", name, origin, w.Code, w.Body)
			}
		}
	}
}
