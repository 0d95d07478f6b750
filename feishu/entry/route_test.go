package entry_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"feishu-relay/feishu/entry"
	"feishu-relay/internal/attempts"
)

func contextFor(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func TestBaseURL(t *testing.T) {
	for _, mode := range []string{entry.ModeOff, entry.ModeAuto} {
		t.Run(mode, func(t *testing.T) {
			r := start(t, entry.Options{Mode: mode, DataDir: t.TempDir(), Loopback: true})
			c := client(t, "", nil)
			wantBody(t, c, "http://"+r.addr+"/open-apis/im?x=%20&y", "POST /open-apis/im?x=%20&y|host="+r.addr, "reached=http://"+r.addr+"|", "body=hello")
			wantBody(t, c, "http://localhost:"+r.port()+"/", "reached=http://localhost:"+r.port()+"|")
			if mode == entry.ModeOff {
				return
			}
			c = client(t, "", r.trusting())
			wantBody(t, c, "https://localhost:"+r.port()+"/a", "POST /a|", "reached=https://localhost:"+r.port()+"|")
			wantBody(t, c, "https://"+r.addr+"/a", "reached=https://"+r.addr+"|")
		})
	}
}

// Node's SDK doubles the slash of a base URL that ends in one (docs/feishu.md 7.1),
// and no path is tidied up on its way.
func TestPathsPassAsTheyAre(t *testing.T) {
	r := start(t, entry.Options{Loopback: true})
	for _, uri := range []string{"//callback/ws/endpoint", "/a/../b", "/a//b/./", "/a%2Fb?c=%2F&&d;e", "/?", "/%e4%bd%a0"} {
		_, body := raw(t, r.addr, "POST "+uri+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if !strings.HasPrefix(body, "POST "+uri+"|host=x|") {
			t.Errorf("%s: got %q", uri, body)
		}
	}
	if _, body := raw(t, r.addr, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.HasPrefix(body, "OPTIONS *|") {
		t.Errorf("OPTIONS *: got %q", body)
	}
	if _, body := raw(t, r.addr, "GET / HTTP/1.0\r\n\r\n"); !strings.Contains(body, "reached=http://"+r.addr+"|") {
		t.Errorf("without a host: got %q", body)
	}
}

func TestProxyToFeishuIsOpened(t *testing.T) {
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir()})
	for name, proxy := range map[string]string{"plain": "http://" + r.addr, "over TLS": "https://localhost:" + r.port()} {
		t.Run(name, func(t *testing.T) {
			c := client(t, proxy, r.trusting())
			for _, host := range []string{"open.feishu.cn", "open.larksuite.com"} {
				wantBody(t, c, "https://"+host+"/open-apis/im%2F?x", "POST /open-apis/im%2F?x|host="+host+"|", "|reached=http://"+r.addr+"|", "body=hello")
				wantBody(t, c, "http://"+host+"/open-apis/im%2F?x", "POST /open-apis/im%2F?x|host="+host+"|", "|reached=http://"+r.addr+"|")
			}
			wantBody(t, c, "https://OPEN.feishu.cn:443/", "|host=OPEN.feishu.cn:443|")
		})
	}
	if got := r.counted("opened"); got == 0 {
		t.Error("nothing was counted as opened")
	}
}

func TestConnectAtPort80IsPlainInside(t *testing.T) {
	r := start(t, entry.Options{})
	c := dialTCP(t, r.addr)
	fmt.Fprint(c, "CONNECT open.feishu.cn:80 HTTP/1.1\r\nHost: open.feishu.cn:80\r\n\r\nPOST //x HTTP/1.1\r\nHost: open.feishu.cn\r\nContent-Length: 0\r\n\r\n")
	in := reader(c)
	if res, _ := answer(t, in, true); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	_, body := answer(t, in, false)
	if want := "POST //x|host=open.feishu.cn|url=//x|reached=http://" + r.addr + "|"; !strings.HasPrefix(body, want) {
		t.Errorf("got %q, want %q", body, want)
	}
}

// Older axios sends this where HTTPS_PROXY is set.
func TestAbsoluteForm(t *testing.T) {
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir()})
	for uri, want := range map[string]string{
		"https://open.feishu.cn/open-apis/a%2Fb/c?x=%20&y=1": "/open-apis/a%2Fb/c?x=%20&y=1",
		"https://open.feishu.cn:443//callback":               "//callback",
		"http://open.larksuite.com?a=/b":                     "/?a=/b",
		"https://Open.Feishu.CN":                             "/",
		"http://user:pw@open.feishu.cn/a":                    "/a",
		"http://" + r.addr + "/own":                          "/own",
	} {
		_, body := raw(t, r.addr, "POST "+uri+" HTTP/1.1\r\nHost: open.feishu.cn\r\nProxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok")
		if !strings.HasPrefix(body, "POST "+want+"|") || !strings.Contains(body, "|url="+want+"|") {
			t.Errorf("%s: got %q, want %s", uri, body, want)
		}
		if !strings.HasSuffix(body, "|reached=http://"+r.addr+"|proxy=|body=ok") {
			t.Errorf("%s: got %q", uri, body)
		}
	}
	for request, status := range map[string]int{
		"GET https://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n":     http.StatusNotImplemented,
		"GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n":      http.StatusNotImplemented,
		"GET ftp://open.feishu.cn/ HTTP/1.1\r\nHost: open.feishu.cn\r\n\r\n": http.StatusBadRequest,
		"GET http:open.feishu.cn HTTP/1.1\r\nHost: open.feishu.cn\r\n\r\n":   http.StatusBadRequest,
		"CONNECT open.feishu.cn HTTP/1.1\r\nHost: open.feishu.cn\r\n\r\n":    http.StatusBadRequest,
		"CONNECT open.feishu.cn:x HTTP/1.1\r\nHost: open.feishu.cn\r\n\r\n":  http.StatusBadRequest,
		"CONNECT :443 HTTP/1.1\r\nHost: x\r\n\r\n":                           http.StatusBadRequest,
		"CONNECT /rpc HTTP/1.1\r\nHost: x\r\n\r\n":                           http.StatusBadRequest,
	} {
		if res, body := raw(t, r.addr, request); res.StatusCode != status {
			t.Errorf("%q: got %d %s, want %d", request, res.StatusCode, body, status)
		}
	}
}

func TestOtherHostsAreTunnelledUnseen(t *testing.T) {
	other, addr := origin(t)
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir(), Loopback: true, Allow: []string{addr}})
	c := client(t, "http://"+r.addr, other.Client().Transport.(*http.Transport).TLSClientConfig)
	res, err := c.Get(other.URL)
	if err != nil {
		t.Fatal(err) // also when the certificate is not the origin's
	}
	res.Body.Close()
	if got, want := res.TLS.PeerCertificates[0], other.Certificate(); !got.Equal(want) {
		t.Errorf("got the certificate of %s, want the origin's own", got.Subject)
	}
	if r.counted("tunnel") != 1 || r.counted("opened") != 0 {
		t.Errorf("counted %v", r.events)
	}
}

func TestBeyondLoopbackTunnelsWantTheToken(t *testing.T) {
	const token = "s3cret:with/colon"
	_, addr := origin(t)
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir(), Token: token, Allow: []string{addr}})
	noToken := start(t, entry.Options{Allow: []string{addr}})
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	for _, tt := range []struct {
		name, header string
		status       int
	}{
		{"none", "", 407},
		{"the token as Basic", basic("relay:" + token), 200},
		{"the token as Bearer", "Bearer " + token, 200},
		{"lower case", "bearer " + token, 200},
		{"another token", basic("relay:other"), 407},
		{"no password", basic("relay"), 407},
		{"not base64", "Basic ?", 407},
		{"another scheme", "Digest " + token, 407},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request := "CONNECT " + addr + " HTTP/1.1\r\nHost: " + addr + "\r\n"
			if tt.header != "" {
				request += "Proxy-Authorization: " + tt.header + "\r\n"
			}
			res, body := raw(t, r.addr, request+"\r\n")
			if res.StatusCode != tt.status {
				t.Errorf("got %d %s, want %d", res.StatusCode, body, tt.status)
			}
			if res.StatusCode == 407 && res.Header.Get("Proxy-Authenticate") == "" {
				t.Error("no Proxy-Authenticate")
			}
			if res, _ := raw(t, noToken.addr, request+"\r\n"); res.StatusCode != 407 {
				t.Errorf("where no token is set: got %d, want 407", res.StatusCode)
			}
		})
	}
	if strings.Contains(r.log.String(), "s3cret") {
		t.Error("the token is in the log")
	}
}

// Guesses at the token are answered 429 in the end, and the right one is let in.
func TestWrongTokensOfTunnelsAreCounted(t *testing.T) {
	_, addr := origin(t)
	r := start(t, entry.Options{Token: "token", Allow: []string{addr}})
	ask := func(header string) *http.Response {
		res, _ := raw(t, r.addr, "CONNECT "+addr+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n")
		return res
	}
	got := map[int]int{}
	for range 2 * attempts.PerMinute {
		got[ask("").StatusCode]++ // as clients ask first
	}
	for i := range 100 {
		res := ask(fmt.Sprintf("Proxy-Authorization: Bearer guess%d\r\n", i))
		if got[res.StatusCode]++; (res.StatusCode == http.StatusTooManyRequests) != (res.Header.Get("Retry-After") != "") {
			t.Fatalf("got %s with %v", res.Status, res.Header)
		}
	}
	if got[407] < 3*attempts.PerMinute || got[429] == 0 || got[407]+got[429] != 100+2*attempts.PerMinute {
		t.Errorf("got %v", got)
	}
	if res := ask("Proxy-Authorization: Bearer token\r\n"); res.StatusCode != http.StatusOK {
		t.Errorf("the right one: got %s", res.Status)
	}
}

// The URL of the WebSocket that a proxied bot is given names the entry itself,
// and a bot that sends that through its proxy too needs no token.
func TestOurOwnAddressIsOpenedToo(t *testing.T) {
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir()})
	c := client(t, "http://"+r.addr, r.trusting())
	wantBody(t, c, "https://"+r.addr+"/", "POST /|")
	wantBody(t, c, "https://localhost:"+r.port()+"/", "reached=http://"+r.addr+"|")
	wantBody(t, c, "http://"+r.addr+"/", "POST /|")
	inside := dialTCP(t, r.addr)
	in := reader(inside)
	for range 2 {
		fmt.Fprintf(inside, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", r.addr)
		res, _ := answer(t, in, true)
		if res.StatusCode == http.StatusNotImplemented {
			return
		}
	}
	t.Error("a tunnel inside of a tunnel was opened")
}

func TestWithoutCertificatesFeishuPassesUnseen(t *testing.T) {
	other, addr := origin(t)
	r := start(t, entry.Options{Allow: []string{addr}, Open: func(host string) bool { return host == addr }})
	c := client(t, "http://"+r.addr, other.Client().Transport.(*http.Transport).TLSClientConfig)
	for range 2 {
		wantBody(t, c, other.URL, "origin")
		c.CloseIdleConnections()
	}
	if got := strings.Count(r.log.String(), "passes unseen"); got != 1 {
		t.Errorf("said %d times that it passes unseen, want once:\n%s", got, r.log)
	}
}

func TestTLSToAPlainPortIsRefusedWithAnAlert(t *testing.T) {
	r := start(t, entry.Options{})
	for range 2 {
		_, err := tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true})
		if err == nil || !strings.Contains(err.Error(), "handshake failure") {
			t.Errorf("got %v", err)
		}
	}
	if got := strings.Count(r.log.String(), "GATEWAY_TLS=auto"); got != 1 {
		t.Errorf("said %d times, want once:\n%s", got, r.log)
	}
}
