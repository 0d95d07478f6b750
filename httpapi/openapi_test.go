package httpapi_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/google/go-cmp/cmp"

	"feishu-relay/httpapi"
	"feishu-relay/mailbox"
)

// contract is docs/openapi.yaml.
var contract = sync.OnceValues(func() (*openapi3.T, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromFile("../docs/openapi.yaml")
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(loader.Context)
})

var contractRoutes = sync.OnceValues(func() (routers.Router, error) {
	doc, err := contract()
	if err != nil {
		return nil, err
	}
	openapi3filter.RegisterBodyDecoder("application/schema+json", openapi3filter.JSONBodyDecoder)
	for _, kind := range []string{"application/x-pem-file", "text/html", "text/css", "text/javascript", "image/svg+xml"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.FileBodyDecoder)
	}
	return gorillamux.NewRouter(doc)
})

// described checks an answer against the document, and its request if it was
// taken. What is no route is not described.
func described(t *testing.T, method, path, body string, w *httptest.ResponseRecorder) {
	t.Helper()
	all, err := contractRoutes()
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(method, "http://127.0.0.1:8787"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	route, params, err := all.FindRoute(r)
	if errors.Is(err, routers.ErrPathNotFound) || errors.Is(err, routers.ErrMethodNotAllowed) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}}
	if w.Code < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), in); err != nil {
			t.Errorf("%s %s %s was taken, and is not described: %v", method, path, body, err)
		}
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(), Options: in.Options}
	if err := openapi3filter.ValidateResponse(t.Context(), answer.SetBodyBytes(w.Body.Bytes())); err != nil {
		t.Errorf("%s %s was answered as is not described: %v", method, path, err)
	}
}

func TestTheDocumentDescribesEveryRoute(t *testing.T) {
	doc, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	names := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			documented = append(documented, method+" "+path)
			if operation.OperationID == "" || operation.Summary == "" || names[operation.OperationID] {
				t.Errorf("%s %s: want an operationId of its own and a summary", method, path)
			}
			names[operation.OperationID] = true
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(documented, slices.Sorted(slices.Values(httpapi.Routes()))); diff != "" {
		t.Errorf("routes (-documented +served):\n%s", diff)
	}
}

func TestTheDocumentNamesTheSameValues(t *testing.T) {
	doc, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func(string) bool{
		"MessageType": func(s string) bool { return mailbox.Type(s).Known() },
		"Code": func(s string) bool {
			return strings.Contains(httpError(t, "POST", "/v1/mailbox/messages/x/nack", `{}`), s)
		},
		"TaskState": func(s string) bool {
			return strings.Contains(httpError(t, "GET", "/v1/mailbox/tasks?state=x", ""), s)
		},
		"TaskStep": func(s string) bool { return strings.Contains(httpError(t, "POST", "/v1/mailbox/tasks/x", `{}`), s) },
	} {
		values := doc.Components.Schemas[name].Value.Enum
		if len(values) < 5 {
			t.Errorf("%s: %v", name, values)
		}
		for _, v := range values {
			if !check(v.(string)) {
				t.Errorf("%s: the API knows no %q", name, v)
			}
		}
	}
}

func httpError(t *testing.T, method, path, body string) string {
	t.Helper()
	return wantError(t, call(t, withMailbox(newBox()), method, path, body), 400, "INVALID_MESSAGE")
}

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
