// Package httpapi is the local HTTP API for the bot, viewers and operators.
// Every answer is JSON; an error is {"error":{"code":"…","message":"…"}} with a
// message that explains how to fix it.
//
// # Streams
//
// [Stream] delivers inbound messages to one reader, the bot, by server-sent
// events or a WebSocket; [Events] sends all events to any number of watchers
// and settles nothing. The routes for direct messages between agents are those
// of package mailapi, served here behind the same checks.
//
// docs/openapi.yaml describes every route.
//
// # Who may call
//
// With a token every route except /healthz and /readyz requires it as
// `Authorization: Bearer …`, or a browser's session that began with it (POST
// /sign-in). With an AdminToken sessions begin with that one, the token of the bot
// steers nothing (routes of [web.People]), and AdminToken opens all routes.
// Without a token the server listens on loopback only, and refuses
// requests that a web page could make a browser send: another host name (DNS
// rebinding) or another origin.
package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"feishu-relay/dedup"
	"feishu-relay/internal/attempts"
	"feishu-relay/internal/web"
	"feishu-relay/internal/weborigin"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// maxBody is the most bytes of a request's body; a larger one is refused with
// 413. A text that does not fit into a relay line is cut there.
const maxBody = 4 << 20

// Transcripts are the records that the API shows.
type Transcripts interface {
	Chats() ([]transcript.Chat, error)
	Page(channel, chatID string, q transcript.Query) (transcript.Page, error)
}

// Mail is the API of direct messages between agents.
type Mail interface {
	Routes() []web.Route
	// Outbound sends a message that a bot reports on the channel [relay.MailChannel].
	// Its error is a [*relay.Error].
	Outbound(r *http.Request, out relay.Outbound) (answer any, err error)
}

// Options of the API. All functions are required.
type Options struct {
	Token       string        // "" on loopback only
	AdminToken  string        // for people; "": Token is theirs, too
	Name        string        // of the sidecar; the session cookie is named after it
	Ended       *dedup.Window // signed-out sessions, at least [MaxEnded]; nil: in memory only
	Send        func(context.Context, relay.Outbound) (relay.Sent, error)
	Hear        func(ctx context.Context, h relay.Heard, steers bool) (relay.Sent, error) // false: h is no command
	Decide      func(context.Context, relay.Question) (any, error)
	Status      func() any
	Ready       func() error
	Visible     func(channel string, chat relay.ChatID) bool // whether the bot is in the chat
	Transcripts Transcripts
	Groups      Groups
	Notices     Notices                                       // nil: no notices are shown
	Group       func(channel string, chat relay.ChatID) Group // nil: names and limits are not shown
	Depths      func([]transcript.Entry) []int                // of each entry, counted among all; nil: not shown
	Stream      *Stream                                       // nil: INJECT_URL delivers
	Deliveries  Deliveries                                    // nil: no deliveries to a bot
	Say         func(context.Context, Saying) (any, error)    // POST /v1/send; nil: no connector
	File        OpenFile                                      // GET /v1/messages/{message_id}/files/{key}
	CA          []byte                                        // the gateway's certificate authority, PEM; may be nil
	Events      *Events
	Outcomes    Outcomes
	Mail        Mail // nil: no routes for mail
	Metrics     http.Handler
	Failures    *attempts.Failures // counts wrong tokens; nil: of this API alone
	Logger      *slog.Logger
}

type api struct {
	Options
	sessions *sessions
	routes   []web.Route
}

// New returns the handler of all routes.
func New(o Options) http.Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Failures == nil {
		o.Failures = attempts.New()
	}
	a := &api{Options: o, sessions: newSessions(cmp.Or(o.AdminToken, o.Token), o.Name, o.Ended)}
	mux, guarded := http.NewServeMux(), http.NewServeMux()
	a.mount(mux, guarded)
	mux.Handle("/", a.guard(jsonErrors(guarded)))
	return mux
}

// guard serves authorised requests and refuses others.
func (a *api) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		session, forged := "", false
		if a.Token != "" {
			given, ok := bearer(r)
			if !ok {
				session, forged = a.sessions.of(r)
			}
			switch {
			case ok && (isToken(given, a.Token) || isToken(given, a.sessions.token)), session != "":
			case (ok || forged) && a.tooMany(w, r):
				if forged && wantsPage(r) {
					a.signInPage(w, r, http.StatusTooManyRequests, "")
					return
				}
				web.WriteError(w, errTooMany)
				return
			case wantsPage(r):
				a.signInPage(w, r, http.StatusUnauthorized, "")
				return
			default:
				w.Header().Set("WWW-Authenticate", `Bearer realm="feishu-relay"`)
				why := "send this sidecar's API_TOKEN in the header Authorization: Bearer <API_TOKEN>"
				if ok || forged {
					why = "the token is wrong; " + why
				}
				web.WriteError(w, &relay.Error{Code: web.CodeUnauthorized, Message: why})
				return
			}
		} else if !localHost(r.Host) {
			web.WriteError(w, relay.Errorf(web.CodeForbiddenHost,
				"without API_TOKEN only requests to localhost are answered"))
			return
		}
		// another page's link to the viewer
		link := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate"
		if !link && weborigin.Foreign(nil, r) {
			web.WriteError(w, errCrossOrigin)
			return
		}
		if session != "" {
			a.sessions.serve(next, w, r, session)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func bearer(r *http.Request) (token string, ok bool) {
	return strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// byPerson reports whether a request that guard lets pass is a person's: all are without ADMIN_TOKEN.
func (a *api) byPerson(r *http.Request) bool {
	given, ok := bearer(r)
	return a.AdminToken == "" || !ok || isToken(given, a.AdminToken)
}

// people serves what is a person's alone.
func (a *api) people(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.byPerson(r) {
			web.WriteError(w, errPeople)
			return
		}
		next(w, r)
	}
}

var errPeople = relay.Errorf(web.CodeAdminToken, "this needs ADMIN_TOKEN, the token for people; API_TOKEN is the bot's")

// live refuses requests that must not hold a stream: a HEAD request, which
// would take the bot's messages and discard them, and a request from another
// site's page, which guard allows for links.
func (a *api) live(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Content-Type", "text/event-stream")
			return
		}
		if weborigin.Foreign(nil, r) {
			web.WriteError(w, errCrossOrigin)
			return
		}
		next(w, r)
	}
}

var errCrossOrigin = relay.Errorf(web.CodeCrossOrigin, "requests from other web pages are not answered")

// localHost reports whether a Host header names this machine.
func localHost(hostport string) bool {
	return weborigin.Loopback(hostport) || strings.HasSuffix(weborigin.Name(hostport), ".localhost")
}

func (a *api) healthz(*http.Request) (any, error) { return alive, nil }

var alive = map[string]string{"status": "alive"}

func (a *api) readyz(*http.Request) (any, error) {
	if err := a.Ready(); err != nil {
		return nil, &relay.Error{Code: web.CodeNotReady, Message: err.Error()}
	}
	return map[string]string{"status": "ready"}, nil
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request) { a.Metrics.ServeHTTP(w, r) }

func (a *api) status(*http.Request) (any, error) { return a.Status(), nil }

// json serves what handle returns.
func (a *api) json(status int, handle web.Handler) http.HandlerFunc {
	return web.Serve(status, maxBody, handle, a.fail)
}

// fail answers with err, and logs an error whose text the caller does not get.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	if _, ok := errors.AsType[*relay.Error](err); !ok && r.Context().Err() == nil {
		a.Logger.Error("request failed", "route", r.Pattern, "err", err)
	}
	web.WriteError(w, err)
}

// readJSON reads a request's body into v. Unknown fields are ignored.
func readJSON(r *http.Request, v any) error {
	data, err := web.ReadBody(r)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errEmpty
	}
	if err := json.Unmarshal(data, v); err != nil {
		if errors.Is(err, relay.ErrTime) {
			return web.Invalid("ts: %v", err)
		}
		field, reason := web.Unfit(err)
		if field != "" {
			return web.Invalid("field %q: %s", field, reason)
		}
		return web.Invalid("%s", reason)
	}
	return nil
}

var errEmpty = web.Invalid("the body is empty; it must be a JSON object")

// jsonErrors turns the mux's own plain answers (no such route, wrong method)
// into the API's format.
func jsonErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		probe := &statusOnly{header: w.Header()}
		mux.ServeHTTP(probe, r)
		err := relay.Errorf(web.CodeNotFound, "no such route; GET /v1 lists them")
		if probe.status == http.StatusMethodNotAllowed {
			err = relay.Errorf(web.CodeMethodNotAllowed, "allowed here: %s", w.Header().Get("Allow"))
		}
		web.WriteError(w, err)
	})
}

type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
