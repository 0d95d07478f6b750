package httpapi_test

import (
	"io"
	"net/http"
	"testing"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
)

// The same answers that the other tests look at, this time by the document.
func TestTheOtherRoutesAreDescribed(t *testing.T) {
	for _, tt := range []struct{ method, path, body string }{
		{"GET", "/healthz", ""}, {"GET", "/readyz", ""}, {"GET", "/", ""}, {"GET", "/v1", ""}, {"GET", "/viewer/app.js", ""}, {"GET", "/viewer/x", ""}, {"POST", "/sign-out", ""}, {"GET", "/metrics", ""}, {"GET", "/ca.pem", ""},
		{"GET", "/v1/status", ""}, {"GET", "/v1/transcripts", ""}, {"GET", "/v1/transcripts/feishu/oc_x?limit=3", ""},
		{"GET", "/v1/transcripts/feishu/oc_secret", ""}, {"GET", "/v1/stream", ""}, {"HEAD", "/v1/events", ""},
		{"POST", "/v1/outbound", `{"chat_id":"oc_x","content":"hi","ts":"1795211093","metadata":{"chat_type":"group"}}`},
		{"POST", "/v1/inbound", `{"chat_id":"oc_x","content":"hi","ts":1795211093522}`},
		{"POST", "/v1/decide", `{"chat_id":"oc_x","content":"","sender_agent_name":"agent_b"}`},
		{"POST", "/v1/outbound", `{}`}, {"POST", "/v1/send", `{"chat_id":"oc_x","content":"hi"}`},
	} {
		f := newFakes()
		f.CA = []byte("-----BEGIN CERTIFICATE-----")
		f.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			io.WriteString(w, "sent_total 1\n")
		})
		call(t, f, tt.method, tt.path, tt.body)
	}
}

func TestTheDocumentHasTheTypes(t *testing.T) { apitest.Typed(t, httpapi.Routes()) }
