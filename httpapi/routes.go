package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"feishu-relay/group"
	"feishu-relay/httpapi/viewer"
	"feishu-relay/internal/web"
	"feishu-relay/internal/webapi"
)

// mount adds the routes to the mux for all callers and to the guarded one.
// docs/openapi.yaml describes each route.
func (a *api) mount(all, guarded *http.ServeMux) {
	const ok, accepted = http.StatusOK, http.StatusAccepted
	page, w := viewer.Handler().ServeHTTP, a.web
	a.routes = []web.Route{
		web.On("GET /v1", a.index),
		webapi.JSON(w, "GET /v1/status", ok, a.status),
		web.On("GET /v1/selftest", func(w http.ResponseWriter, r *http.Request) { a.SelfTest(w, r) }),
		web.On("GET /v1/stream", a.stream).As(web.LongLived),
		web.On("GET /v1/events", a.events).As(web.LongLived),
		webapi.JSON(w, "GET /v1/transcripts", ok, a.transcripts),
		webapi.JSON(w, "GET /v1/transcripts/{channel}/{chat_id}", ok, a.transcript),
		web.On("GET /v1/messages/{message_id}/files/{key}", a.file),
		webapi.JSON(w, "GET /v1/outcomes", ok, a.outcomes),
		webapi.JSON(w, "GET /v1/groups", ok, a.groups),
		webapi.JSON(w, "GET /v1/groups/{chat}", ok, a.group),
		webapi.JSON(w, "PATCH /v1/groups/{chat}", ok, a.patchGroup).As(web.People),
		webapi.JSON(w, "DELETE /v1/groups/{chat}/settings", ok, a.change(group.VerbForget)).As(web.People),
		webapi.JSON(w, "POST /v1/groups/{chat}/continue", ok, a.continueGroup).As(web.People),
		webapi.JSON(w, "POST /v1/groups/{chat}/stop", ok, a.change(group.VerbStop)).As(web.People),
		webapi.JSON(w, "POST /v1/outbound", accepted, a.outbound),
		webapi.JSON(w, "POST /v1/inbound", accepted, a.inbound),
		webapi.JSON(w, "POST /v1/decide", ok, a.decide),
		webapi.JSON(w, "POST /v1/send", ok, a.say),
		webapi.JSON(w, "GET /v1/deliveries", ok, a.deliveries),
		webapi.JSON(w, "POST /v1/deliveries/{relay_msg_id}", ok, a.settleDelivery),
	}
	if a.Mail != nil {
		a.routes = append(a.routes, a.Mail.Routes()...)
	}
	a.routes = append(a.routes,
		web.On("GET /ca.pem", a.ca),
		web.On("GET /metrics", a.metrics),
		webapi.JSON(w, "GET /healthz", ok, a.healthz).As(web.Public),
		webapi.JSON(w, "GET /readyz", ok, a.readyz).As(web.Public),
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
