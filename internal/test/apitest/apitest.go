// Package apitest is what the tests of the HTTP APIs share.
package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// Patience is how long a test waits for what must come; then it fails.
const Patience = 30 * time.Second

// ErrBehind is an error of what is behind the API. Its text must reach no caller.
var ErrBehind = errors.New("SECRET cause")

// Ask sends one request to api without a network in between.
func Ask(api http.Handler, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:8787"+path, strings.NewReader(body))
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}

// Call is [Ask], and checks that docs/openapi.yaml describes the answer, and the
// request where it was accepted.
func Call(t testing.TB, api http.Handler, method, path, body string,
	change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	w := Ask(api, method, path, body, change...)
	Described(t, method, path, body, w)
	return w
}

// Routes are the routes that GET /v1 lists, as "GET /v1/status".
func Routes(t testing.TB, api http.Handler) (routes []string) {
	t.Helper()
	for line := range strings.Lines(Ask(api, "GET", "/v1", "").Body.String()) {
		if method, path, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			routes = append(routes, method+" "+strings.TrimSpace(path))
		}
	}
	if len(routes) < 2 {
		t.Fatalf("GET /v1 lists %q", routes)
	}
	return routes
}

// Header sets a header of a request.
func Header(key, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(key, value) }
}

// Object decodes a JSON object.
func Object(t testing.TB, data []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&v); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return v
}

// Until waits for what another goroutine does; each look is cheap.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// WantError checks that an answer is an error in the API's form.
func WantError(t testing.TB, w *httptest.ResponseRecorder, status int, code string) (message string) {
	t.Helper()
	var got struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatalf("got %d %q: %v", w.Code, w.Body, err)
	}
	if w.Code != status || got.Error.Code != code || got.Error.Message == "" {
		t.Errorf("got %d %s, want %d %s", w.Code, w.Body, status, code)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json; charset=utf-8" {
		t.Errorf("content type: got %q", got)
	}
	return got.Error.Message
}

// Contract is docs/openapi.yaml, for a test in a folder at the top.
var Contract = sync.OnceValues(func() (*openapi3.T, error) {
	loader := openapi3.NewLoader()
	doc, err := loader.LoadFromFile("../docs/openapi.yaml")
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(loader.Context)
})

var contractRoutes = sync.OnceValues(func() (routers.Router, error) {
	doc, err := Contract()
	if err != nil {
		return nil, err
	}
	openapi3filter.RegisterBodyDecoder("application/schema+json", openapi3filter.JSONBodyDecoder)
	for _, kind := range []string{"application/x-pem-file", "text/html", "text/css", "text/javascript", "image/svg+xml"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.FileBodyDecoder)
	}
	return gorillamux.NewRouter(doc)
})

// Described checks an answer against the document, and its request if it was
// taken. A path without a route is not described.
func Described(t testing.TB, method, path, body string, w *httptest.ResponseRecorder) {
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
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			IncludeResponseStatus: true}}
	if w.Code < 300 {
		if err := openapi3filter.ValidateRequest(t.Context(), in); err != nil {
			t.Errorf("%s %s %s was taken, and is not described: %v", method, path, body, err)
		}
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Header(),
		Options: in.Options}
	if err := openapi3filter.ValidateResponse(t.Context(), answer.SetBodyBytes(w.Body.Bytes())); err != nil {
		t.Errorf("%s %s was answered as is not described: %v", method, path, err)
	}
}
