package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

// Every kind of call of the official SDK reaches Feishu as it would without us,
// and its answer comes back as it would.
func TestBytesAreUnchanged(t *testing.T) {
	ctx := t.Context()
	calls := []struct {
		name string
		do   func(c *lark.Client) (any, error)
	}{
		{"create", func(c *lark.Client) (any, error) {
			return c.Im.V1.Message.Create(ctx, larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").Body(
				larkim.NewCreateMessageReqBodyBuilder().ReceiveId(group).MsgType("text").Content(`{"text":"<b>你好</b> & \"so\""}`).Uuid("u-1").Build()).Build())
		}},
		{"reply", func(c *lark.Client) (any, error) {
			return c.Im.V1.Message.Reply(ctx, larkim.NewReplyMessageReqBuilder().MessageId("om_1").Body(
				larkim.NewReplyMessageReqBodyBuilder().MsgType("post").Content(`{"zh_cn":{"content":[[{"tag":"md","text":"x"}]]}}`).ReplyInThread(true).Build()).Build())
		}},
		{"not found", func(c *lark.Client) (any, error) {
			return c.Im.V1.Message.Get(ctx, larkim.NewGetMessageReqBuilder().MessageId("om_none").Build())
		}},
		{"upload", func(c *lark.Client) (any, error) {
			return c.Im.V1.Image.Create(ctx, larkim.NewCreateImageReqBuilder().Body(
				larkim.NewCreateImageReqBodyBuilder().ImageType("message").Image(strings.NewReader("\x89PNG\x00")).Build()).Build())
		}},
		{"raw", func(c *lark.Client) (any, error) {
			return c.Get(ctx, "/open-apis/bot/v3/info?a=1&b=%20&c=", nil, larkcore.AccessTokenTypeTenant)
		}},
	}
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil)
			r.sendTo("oc_none", "text", `{"text":"first"}`) // om_1
			straight := newUpstream(t)
			straight.messages, straight.n = r.up.messages, r.up.n
			before := len(r.up.seen())

			through, err1 := c.do(r.sdk())
			// The token is cached by app and process: both calls carry the same.
			direct, err2 := c.do(lark.NewClient(r.app, "secret", lark.WithOpenBaseUrl(straight.URL), lark.WithHttpClient(r.client)))
			if fmt.Sprint(err1) != fmt.Sprint(err2) {
				t.Fatalf("through the gateway %v, straight %v", err1, err2)
			}
			one, other := last(r.up.seen()[before:]), last(straight.seen())
			one, other = stable(one), stable(other)
			if diff := cmp.Diff(other, one); diff != "" {
				t.Errorf("requests differ (-straight +through):\n%s", diff)
			}
			a, b := answerOf(through), answerOf(direct)
			a.Header.Del("Date")
			b.Header.Del("Date")
			if diff := cmp.Diff(b, a); diff != "" {
				t.Errorf("answers differ (-straight +through):\n%s", diff)
			}
		})
	}
}

func last(all []seen) seen {
	if len(all) == 0 {
		return seen{}
	}
	return all[len(all)-1]
}

// stable leaves out what is made anew for each call.
func stable(s seen) seen {
	if kind, params, _ := strings.Cut(s.Header.Get("Content-Type"), ";"); kind == "multipart/form-data" {
		_, boundary, _ := strings.Cut(params, "boundary=")
		s.Header = s.Header.Clone()
		s.Header.Set("Content-Type", kind)
		parts := strings.Split(strings.ReplaceAll(s.Body, boundary, "B"), "--B") // in any order: the SDK keeps them in a map
		slices.Sort(parts)
		s.Body = strings.Join(parts, "|")
	}
	s.Header.Del("Oapi-Sdk-Request-Id")
	s.Header.Del("Via") // which only a simulator gets
	return s
}

// answerOf is the raw answer in a response of the SDK.
func answerOf(v any) *larkcore.ApiResp {
	if raw, ok := v.(*larkcore.ApiResp); ok {
		return raw
	}
	return reflect.ValueOf(v).Elem().FieldByName("ApiResp").Interface().(*larkcore.ApiResp)
}

// wire sends bytes to the gateway and returns what reached Feishu.
func wire(t *testing.T, head string) (request string, answer string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		b := bufio.NewReader(c)
		req, err := http.ReadRequest(b)
		if err != nil {
			got <- err.Error()
			return
		}
		body, _ := io.ReadAll(req.Body)
		req.Header.Del("Via") // which only a simulator gets
		got <- fmt.Sprintf("%s %s\n%s\n%s\n%v", req.Method, req.RequestURI, req.Host, headerText(req.Header), string(body))
		_, _ = io.WriteString(c, "HTTP/1.1 200 Fine\r\nX-odd: 1\r\nContent-Length: 2\r\n\r\n{}")
	}()
	r := newRig(t, func(o *Options) { o.Upstream = &url.URL{Scheme: "http", Host: l.Addr().String()} })
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, strings.ReplaceAll(head, "\n", "\r\n"))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	return strings.ReplaceAll(<-got, l.Addr().String(), "UPSTREAM"), fmt.Sprintf("%s %s", resp.Status, body)
}

func headerText(h http.Header) string {
	var b strings.Builder
	_ = h.Write(&b)
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\r\n", " | ")
}

func TestWire(t *testing.T) {
	for _, c := range []struct{ name, send, want string }{
		{"path and query", "GET /open-apis/x/a%2Fb/%7e?q=a&b=%20+ HTTP/1.1\nHost: h\n\n",
			"GET /open-apis/x/a%2Fb/%7e?q=a&b=%20+\nUPSTREAM\n\n"},
		{"doubled slashes", "GET //open-apis//x HTTP/1.1\nHost: h\n\n", "GET //open-apis//x\nUPSTREAM\n\n"},
		{"hop by hop", "GET /x HTTP/1.1\nHost: h\nConnection: close, X-Hop\nX-Hop: 1\nKeep-Alive: 5\nProxy-Authorization: Basic x\nX-Stays: 1\n\n",
			"GET /x\nUPSTREAM\nX-Stays: 1\n"},
		{"a body with GET", "GET /open-apis/bot/v3/info HTTP/1.1\nHost: h\nUser-Agent: axios\nContent-Length: 2\n\n{}",
			"GET /open-apis/bot/v3/info\nUPSTREAM\nContent-Length: 2 | User-Agent: axios\n{}"},
		{"a body with DELETE", "DELETE /open-apis/im/v1/messages/om_1 HTTP/1.1\nHost: h\nContent-Length: 2\n\n{}",
			"DELETE /open-apis/im/v1/messages/om_1\nUPSTREAM\nContent-Length: 2\n{}"},
		{"an absolute form", "POST http://open.feishu.cn/open-apis/x?y HTTP/1.1\nHost: open.feishu.cn\nContent-Length: 1\n\nz",
			"POST /open-apis/x?y\nUPSTREAM\nContent-Length: 1\nz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, answer := wire(t, c.send)
			if got != c.want {
				t.Errorf("Feishu got\n%q, want\n%q", got, c.want)
			}
			if answer != "200 Fine {}" && answer != "200 OK {}" {
				t.Errorf("the bot got %q", answer)
			}
		})
	}
}

// An answer that we could not unpack would be a send that nobody hears of.
func TestPackedAnswersAreNotAskedFor(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	for path, want := range map[string]string{"/open-apis/im/v1/messages?receive_id_type=chat_id": "", "/open-apis/im/v1/images": "gzip, br"} {
		r.callWith("POST", path, `{"receive_id":"oc_group","msg_type":"text","content":"{}"}`,
			http.Header{"Accept-Encoding": {"gzip, br"}, "User-Agent": {"bot"}})
		if got := last(r.up.seen()).Header.Get("Accept-Encoding"); got != want {
			t.Errorf("%s asks for %q, want %q", path, got, want)
		}
	}
}

func TestUnreadableAnswersPass(t *testing.T) {
	big := `{"code":0,"pad":"` + strings.Repeat("x", maxBody) + `"}`
	for _, c := range []struct{ name, encoding, body, counted string }{
		{"too large", "", big, "untapped_large"},
		{"packed all the same", "gzip", "?", "untapped_encoding"},
		{"not JSON", "", "<html>", ""},
		{"null", "", "null", ""},
		{"other types", "", `{"code":"0","data":[]}`, ""},
		{"data without ids", "", `{"code":0,"data":{}}`, "unreadable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, nil).knowGroup()
			r.up.on("POST /open-apis/im/v1/messages", func(w http.ResponseWriter, _ *http.Request) {
				if c.encoding != "" {
					w.Header().Set("Content-Encoding", c.encoding)
				}
				_, _ = io.WriteString(w, c.body)
			})
			if _, got := r.call("POST", "/open-apis/im/v1/messages", `{}`); got != c.body {
				t.Errorf("the answer was altered: %d bytes, want %d", len(got), len(c.body))
			}
			if c.counted != "" && r.counts.of(c.counted) != 1 {
				t.Errorf("%s was not counted: %v", c.counted, r.counts.m)
			}
			r.silent()
		})
	}
}

func TestLargeRequestPassesUnread(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	content := strings.Repeat("x", maxBody)
	_, _ = r.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", js(map[string]any{"receive_id": group, "content": content}))
	if got := last(r.up.seen()); len(got.Body) < maxBody {
		t.Errorf("Feishu got %d bytes", len(got.Body))
	}
	if r.counts.of("untapped_large") != 1 {
		t.Error("not counted")
	}
}

func TestUnreachable(t *testing.T) {
	r := newRig(t, nil)
	r.up.Close()
	resp, err := r.sdk().Im.V1.Message.Get(t.Context(), larkim.NewGetMessageReqBuilder().MessageId("om_1").Build(),
		larkcore.WithTenantAccessToken("t-x"))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusBadGateway || resp.Code != codeUnreachable || !strings.HasPrefix(resp.Msg, "feishu-relay: cannot reach") {
		t.Errorf("%d %d %q", resp.StatusCode, resp.Code, resp.Msg)
	}
	if strings.Contains(resp.Msg, "om_1") {
		t.Error("the error shows the path")
	}
}

// The upstream is the gateway's own address. That is found out at once, and the bot reads what is wrong.
func TestTheUpstreamIsTheGateway(t *testing.T) {
	r := newRig(t, nil)
	for _, route := range []string{"GET /open-apis/x", "POST /callback/ws/endpoint"} {
		comes := 0
		r.up.on(route, func(w http.ResponseWriter, q *http.Request) {
			if comes++; comes == 1 {
				r.Handler().ServeHTTP(w, q)
			}
		})
		method, path, _ := strings.Cut(route, " ")
		status, body := r.call(method, path, "{}")
		if status != http.StatusLoopDetected || !strings.Contains(body, "FEISHU_BASE_URL") || comes != 1 {
			t.Errorf("%s came back %d times and got %d %s", route, comes, status, body)
		}
	}
}

// A look-up on a connection that Feishu gave up while it was idle is sent once
// more on another, also with the body that the Node SDK gives it.
func TestIdleConnectionGivenUpByFeishu(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for answers := 1; ; answers++ { // the first connection has one answer, the next two
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := bufio.NewReader(c)
			for range answers {
				req, err := http.ReadRequest(b)
				if err != nil {
					break
				}
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
			}
			if req, err := http.ReadRequest(b); err == nil { // one more comes in, and nobody answers it
				_, _ = io.Copy(io.Discard, req.Body)
			}
			_ = c.Close()
		}
	}()
	r := newRig(t, func(o *Options) { o.Upstream = &url.URL{Scheme: "http", Host: l.Addr().String()} })
	for i := range 2 {
		if status, body := r.call("GET", "/open-apis/im/v1/messages/om_1", "{}"); status != http.StatusOK {
			t.Errorf("call %d: %d %s", i, status, body)
		}
	}
}

// An answer streams: its first bytes arrive before the last are made.
func TestAnswersStream(t *testing.T) {
	r := newRig(t, nil)
	goOn := make(chan struct{})
	r.up.on("GET /stream", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "two")
	})
	resp, err := r.client.Get(r.url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	first := make([]byte, 3)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "one" {
		t.Fatalf("%q %v", first, err)
	}
	close(goOn)
	if rest, _ := io.ReadAll(resp.Body); string(rest) != "two" {
		t.Errorf("then %q", rest)
	}
}

// A bot that hangs up after Feishu took the message has sent it all the same.
func TestAbortedSendIsTaken(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	arrived, goOn := make(chan struct{}), make(chan struct{})
	r.up.on("POST /open-apis/im/v1/messages", func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-goOn
		answer(w, 200, fmt.Sprintf(`{"code":0,"data":{"message_id":"om_a","chat_id":"%s","msg_type":"text","sender":{"id":"%s","id_type":"app_id"},"body":{"content":"{\"text\":\"late\"}"}}}`, group, r.app))
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", r.url+"/open-apis/im/v1/messages?receive_id_type=chat_id", strings.NewReader(`{"receive_id":"oc_group"}`))
		req.Header.Set("Authorization", "Bearer t-"+r.app)
		resp, err := r.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(goOn)
	if m := r.said(); m.Text != "late" {
		t.Errorf("published %q", m.Text)
	}
}

func TestOtherRoutes(t *testing.T) {
	r := newRig(t, nil)
	if status, body := r.call("POST", "/webhook/event", "{}"); status != 200 || last(r.up.seen()).URI != "/webhook/event" {
		t.Errorf("without a webhook its path is Feishu's: %d %s", status, body)
	}
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("CONNECT", "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("CONNECT is answered %d", w.Code)
	}
}

// An answer that ends early ends early for the bot too.
func TestCutAnswer(t *testing.T) {
	r := newRig(t, nil).knowGroup()
	r.up.on("POST /open-apis/im/v1/messages", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"code":0,`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := r.client.Post(r.url+"/open-apis/im/v1/messages", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil || string(body) != `{"code":0,` {
		t.Errorf("%q, %v", body, err)
	}
	if r.counts.of("answer_cut") != 1 {
		t.Error("not counted")
	}
}
