package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/policy"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

func TestEveryRouteAnswers(t *testing.T) {
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/healthz", "", 200, `{"status":"alive"}`},
		{"GET", "/readyz", "", 200, `{"status":"ready"}`},
		{"POST", "/v1/outbound", `{"chat_id":"oc_x","content":"hi"}`, 202, `{"relay_msg_id":"r1","relayed":true}`},
		{"POST", "/v1/inbound", `{"chat_id":"oc_x","content":"hi","sender":"Ann"}`, 202, `{"relay_msg_id":"u1","relayed":false}`},
		{"POST", "/v1/decide", `{"chat_id":"oc_x","content":"","sender_agent_name":"agent_b"}`, 200, `{"allow":true,"depth":1,"reason":"","tier":"threshold"}`},
		{"POST", "/v1/decide", `{"chat_id":"oc_x","content":"hi","role":"user"}`, 200, `{"allow":true,"depth":1,"reason":"","tier":"threshold"}`},
		{"GET", "/v1/status", "", 200, `{"agent":"agent_a"}`},
		{"GET", "/v1/transcripts", "", 200, `{"transcripts":[{"channel":"feishu","chat_id":"oc_x","bytes":5,"modified":7}]}`},
		{"GET", "/v1/transcripts/feishu/oc_x", "", 200, `{"channel":"feishu","chat_id":"oc_x","entries":[{"role":"user","content":"last 50 of oc_x","sender":"","message_id":"","ts":0}]}`},
		{"GET", "/v1/transcripts/feishu/oc_x?limit=1000", "", 200, `{"channel":"feishu","chat_id":"oc_x","entries":[{"role":"user","content":"last 1000 of oc_x","sender":"","message_id":"","ts":0}]}`},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			w := call(t, newFakes(), tt.method, tt.path, tt.body)
			if w.Code != tt.status {
				t.Fatalf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			if diff := cmp.Diff(apitest.Object(t, w.Body.Bytes()), apitest.Object(t, []byte(tt.want))); diff != "" {
				t.Errorf("answer (-got +want):\n%s", diff)
			}
			if got := w.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("cache control: got %q", got)
			}
		})
	}
	for path, want := range map[string]string{"/": "<!doctype html>", "/v1": "/v1/outbound", "/metrics": "sent_total"} {
		if w := call(t, newFakes(), "GET", path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
	}
}

func TestBodiesReachTheirFunctions(t *testing.T) {
	f := newFakes()
	ask(f, "POST", "/v1/outbound", `{"chat_id":"oc_x","content":"<hi>","message_id":"om_1","ts":"1795211093","parent_id":"om_0",
		"mentions":[{"agent_name":"b"}],"metadata":{"chat_type":"group","x":[1]},"unknown":{"chat_id":"oc_other"}}`)
	wantSent := relay.Outbound{ChatID: "oc_x", Content: "<hi>", MessageID: "om_1", TS: 1795211093000, ParentID: "om_0",
		Mentions: []relay.Mention{{AgentName: "b"}}, Metadata: relay.Metadata{"chat_type": json.RawMessage(`"group"`), "x": json.RawMessage(`[1]`)}}
	if diff := cmp.Diff(f.sent, []relay.Outbound{wantSent}); diff != "" {
		t.Errorf("outbound (-got +want):\n%s", diff)
	}
	ask(f, "POST", "/v1/inbound", `{"chat_id":"oc_x","content":"hi","sender":"Ann","sender_id":"ou_p","ts":1795211093522,"chat_type":"group"}`)
	wantHeard := relay.Heard{ChatID: "oc_x", Content: "hi", Sender: "Ann", SenderID: "ou_p", TS: 1795211093522, ChatType: "group"}
	if diff := cmp.Diff(f.heard, []relay.Heard{wantHeard}); diff != "" {
		t.Errorf("inbound (-got +want):\n%s", diff)
	}
	ask(f, "POST", "/v1/decide", `{"chat_id":"oc_x","content":"hi","sender_agent_name":"b","thread_id":"omt","user_ts":5}`)
	if len(f.decided) != 1 || f.decided[0].ChatID != "oc_x" || f.decided[0].SenderAgentName != "b" || f.decided[0].ThreadID != "omt" || f.decided[0].UserTS != 5 {
		t.Errorf("decide: got %+v", f.decided)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	long := strings.Repeat("x", relay.MaxID+1)
	ok := `{"chat_id":"oc_x","content":"hi","sender_agent_name":"b"}`
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		code, says               string
	}{
		{"no such route", "GET", "/v1/nothing", "", 404, "not_found", "GET /"},
		{"wrong method", "GET", "/v1/outbound", "", 405, "method_not_allowed", "POST"},
		{"no body", "POST", "/v1/outbound", "", 400, "invalid_request", "JSON"},
		{"null", "POST", "/v1/outbound", "null", 400, "invalid_request", "chat_id"},
		{"torn", "POST", "/v1/outbound", ok[:20], 400, "invalid_request", "byte"},
		{"not UTF-8", "POST", "/v1/outbound", strings.Replace(ok, "hi", "\xff", 1), 400, "invalid_request", "UTF-8"},
		{"a number for a string", "POST", "/v1/outbound", strings.Replace(ok, `"oc_x"`, "7", 1), 400, "invalid_request", `chat_id: want a string, got number`},
		{"an invalid ts", "POST", "/v1/outbound", strings.Replace(ok, `"content"`, `"ts":"soon","content"`, 1), 400, "invalid_request", ""},
		{"no chat", "POST", "/v1/outbound", `{"content":"hi"}`, 400, "invalid_request", "chat_id"},
		{"blank content", "POST", "/v1/outbound", `{"chat_id":"oc_x","content":" \n"}`, 400, "invalid_request", "content"},
		{"an over-long id", "POST", "/v1/outbound", strings.Replace(ok, "oc_x", long, 1), 400, "invalid_request", "chat_id has 513 bytes"},
		{"a control character", "POST", "/v1/outbound", strings.Replace(ok, `"content"`, `"message_id":"a\u0000","content"`, 1), 400, "invalid_request", "message_id has control"},
		{"inbound without chat", "POST", "/v1/inbound", `{"content":"hi"}`, 400, "invalid_request", "chat_id"},
		{"inbound of an over-long sender", "POST", "/v1/inbound", strings.Replace(ok, `"content"`, `"sender":"`+long+`","content"`, 1), 400, "invalid_request", "sender"},
		{"decide without sender", "POST", "/v1/decide", `{"chat_id":"oc_x","content":"hi"}`, 400, "invalid_request", "sender_agent_name"},
		{"decide of an unknown role", "POST", "/v1/decide", `{"chat_id":"oc_x","role":"system"}`, 400, "invalid_request", "role"},
		{"decide of an over-long parent", "POST", "/v1/decide", strings.Replace(ok, `"content"`, `"parent_id":"`+long+`","content"`, 1), 400, "invalid_request", "parent_id"},
		{"a limit of too many", "GET", "/v1/transcripts/feishu/oc_x?limit=1001", "", 400, "invalid_request", "limit"},
		{"a chat that is not the bot's", "GET", "/v1/transcripts/feishu/oc_secret", "", 404, "not_found", "not in this chat"},
		{"a chat that is a path", "GET", "/v1/transcripts/feishu/..%2f..%2fetc", "", 404, "not_found", ""},
		{"a chat with a control character", "GET", "/v1/transcripts/feishu/oc%00x", "", 400, "invalid_request", "chat_id"},
		{"a stream where another channel delivers", "GET", "/v1/stream", "", 409, "other_door", "INJECT_URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakes()
			message := apitest.WantError(t, ask(f, tt.method, tt.path, tt.body), tt.status, tt.code)
			if !strings.Contains(message, tt.says) {
				t.Errorf("message: got %q, want something of %q", message, tt.says)
			}
			if strings.Contains(message, "relay.") {
				t.Errorf("message: %q speaks of our types", message)
			}
			if len(f.sent)+len(f.heard)+len(f.decided) > 0 {
				t.Error("it reached the functions behind the API")
			}
		})
	}
}

func TestErrorsFromBehind(t *testing.T) {
	for name, own := range map[string]bool{"named errors are passed on": true, "others are logged and hidden": false} {
		t.Run(name, func(t *testing.T) {
			var behind error = apitest.ErrBehind
			status, code := 500, "internal"
			if own {
				status, code = 507, "outbox_full"
				behind = relay.Errorf(relay.CodeOutboxFull, "fix it")
			}
			var log bytes.Buffer
			f := newFakes()
			f.Logger = slog.New(slog.NewTextHandler(&log, nil))
			f.Send = func(context.Context, relay.Outbound) (relay.Sent, error) { return relay.Sent{}, behind }
			f.Hear = func(context.Context, relay.Heard, bool) (relay.Sent, error) { return relay.Sent{}, behind }
			f.Decide = func(context.Context, relay.Question) (policy.Decision, error) { return policy.Decision{}, behind }
			f.chats = func() ([]transcript.Chat, error) { return nil, behind }
			f.tail = func(string, string, int) ([]transcript.Entry, error) { return nil, behind }
			body := `{"chat_id":"oc_x","content":"TEXT","sender_agent_name":"b"}`
			for path, method := range map[string]string{"/v1/outbound": "POST", "/v1/inbound": "POST", "/v1/decide": "POST",
				"/v1/transcripts": "GET", "/v1/transcripts/feishu/oc_x": "GET"} {
				log.Reset()
				w := ask(f, method, path, body)
				apitest.WantError(t, w, status, code)
				if strings.Contains(w.Body.String(), "SECRET") || strings.Contains(log.String(), "TEXT") {
					t.Errorf("%s: answer %s, log %s", path, w.Body, &log)
				}
				if logged := strings.Contains(log.String(), "SECRET cause"); logged == own {
					t.Errorf("%s: logged %q", path, &log)
				}
			}
		})
	}
	f := newFakes()
	f.Logger = nil // as the zero Options have it
	f.Ready = func() error { return apitest.ErrBehind }
	apitest.WantError(t, ask(f, "GET", "/readyz", ""), 503, "not_ready")
	f.tail = func(string, string, int) ([]transcript.Entry, error) { return nil, nil }
	if w := ask(f, "GET", "/v1/transcripts/feishu/oc_x", ""); !strings.Contains(w.Body.String(), `"entries":[]`) {
		t.Errorf("an empty transcript: got %s", w.Body)
	}
	f.Send = func(context.Context, relay.Outbound) (relay.Sent, error) { return relay.Sent{}, apitest.ErrBehind }
	apitest.WantError(t, ask(f, "POST", "/v1/outbound", `{"chat_id":"oc_x","content":"hi"}`), 500, "internal")
}

// endless is a body of a hundred megabytes that counts what is read of it.
type endless struct{ left, read int }

func (e *endless) Read(p []byte) (int, error) {
	n := min(len(p), e.left)
	if n == 0 {
		return 0, io.EOF
	}
	for i := range p[:n] {
		p[i] = ' '
	}
	e.left, e.read = e.left-n, e.read+n
	return n, nil
}

func TestAHugeBodyIsRefusedUnread(t *testing.T) {
	for _, path := range []string{"/v1/outbound", "/v1/inbound", "/v1/decide"} {
		body := &endless{left: 100 << 20}
		w := httptest.NewRecorder()
		httpapi.New(newFakes().Options).ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+path, body))
		apitest.WantError(t, w, http.StatusRequestEntityTooLarge, "too_large")
		if body.read > 5<<20 {
			t.Errorf("%s: %d bytes were read", path, body.read)
		}
	}
}

func TestToken(t *testing.T) {
	f := newFakes()
	f.Token = "t0ken"
	remote := func(r *http.Request) { r.Host = "relay.example:8787" }
	paths := []string{"/v1/status", "/v1/transcripts", "/metrics", "/", "/v1/nothing", "/v1/stream", "/v1/events"}
	for name, authorization := range map[string]string{"none": "", "another": "Bearer nope", "another scheme": "Basic t0ken",
		"a longer one": "Bearer t0kenx", "only the word": "Bearer ", "bare": "t0ken"} {
		for _, path := range paths {
			w := ask(f, "GET", path, "", apitest.Header("Authorization", authorization))
			apitest.WantError(t, w, 401, "unauthorized")
			if got := w.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, "Bearer") {
				t.Errorf("%s: asks for %q", name, got)
			}
		}
		apitest.WantError(t, ask(f, "POST", "/v1/outbound", `{"chat_id":"oc_x","content":"hi"}`, apitest.Header("Authorization", authorization)), 401, "unauthorized")
	}
	if len(f.sent) > 0 {
		t.Error("a request without the token reached the functions behind the API")
	}
	for _, path := range []string{"/v1/status", "/v1/transcripts", "/metrics", "/"} {
		if w := ask(f, "GET", path, "", apitest.Header("Authorization", "Bearer t0ken"), remote); w.Code != 200 {
			t.Errorf("%s with the token: got %d", path, w.Code)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if w := ask(f, "GET", path, "", remote); w.Code != 200 {
			t.Errorf("%s: got %d, want it open", path, w.Code)
		}
	}
}

func TestHostsWithoutAToken(t *testing.T) {
	for host, allowed := range map[string]bool{
		"localhost": true, "localhost:8787": true, "LocalHost:1": true, "bot.localhost:8787": true, "127.0.0.1": true,
		"127.9.9.9:80": true, "[::1]:8787": true, "::1": true,
		"evil.example": false, "evil.example:8787": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
		"10.0.0.1:8787": false, "0.0.0.0:8787": false, "notlocalhost": false, "": false,
	} {
		w := ask(newFakes(), "GET", "/v1/status", "", func(r *http.Request) { r.Host = host })
		if allowed && w.Code != 200 {
			t.Errorf("%q: got %d, want it answered", host, w.Code)
		}
		if !allowed {
			apitest.WantError(t, w, 403, "forbidden_host")
		}
	}
}

func TestOtherWebPagesAreRefused(t *testing.T) {
	body := `{"chat_id":"oc_x","content":"hi"}`
	for name, change := range map[string]func(*http.Request){
		"another origin":       apitest.Header("Origin", "https://evil.example"),
		"another port":         apitest.Header("Origin", "http://127.0.0.1:9999"),
		"a page without one":   apitest.Header("Origin", "null"),
		"the browser's header": apitest.Header("Sec-Fetch-Site", "cross-site"),
		"a sibling":            apitest.Header("Sec-Fetch-Site", "same-site"),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			apitest.WantError(t, ask(f, "POST", "/v1/outbound", body, change), 403, "cross_origin")
			if len(f.sent) > 0 {
				t.Error("it was sent")
			}
			// A stream is read by GET, and still takes the bot's place.
			apitest.WantError(t, ask(f, "GET", "/v1/stream", "", change), 403, "cross_origin")
			apitest.WantError(t, ask(f, "GET", "/v1/stream", "", change, apitest.Header("Upgrade", "websocket"), apitest.Header("Connection", "Upgrade")), 403, "cross_origin")
			apitest.WantError(t, ask(f, "GET", "/v1/events", "", change), 403, "cross_origin")
			apitest.WantError(t, ask(f, "GET", "/v1/transcripts", "", change), 403, "cross_origin")
		})
	}
	link := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
	}
	if w := ask(newFakes(), "GET", "/", "", link); w.Code != 200 {
		t.Errorf("a link to the viewer: got %d %s", w.Code, w.Body)
	}
	apitest.WantError(t, ask(newFakes(), "POST", "/v1/outbound", body, link), 403, "cross_origin")
	for name, change := range map[string]func(*http.Request){
		"the own page": apitest.Header("Origin", "http://127.0.0.1:8787"),
		"the same":     apitest.Header("Sec-Fetch-Site", "same-origin"),
		"typed in":     apitest.Header("Sec-Fetch-Site", "none"),
	} {
		t.Run(name, func(t *testing.T) {
			if w := ask(newFakes(), "POST", "/v1/outbound", body, change); w.Code != 202 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			apitest.WantError(t, ask(newFakes(), "GET", "/v1/stream", "", change), 409, "other_door")
		})
	}
}

func TestTheDocumentHasTheTypes(t *testing.T) { apitest.Typed(t, httpapi.Routes()) }
