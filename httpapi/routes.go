package httpapi

import (
	"fmt"
	"net/http"
	"strings"
)

// route is one thing that the API does.
type route struct {
	method, path string // path is a pattern of http.ServeMux
	handle       func(*api, http.ResponseWriter, *http.Request)
	kind         kind
}

// kind says what a route needs besides its handler. Kinds add up.
type kind int

const (
	forAll       kind = 1 << iota // answers everybody: no token, any host
	longLived                     // holds the connection; see api.live
	needsMailbox                  // there with MAILBOX=on only
)

// routes are all routes. docs/openapi.yaml describes each.
func routes() []route {
	return []route{
		{"GET", "/v1", (*api).index, 0},
		{"GET", "/v1/status", (*api).status, 0},
		{"GET", "/v1/stream", (*api).stream, longLived},
		{"GET", "/v1/events", (*api).events, longLived},
		{"GET", "/v1/transcripts", (*api).transcripts, 0},
		{"GET", "/v1/transcripts/{channel}/{chat_id}", (*api).transcript, 0},
		{"GET", "/v1/outcomes", (*api).outcomes, 0},
		{"POST", "/v1/outbound", (*api).outbound, 0},
		{"POST", "/v1/inbound", (*api).inbound, 0},
		{"POST", "/v1/decide", (*api).decide, 0},
		{"POST", "/v1/send", (*api).say, 0},
		{"GET", "/v1/deliveries", (*api).deliveries, 0},
		{"POST", "/v1/deliveries/{relay_msg_id}", (*api).settleDelivery, 0},

		{"GET", "/v1/peers", (*api).peers, 0},
		{"POST", "/v1/peers/{agent}/messages", (*api).sendToPeer, needsMailbox},
		{"GET", "/v1/peers/self/goals", (*api).goals, needsMailbox},
		{"POST", "/v1/peers/self/goals", (*api).addGoal, needsMailbox},
		{"DELETE", "/v1/peers/self/goals/{goal}", (*api).removeGoal, needsMailbox},

		{"GET", "/v1/mailbox/agents", (*api).agents, needsMailbox},
		{"GET", "/v1/mailbox/agents/{agent}", (*api).agent, needsMailbox},
		{"GET", "/v1/mailbox/inbox", (*api).inbox, needsMailbox},
		{"POST", "/v1/mailbox/inbox/drain", (*api).drain, needsMailbox},
		{"POST", "/v1/mailbox/messages", (*api).sendMail, needsMailbox},
		{"POST", "/v1/mailbox/messages/{id}/ack", (*api).ack, needsMailbox},
		{"POST", "/v1/mailbox/messages/{id}/nack", (*api).nack, needsMailbox},
		{"GET", "/v1/mailbox/tasks", (*api).tasks, needsMailbox},
		{"POST", "/v1/mailbox/tasks", (*api).sendTask, needsMailbox},
		{"GET", "/v1/mailbox/tasks/{id}", (*api).task, needsMailbox},
		{"POST", "/v1/mailbox/tasks/{id}", (*api).updateTask, needsMailbox},
		{"GET", "/v1/mailbox/dead-letters", (*api).deadLetters, needsMailbox},
		{"POST", "/v1/mailbox/dead-letters/{id}/replay", (*api).replay, needsMailbox},
		{"GET", "/v1/mailbox/schemas", (*api).schemas, needsMailbox},
		{"GET", "/v1/mailbox/schemas/{name}", (*api).schema, needsMailbox},
		{"GET", "/v1/mailbox/ws", (*api).line, needsMailbox | longLived},
		{"POST", "/mcp", (*api).mcp, 0},

		{"GET", "/ca.pem", (*api).ca, 0},
		{"GET", "/metrics", (*api).metrics, 0},
		{"GET", "/healthz", (*api).healthz, forAll},
		{"GET", "/readyz", (*api).readyz, forAll},
		{"GET", "/{$}", (*api).viewer, 0},
		{"GET", "/viewer/{file}", (*api).viewer, 0},
		{"POST", "/sign-in", (*api).signIn, forAll},
		{"POST", "/sign-out", (*api).signOut, forAll},
	}
}

// Routes lists what the API does, as "GET /v1/status"; names in braces stand
// for a part of the path.
func Routes() []string {
	var list []string
	for _, r := range routes() {
		list = append(list, r.method+" "+strings.TrimSuffix(r.path, "{$}"))
	}
	return list
}

// mount enters the routes into the mux for all and the one behind the guard.
func (a *api) mount(all, guarded *http.ServeMux) {
	for _, r := range routes() {
		handle := func(w http.ResponseWriter, req *http.Request) { r.handle(a, w, req) }
		if r.kind&longLived != 0 {
			handle = a.live(handle)
		}
		if r.kind&needsMailbox != 0 && a.Mailbox == nil {
			handle = a.mailboxOff
		}
		mux := guarded
		if r.kind&forAll != 0 {
			mux = all
		}
		mux.HandleFunc(r.method+" "+r.path, handle)
	}
}

// index serves GET /v1: the routes, one a line.
func (a *api) index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var text strings.Builder
	text.WriteString("feishu-relay\n\n")
	for _, r := range Routes() {
		method, path, _ := strings.Cut(r, " ")
		fmt.Fprintf(&text, "%-6s %s\n", method, path)
	}
	_, _ = w.Write([]byte(text.String())) // the caller has gone
}
