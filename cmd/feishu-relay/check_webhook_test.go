package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/internal/selftest"
)

// webhookBot answers as a bot's SDK does, with the key and token it knows.
func webhookBot(key, token string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && key != "" {
			body, err = feishu.Decrypt(key, body)
		}
		var in struct{ Challenge, Token, Type string }
		if err != nil || json.Unmarshal(body, &in) != nil || in.Type != "url_verification" || in.Token != token {
			http.Error(w, "hidden", http.StatusInternalServerError)
			return
		}
		fmt.Fprintf(w, `{"challenge":%q}`, in.Challenge)
	}
}

func TestCheckWebhook(t *testing.T) {
	for _, tt := range []struct {
		name    string
		env     map[string]string
		handler http.HandlerFunc
		status  selftest.Status
		says    string
	}{
		{"in clear", nil, webhookBot("", "hidden-token"), selftest.OK, "answers Feishu's question"},
		{"encrypted", map[string]string{"FEISHU_ENCRYPT_KEY": "hidden-key"}, webhookBot("hidden-key", "hidden-token"), selftest.OK, "answers Feishu's question"},
		{"another key", map[string]string{"FEISHU_ENCRYPT_KEY": "hidden-key"}, webhookBot("other", "hidden-token"), selftest.Fail, "the same Encrypt Key and Verification Token"},
		{"another token", nil, webhookBot("", "other"), selftest.Fail, "refuses Feishu's question (HTTP 500)"},
		{"another path", nil, http.NotFound, selftest.Fail, "correct the path in BOT_WEBHOOK_URL"},
		{"no posts", nil, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, selftest.Fail, "takes no events at that path (HTTP 405)"},
		{"nothing", nil, func(http.ResponseWriter, *http.Request) {}, selftest.Fail, "does not return the challenge"},
		{"a page", nil, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hidden") }, selftest.Fail, "does not return the challenge"},
		{"no challenge", nil, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"msg":"success"}`) }, selftest.Fail, "does not return the challenge"},
		{"another challenge", nil, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"challenge":"hidden"}`) }, selftest.Fail, "does not return the challenge"},
		{"a redirect", nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, selftest.Fail, "HTTP 307"},
		{"cut", nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, selftest.Fail, "start the bot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			webhooked(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			srv := httptest.NewServer(tt.handler)
			defer srv.Close()
			t.Setenv("BOT_WEBHOOK_URL", strings.Replace(srv.URL, "http://", "http://hidden-user:hidden-pw@", 1)+"/hidden-path")
			code, found := checked(t)
			wants(t, found, "bot webhook", tt.status, tt.says)
			wants(t, found, "bot webhook", tt.status, srv.Listener.Addr().String())
			if strings.Contains(fmt.Sprint(found), "hidden") {
				t.Errorf("a secret is shown: %v", found["bot webhook"])
			}
			if tt.status == selftest.Fail && code != 1 {
				t.Errorf("status %d, want 1", code)
			}
		})
	}
}

// webhooked configures a gateway in webhook mode.
func webhooked(t *testing.T) {
	t.Helper()
	newTenant(t)
	t.Setenv("GATEWAY_ADDR", "127.0.0.1:0")
	t.Setenv("FEISHU_VERIFICATION_TOKEN", "hidden-token")
}

func TestCheckWebhookUnreached(t *testing.T) {
	webhooked(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	for _, tt := range []struct{ url, says string }{
		{"http://127.0.0.1:1/", "start the bot"},
		{"http://bot.invalid/", "correct the host in BOT_WEBHOOK_URL"},
		{"http://" + l.Addr().String(), "no answer in time\nlook whether the bot hangs"},
		{tls.URL, "a certificate that this host trusts"},
		{strings.Replace(tls.URL, "https", "http", 1), "refuses Feishu's question (HTTP 400)"},
	} {
		t.Setenv("BOT_WEBHOOK_URL", tt.url)
		_, found := checked(t)
		wants(t, found, "bot webhook", selftest.Fail, tt.says)
	}
}
