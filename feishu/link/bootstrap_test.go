package link_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu/link"
)

// post makes a bootstrap call as it is given.
func (r *rig) post(path, body string, header http.Header) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.front+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(data)
}

const call1 = `{"AppID":"` + app + `","AppSecret":"` + secret + `","ClientAssertion":""}`

func TestTheBootstrapCallPassesAsItCame(t *testing.T) {
	apps := make(chan string, 10)
	r := newRig(t, tcp(t), func(o *link.Options) { o.Bootstrapped = func(id, _ string) { apps <- id } })
	header := http.Header{
		"User-Agent": {"oapi-sdk-python/1.4 channel"}, "Locale": {"zh"}, "Content-Type": {"application/json"},
		"X-Two": {"a", "b"}, "Authorization": {"Bearer x"},
	}
	sent := header.Clone()
	sent.Set("Connection", "keep-alive, X-Hop")
	sent.Set("X-Hop", "1")
	sent.Set("Accept-Encoding", "br") // the answer is to be read
	r.post("//callback/ws/endpoint?a=%2f&a=b", call1, sent)
	got := r.feishu.requests()[0]
	if got.uri != "/callback/ws/endpoint?a=%2f&a=b" || got.method != http.MethodPost || got.body != call1 {
		t.Errorf("Feishu got %+v", got)
	}
	got.header.Del("Content-Length")
	if len(got.header) != len(header) {
		t.Errorf("Feishu got %v, want %v", got.header, header)
	}
	for k, v := range header {
		if strings.Join(got.header[k], "|") != strings.Join(v, "|") {
			t.Errorf("%s: got %q, want %q", k, got.header[k], v)
		}
	}
	if id := <-apps; id != app {
		t.Errorf("bootstrapped %q", id)
	}
}

func TestTheAnswerGetsOurURL(t *testing.T) {
	for _, c := range []struct {
		name, public, want string
		address            func(*http.Request) (string, string)
	}{
		{"the request's host", "", "ws://FRONT", nil},
		{"as the address says", "", "wss://relay.example:1", func(*http.Request) (string, string) { return "https", "relay.example:1" }},
		{"public http", "http://relay:8788", "ws://relay:8788", nil},
		{"public https", "https://relay.example", "wss://relay.example", nil},
		{"public with a path", "https://relay.example/bot%20a/", "wss://relay.example/bot%20a", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, tcp(t), func(o *link.Options) {
				o.Address = c.address
				if c.public != "" {
					o.PublicURL, _ = url.Parse(c.public)
				}
			})
			const head = "{ \"msg\" : \"success\",\"code\":0,\n \"extra\":[1, 2], \"data\":{\"First\":1e3, \"URL\" : \""
			const tail = `", "ClientConfig":{"ReconnectNonce":30,"PingInterval":90 ,"ReconnectInterval":120,"ReconnectCount":-1},"Last":"ü\u0026"} ,"z":null}` + "\n"
			r.feishu.says(200, head+`wss:\/\/`+r.feishu.host+`/ws/v2?`+strings.ReplaceAll(query, "&", `\u0026`)+tail, http.Header{"X-Tt-Logid": {"l1"}})
			resp, got := r.post("/callback/ws/endpoint", call1, nil)
			want := head + strings.Replace(c.want, "FRONT", r.front, 1) + "/ws/v2?" + query +
				strings.NewReplacer(`"ReconnectNonce":30`, `"ReconnectNonce":2`, `"ReconnectInterval":120`, `"ReconnectInterval":3`).Replace(tail)
			var sent, wanted any
			if err := errors.Join(json.Unmarshal([]byte(got), &sent), json.Unmarshal([]byte(want), &wanted)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted, sent); diff != "" {
				t.Error(diff)
			}
			if resp.Header.Get("X-Tt-Logid") != "l1" || resp.Header.Get("Content-Type") != "application/json" || resp.ContentLength != int64(len(got)) {
				t.Errorf("header %v, length %d", resp.Header, resp.ContentLength)
			}
		})
	}
}

// Feishu may read a body with two spellings of a name in another way than we do.
func TestABootstrapThatNamesTwoAppsIsNobodys(t *testing.T) {
	for _, body := range []string{
		`{"AppID":"cli_other","AppSecret":"s","appid":"` + app + `"}`,
		`{"AppID":"cli_other","AppSecret":"s","AppID":"` + app + `"}`,
		`{"AppID":"` + app + `","AppSecret":"s","APPID":"cli_other"}`,
	} {
		apps := make(chan string, 1)
		r := newRig(t, tcp(t), func(o *link.Options) { o.Bootstrapped = func(id, secret string) { apps <- id + secret } })
		resp, err := r.client.Post("http://"+r.front+"/callback/ws/endpoint", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := r.feishu.requests()[0].body; got != body {
			t.Errorf("Feishu got %s", got)
		}
		select {
		case id := <-apps:
			if id != "" {
				t.Errorf("%s is taken for %s", body, id)
			}
		default:
		}
	}
}

func TestOtherAnswersPassAsTheyCame(t *testing.T) {
	for _, c := range []struct {
		status int
		answer string
	}{
		{200, `{"code":1000040350,"msg":"too many","data":{"URL":"ws://x/y"}}`},
		{200, `{"code":0,"msg":"","data":{}}`}, {200, `{"code":0,"data":null}`}, {200, `{"code":0}`},
		{200, ``}, {200, `[]`}, {200, `no JSON`}, {200, `{"code":"0"}`}, {200, `{"code":0,"data":{"URL":"ftp://x"}}`}, {200, `{"code":0,"data":{"URL":"%zz"}}`},
		{500, `{"code":0,"data":{"URL":"ws://x/y?a=b"}}`}, {400, `{"code":1,"msg":"busy"}`}, {302, ``},
	} {
		r := newRig(t, tcp(t), func(o *link.Options) { o.Bootstrapped = func(_, _ string) { t.Error("bootstrapped") } })
		header := http.Header{"Location": {"http://127.0.0.1:1/elsewhere"}, "Content-Type": {"text/x"}}
		r.feishu.says(c.status, c.answer, header)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.front+"/callback/ws/endpoint", strings.NewReader(call1))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.client.Transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || string(got) != c.answer || resp.Header.Get("Content-Type") != "text/x" {
			t.Errorf("%.100s: got %d %.100s %v %v", c.answer, resp.StatusCode, got, resp.Header, err)
		}
	}
}

func TestAFeishuThatIsAway(t *testing.T) {
	r := newRig(t, tcp(t), func(o *link.Options) { o.Upstream, _ = url.Parse("http://127.0.0.1:1/base") })
	resp, got := r.post("/callback/ws/endpoint", call1, nil)
	if resp.StatusCode != http.StatusBadGateway || got != `{"code":1,"msg":"feishu-relay: Feishu cannot be reached","data":{}}` {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
}

func TestTooLargeABootstrapCall(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	if resp, _ := r.post("/callback/ws/endpoint", strings.Repeat("x", 9<<10), nil); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", resp.StatusCode)
	}
}

func TestAFeishuThatIsAwayForTheWebSocket(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	r.feishu.says(200, `{"code":0,"data":{"URL":"ws://127.0.0.1:1/ws/v2?x=1&ticket=t-2"}}`, nil)
	resp, err := r.client.Do(upgrade(t, r.bootstrap().URL))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway || r.counted("upstream_refused") != 1 {
		t.Errorf("got %d", resp.StatusCode)
	}
}
