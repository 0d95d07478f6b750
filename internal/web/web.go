// Package web is the common code of the HTTP APIs: routes, JSON, error answers, and long connections.
package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/coder/websocket"
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

	In, Out reflect.Type // of its request and answer; nil: they have no type
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

// IsUpgrade reports whether r asks for a WebSocket.
func IsUpgrade(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// Accept accepts the request for a WebSocket on a [LongLived] route, whose origin
// has been checked. After an error it has answered already.
func Accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	return websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
}

// List is v, or an empty list for nil, which JSON would write as null.
func List[T any](v []T) []T { return append([]T{}, v...) }
