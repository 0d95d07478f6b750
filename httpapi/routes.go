package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"feishu-relay/httpapi/viewer"
	"feishu-relay/internal/web"
)

// mount adds the routes to the mux for all callers and to the guarded one.
// docs/openapi.yaml describes each route.
func (a *api) mount(all, guarded *http.ServeMux) {
	ok, accepted := http.StatusOK, http.StatusAccepted
	page := viewer.Handler().ServeHTTP
	a.routes = []web.Route{
		web.On("GET /v1", a.index),
		web.On("GET /v1/status", a.json(ok, a.status)),
		web.On("GET /v1/stream", a.stream).As(web.LongLived),
		web.On("GET /v1/events", a.events).As(web.LongLived),
		web.On("GET /v1/transcripts", a.json(ok, a.transcripts)),
		web.On("GET /v1/transcripts/{channel}/{chat_id}", a.json(ok, a.transcript)),
		web.On("GET /v1/messages/{message_id}/files/{key}", a.file),
		web.On("GET /v1/outcomes", a.json(ok, a.outcomes)),
		web.On("GET /v1/groups", a.json(ok, a.groups)),
		web.On("GET /v1/groups/{chat}", a.json(ok, a.bare(Groups.Group))),
		web.On("PATCH /v1/groups/{chat}", a.json(ok, ofGroup(a.patchGroup))).As(web.People),
		web.On("DELETE /v1/groups/{chat}/settings", a.json(ok, a.bare(Groups.Forget))).As(web.People),
		web.On("POST /v1/groups/{chat}/continue", a.json(ok, ofGroup(a.continueGroup))).As(web.People),
		web.On("POST /v1/groups/{chat}/stop", a.json(ok, a.bare(Groups.Stop))).As(web.People),
		web.On("POST /v1/outbound", a.json(accepted, a.outbound)),
		web.On("POST /v1/inbound", a.json(accepted, a.inbound)),
		web.On("POST /v1/decide", a.json(ok, a.decide)),
		web.On("POST /v1/send", a.json(ok, a.say)),
		web.On("GET /v1/deliveries", a.json(ok, a.deliveries)),
		web.On("POST /v1/deliveries/{relay_msg_id}", a.json(ok, a.settleDelivery)),
	}
	if a.Mail != nil {
		a.routes = append(a.routes, a.Mail.Routes()...)
	}
	a.routes = append(a.routes,
		web.On("GET /ca.pem", a.ca),
		web.On("GET /metrics", a.metrics),
		web.On("GET /healthz", a.json(ok, a.healthz)).As(web.Public),
		web.On("GET /readyz", a.json(ok, a.readyz)).As(web.Public),
		web.On("GET /{$}", page).As(web.People),
		web.On("GET /viewer/{file}", page).As(web.People),
		web.On("POST /sign-in", a.signIn).As(web.Public),
		web.On("POST /sign-out", a.signOut).As(web.Public),
	)
	for _, r := range a.routes {
		switch r.Kind {
		case web.Public:
			all.HandleFunc(r.Pattern, r.Handle)
			guarded.HandleFunc(r.Pattern, r.Handle) // only to answer other methods with 405
		case web.LongLived:
			guarded.HandleFunc(r.Pattern, a.live(r.Handle))
		case web.People:
			guarded.HandleFunc(r.Pattern, a.people(r.Handle))
		default:
			guarded.HandleFunc(r.Pattern, r.Handle)
		}
	}
}

// index serves GET /v1: the routes, one a line. Names in braces are parts of the
// path.
func (a *api) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var text strings.Builder
	text.WriteString("feishu-relay\n\n")
	for _, r := range a.routes {
		method, path, _ := strings.Cut(strings.TrimSuffix(r.Pattern, "{$}"), " ")
		fmt.Fprintf(&text, "%-6s %s\n", method, path)
	}
	_, _ = w.Write([]byte(text.String())) // fails if the caller is gone
}
