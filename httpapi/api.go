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
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"feishu-relay/internal/attempts"
	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
	"feishu-relay/internal/weborigin"
	"feishu-relay/policy"
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
	Outbound(ctx context.Context, out relay.Outbound) (relay.Sent, error)
}

// Options of the API. All functions are required.
type Options struct {
	Token       string                // "" on loopback only
	AdminToken  string                // for people; "": Token is theirs, too
	Name        string                // of the sidecar; the session cookie is named after it
	SignedOut   time.Time             // when somebody signed out last: sessions that began by then are over
	SignOut     func(time.Time) error // stores that; nil: it is in memory only
	Send        func(context.Context, relay.Outbound) (relay.Sent, error)
	Hear        func(ctx context.Context, h relay.Heard, steers bool) (relay.Sent, error) // false: h is no command
	Decide      func(context.Context, relay.Question) (policy.Decision, error)
	Status      func() any
	SelfTest    http.HandlerFunc // GET /v1/selftest
	Ready       func() error
	Visible     func(channel string, chat relay.ChatID) bool // whether the bot is in the chat
	Transcripts Transcripts
	Groups      Groups
	Notices     Notices                                       // nil: no notices are shown
	Group       func(channel string, chat relay.ChatID) Group // nil: names and limits are not shown
	// Depths are those of entries of a chat, 0 where one is not known; nil: not shown.
	Depths     func(channel, chat string, entries []transcript.Entry) []int
	Stream     *Stream                                     // nil: INJECT_URL delivers
	Deliveries Deliveries                                  // nil: no deliveries to a bot
	Say        func(context.Context, Saying) (Said, error) // POST /v1/send; nil: no connector
	File       OpenFile                                    // GET /v1/messages/{message_id}/files/{key}
	CA         []byte                                      // the gateway's certificate authority, PEM; may be nil
	Events     *Events
	Outcomes   Outcomes
	Mail       Mail // nil: no routes for mail
	Metrics    http.Handler
	Failures   *attempts.Failures // counts wrong tokens; nil: of this API alone
	Logger     *slog.Logger
}

type api struct {
	Options
	web      *webapi.API
	sessions *sessions
	routes   []web.Route
}

// New returns the handler of all routes.
func New(o Options) http.Handler {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Failures = cmp.Or(o.Failures, attempts.New())
	a := &api{Options: o, sessions: newSessions(cmp.Or(o.AdminToken, o.Token), &o),
		web: &webapi.API{MaxBody: maxBody, Invalid: relay.CodeInvalidRequest, Logger: o.Logger,
			Other: relay.Errorf(web.CodeInternal, "see the sidecar's log")}}
	mux, guarded := http.NewServeMux(), http.NewServeMux()
	a.mount(mux, guarded)
	mux.Handle("/", a.guard(jsonErrors(guarded)))
	return mux
}

const bearer = "Bearer " // before a token

// guard serves authorised requests and refuses others.
func (a *api) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var live context.Context
		forged := false
		if a.Token != "" {
			given, ok := strings.CutPrefix(r.Header.Get("Authorization"), bearer)
			if !ok {
				live, forged = a.sessions.of(r)
			}
			switch {
			case ok && (isToken(given, a.Token) || isToken(given, a.sessions.token)), live != nil:
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
				web.WriteError(w, relay.Errorf(web.CodeUnauthorized, "%s", why))
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
		if live != nil {
			serve(next, w, r, live)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// byPerson reports whether a request with this authorization that guard lets pass is a person's: all are without
// ADMIN_TOKEN.
func (a *api) byPerson(authorization string) bool {
	given, ok := strings.CutPrefix(authorization, bearer)
	return a.AdminToken == "" || !ok || isToken(given, a.AdminToken)
}

// people serves what is a person's alone.
func (a *api) people(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.byPerson(r.Header.Get("Authorization")) {
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

// Health is the answer of GET /healthz and /readyz.
type Health struct {
	Status string `json:"status"`
}

var alive = Health{"alive"}

func (a *api) healthz(context.Context, webapi.None) (Health, error) { return alive, nil }

func (a *api) readyz(context.Context, webapi.None) (Health, error) {
	if err := a.Ready(); err != nil {
		return Health{}, relay.Errorf(web.CodeNotReady, "%v", err)
	}
	return Health{"ready"}, nil
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request) { a.Metrics.ServeHTTP(w, r) }

// ca serves the certificate authority that a bot's SDK must trust for TLS with
// the gateway.
func (a *api) ca(w http.ResponseWriter, _ *http.Request) {
	if len(a.CA) == 0 {
		web.WriteError(w, relay.Errorf(web.CodeNoCA, "the gateway makes its own certificates only with GATEWAY_TLS=auto"))
		return
	}
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, _ = w.Write(a.CA) // fails if the caller is gone
}

func (a *api) status(context.Context, webapi.None) (any, error) { return a.Status(), nil }

// fail answers with err, and logs an error whose text the caller does not get.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	web.WriteError(w, a.web.Refusal(r.Context(), r.Pattern, err))
}

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
