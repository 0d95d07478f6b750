// Package httpapi is the local API: what the bot, watchers and operators reach
// over HTTP. Every answer is JSON; an error is
// {"error":{"code":"…","message":"…"}} with a message that says how to mend it,
// and the code of a refusal by the mailbox in capitals.
//
// # Doors
//
// [Stream] is the one reader of inbound messages (server-sent events or a
// WebSocket); [Events] shows everything to any number of watchers and settles
// nothing. Direct messages between agents come and go by the routes of
// [Mailbox], one of them a WebSocket of its own ([Lines]).
//
// docs/openapi.yaml describes every route.
//
// # Who may call
//
// With a token set every route but /healthz and /readyz wants it as
// `Authorization: Bearer …`, or a browser's session that began with it (POST
// /sign-in). Without one the server listens on loopback only,
// and refuses requests that a web page could make a browser send: another host
// name (DNS rebinding) or another origin.
package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"feishu-relay/dedup"
	"feishu-relay/httpapi/viewer"
	"feishu-relay/internal/attempts"
	"feishu-relay/internal/weborigin"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// maxBody is the most bytes of a request's body; a larger one is refused with
// 413. A text that is longer than a relay line holds is cut there.
const maxBody = 4 << 20

// Transcripts is the record that the API shows.
type Transcripts interface {
	Chats() ([]transcript.Chat, error)
	Page(channel, chatID string, q transcript.Query) (transcript.Page, error)
}

// Options is what the API stands on. All functions are required.
type Options struct {
	Token       string        // "" on loopback only
	Name        string        // of the sidecar; the session cookie is named after it
	Ended       *dedup.Window // sessions that were signed out, [MaxEnded] at least; nil: a restart forgets them
	Send        func(context.Context, relay.Outbound) (relay.Sent, error)
	Hear        func(context.Context, relay.Heard) (relay.Sent, error)
	Decide      func(context.Context, relay.Question) (any, error)
	Status      func() any
	Ready       func() error
	Visible     func(channel string, chat relay.ChatID) bool // is the bot in it?
	Transcripts Transcripts
	Group       func(channel string, chat relay.ChatID) Group // nil: names and limits are not shown
	Depths      func([]transcript.Entry) []int                // of each, counted among all; nil: not shown
	Stream      *Stream                                       // nil: INJECT_URL delivers
	Deliveries  Deliveries                                    // nil: no bot is delivered to
	Say         func(context.Context, Saying) (any, error)    // POST /v1/send; nil: no connector
	CA          []byte                                        // of the gateway, PEM; nil: none
	Events      *Events
	Outcomes    Outcomes
	Mailbox     Mailbox      // nil: MAILBOX=off
	MCP         http.Handler // at /mcp; nil: none
	Lines       *Lines       // of bots at /v1/mailbox/ws; nil: nobody closes them
	Metrics     http.Handler
	Failures    *attempts.Failures  // counts wrong tokens; nil: those of this API alone
	Admitted    func(*http.Request) // is called for each request of who may call, before it is served; nil: nothing
	Logger      *slog.Logger
}

type api struct {
	Options
	sessions *sessions
	page     http.Handler
}

// New returns the handler of all routes.
func New(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Lines == nil {
		o.Lines = &Lines{}
	}
	if o.Failures == nil {
		o.Failures = attempts.New()
	}
	a := &api{Options: o, sessions: newSessions(o.Token, o.Name, o.Ended), page: viewer.Handler()}
	mux, guarded := http.NewServeMux(), http.NewServeMux()
	a.mount(mux, guarded)
	mux.Handle("/", a.guard(jsonErrors(guarded)))
	return mux
}

// guard lets in who may call.
func (a *api) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, forged := "", false
		if a.Token != "" {
			given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok {
				session, forged = a.sessions.of(r)
			}
			switch {
			case ok && a.sessions.isToken(given), session != "":
			case (ok || forged) && a.tooMany(w, r):
				if forged && wantsPage(r) {
					signInPage(w, r, http.StatusTooManyRequests, "")
					return
				}
				writeError(w, errTooMany)
				return
			case wantsPage(r):
				signInPage(w, r, http.StatusUnauthorized, "")
				return
			default:
				w.Header().Set("WWW-Authenticate", `Bearer realm="feishu-relay"`)
				why := "send this sidecar's API_TOKEN in the header Authorization: Bearer <API_TOKEN>"
				if ok || forged {
					why = "the token is wrong; " + why
				}
				writeError(w, &relay.Error{Code: codeUnauthorized, Message: why})
				return
			}
		} else if !localHost(r.Host) {
			writeError(w, relay.Errorf(codeForbiddenHost, "without API_TOKEN only requests to localhost are answered"))
			return
		}
		link := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" // another page's link to the viewer
		if !link && weborigin.Foreign(nil, r) {
			writeError(w, errCrossOrigin)
			return
		}
		if a.Admitted != nil {
			a.Admitted(r)
		}
		if session != "" {
			a.sessions.serve(next, w, r, session)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// live keeps from the streams what may look but must not hold one: a HEAD
// request, which would take the bot's messages and throw them away, and every
// foreign web page, which guard lets follow a link.
func (a *api) live(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			return
		}
		if weborigin.Foreign(nil, r) {
			writeError(w, errCrossOrigin)
			return
		}
		next(w, r)
	}
}

var errCrossOrigin = relay.Errorf(codeCrossOrigin, "requests from other web pages are not answered")

// localHost reports whether a Host header names this machine.
func localHost(hostport string) bool {
	return weborigin.Loopback(hostport) || strings.HasSuffix(weborigin.Name(hostport), ".localhost")
}

func (a *api) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "alive"})
}

func (a *api) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := a.Ready(); err != nil {
		writeError(w, &relay.Error{Code: codeNotReady, Message: err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (a *api) viewer(w http.ResponseWriter, r *http.Request)  { a.page.ServeHTTP(w, r) }
func (a *api) metrics(w http.ResponseWriter, r *http.Request) { a.Metrics.ServeHTTP(w, r) }

func (a *api) status(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, a.Status())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the caller has gone
}

// readJSON reads a request's body into v. Unknown fields are ignored.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errEmpty
	}
	if err := json.Unmarshal(data, v); err != nil {
		if errors.Is(err, relay.ErrTime) {
			return invalid("ts: %v", err)
		}
		field, says := unfit(err)
		if field != "" {
			return invalid("field %q: %s", field, says)
		}
		return invalid("%s", says)
	}
	return nil
}

var errEmpty = invalid("the body is empty; it must be a JSON object")

// readBody reads a request's body of at most limit bytes of UTF-8.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, relay.Errorf(relay.CodeTooLarge, "the body has more than %d bytes", limit)
	}
	if err != nil {
		return nil, invalid("the body could not be read to its end")
	}
	if !utf8.Valid(data) {
		return nil, invalid("the body is not UTF-8")
	}
	return data, nil
}

// unfit says why a body did not fit, and which field of it if that is known.
func unfit(err error) (field, says string) {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return e.Field, fmt.Sprintf("want %s, got %s", jsonType(e.Type), e.Value)
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return "", fmt.Sprintf("the body is no JSON: error at byte %d", e.Offset)
	}
	return "", "the body is no JSON object of the expected form"
}

// jsonType says what t is in JSON.
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

// jsonErrors turns the mux's own plain answers (no such route, wrong method)
// into the API's form.
func jsonErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		probe := &statusOnly{header: w.Header()}
		mux.ServeHTTP(probe, r)
		switch probe.status {
		case http.StatusMethodNotAllowed:
			writeError(w, relay.Errorf(codeMethodNotAllowed, "allowed here: %s", w.Header().Get("Allow")))
		default:
			writeError(w, relay.Errorf(codeNotFound, "no such route; GET /v1 lists them"))
		}
	})
}

type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
