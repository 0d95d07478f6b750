// Package web is the common code of the HTTP APIs: routes, reading and writing
// JSON, and error answers.
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

// Limits of long connections.
const (
	KeepAlive    = 15 * time.Second // silence after which a comment or a ping is sent
	WriteTimeout = 10 * time.Second // for one message; after that the reader counts as gone

	// StatusReplaced closes the WebSocket of a reader that another one replaced.
	// The codes from 4000 on are for applications.
	StatusReplaced websocket.StatusCode = 4001
)

// Causes of the end of a long connection.
var (
	ErrReplaced = errors.New("a newer reader has taken over")
	ErrStopping = errors.New("the sidecar stops")
)

// Route is one operation of an API.
type Route struct {
	Pattern string // of http.ServeMux, such as "GET /v1/status"
	Handle  http.HandlerFunc
	Kind    Kind
}

// Kind is how a route is guarded and how long it runs.
type Kind int

const (
	Guarded   Kind = iota // only authorised callers are answered
	LongLived             // guarded, and holds the connection
	People                // guarded, and refuses the bot where people have a token of their own
	Public                // answers all callers: no token, any host
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

// Handler returns the answer to a request, or an error.
type Handler func(*http.Request) (answer any, err error)

// Serve answers with the result of handle and status, or with fail if handle
// returns an error. A body may have maxBody bytes.
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

// WriteJSON answers with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // fails if the caller is gone
}

// ReadBody reads the body of a request, which [Serve] bounds. It must be UTF-8.
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

// Unfit explains an error of decoding JSON, and returns the field if it is
// known.
func Unfit(err error) (field, reason string) {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return e.Field, fmt.Sprintf("want %s, got %s", jsonType(e.Type), e.Value)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return "", fmt.Sprintf("the body is not JSON: error at byte %d", e.Offset)
	}
	return "", "the body is not a JSON object of the expected form"
}

// jsonType is the JSON type of t, as a phrase.
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

// Accept accepts the request for a WebSocket on a [LongLived] route, whose origin
// has been checked. After an error it has answered already.
func Accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	return websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
}

// List is v, or an empty list for nil, which JSON would write as null.
func List[T any](v []T) []T { return append([]T{}, v...) }
