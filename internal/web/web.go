// Package web is what the HTTP APIs share: their routes, reading and writing of
// JSON, and how a refusal is answered.
package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"feishu-relay/relay"
)

// Of long connections.
const (
	KeepAlive    = 15 * time.Second // silence after which a comment or a ping is sent
	WriteTimeout = 10 * time.Second // for one message; then the reader counts as gone

	// StatusReplaced closes the WebSocket of a reader whose place was taken. The
	// codes from 4000 on are for applications.
	StatusReplaced websocket.StatusCode = 4001
)

// Causes of the end of a long connection.
var (
	ErrReplaced = errors.New("a newer reader has taken over")
	ErrStopping = errors.New("the sidecar stops")
)

// Route is one thing that an API does.
type Route struct {
	Pattern string // of http.ServeMux, as "GET /v1/status"
	Handle  http.HandlerFunc
	Kind    Kind
}

// Kind says what is special about a route.
type Kind int

const (
	Guarded   Kind = iota // only who may call is answered
	LongLived             // likewise, and it holds the connection
	Public                // answers everybody: no token, any host
)

// On is a guarded route.
func On(pattern string, handle http.HandlerFunc) Route {
	return Route{Pattern: pattern, Handle: handle}
}

// As returns r as a route of another kind.
func (r Route) As(k Kind) Route {
	r.Kind = k
	return r
}

// Handler returns what to answer to a request, or why not.
type Handler func(*http.Request) (answer any, err error)

// Serve answers by handle, with status where it succeeds and by fail where not. A
// body may have maxBody bytes.
func Serve(status int, maxBody int64, handle Handler,
	fail func(http.ResponseWriter, *http.Request, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		answer, err := handle(r)
		if err != nil {
			fail(w, r, err)
			return
		}
		WriteJSON(w, status, answer)
	}
}

// WriteJSON answers v.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the caller has gone
}

// ReadBody reads the body of a request that [Serve] bounds. It has to be UTF-8.
func ReadBody(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, relay.Errorf(relay.CodeTooLarge, "the body has more than %d bytes", e.Limit)
	}
	if err != nil {
		return nil, Invalid("the body could not be read to its end")
	}
	if !utf8.Valid(data) {
		return nil, Invalid("the body is not UTF-8")
	}
	return data, nil
}

// Unfit explains why JSON did not fit, and names the field where that is known.
func Unfit(err error) (field, reason string) {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return e.Field, fmt.Sprintf("want %s, got %s", jsonType(e.Type), e.Value)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return "", fmt.Sprintf("the body is no JSON: error at byte %d", e.Offset)
	}
	return "", "the body is no JSON object of the expected form"
}

// jsonType is what t is in JSON.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	}
	return "a number"
}

// Limit reads the query's limit, a number from 1 to most; without one it is byDefault.
func Limit(r *http.Request, byDefault, most int) (n int, ok bool) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return byDefault, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= most
}

// IsUpgrade reports whether r asks for a WebSocket.
func IsUpgrade(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// Accept answers the request for a WebSocket on a route that is [LongLived], whose
// origin has been checked. On an error it has answered already.
func Accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	return websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
}

// List is v, or an empty list for nil, which JSON would write as null.
func List[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}
