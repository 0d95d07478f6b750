package feishusim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxControlBody is the most bytes of a body of the control API.
const maxControlBody = 1 << 20

// control serves the API under /sim/, for this machine only and not for web
// pages.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	handle(mux, "POST /sim/apps", func(a App) (any, error) { return s.addApp(a) })
	handle(mux, "PATCH /sim/apps", func(a App) (any, error) { return s.UpdateApp(a) })
	handle(mux, "POST /sim/users", func(u User) (any, error) { return s.addUser(u.Name) })
	handle(mux, "POST /sim/groups", func(g Group) (any, error) { return s.addGroup(g) })
	handle(mux, "PATCH /sim/groups", func(g Group) (any, error) { return s.UpdateGroup(g) })
	handle(mux, "POST /sim/say", func(u Utterance) (any, error) {
		id, err := s.Post(u)
		return map[string]string{"message_id": id}, err
	})
	for verb, do := range map[string]func(place) error{
		"join":    func(p place) error { return s.Join(p.Group, p.Member) },
		"leave":   func(p place) error { return s.Leave(p.Group, p.Member) },
		"disband": func(p place) error { return s.Disband(p.Group, p.Status) },
		"reid":    func(p place) error { return s.Reid(p.App) },
		"recall":  func(p place) error { return s.RecallBy(p.Message, p.User) },
		"react":   func(p place) error { return s.React(p.Message, p.User, p.Emoji) },
		"revoke":  func(p place) error { s.RevokeTokens(p.App); return nil },
	} {
		handle(mux, "POST /sim/"+verb, func(p place) (any, error) { return nil, do(p) })
	}
	handle(mux, "POST /sim/faults", func(f struct {
		Fault
		MS int64 `json:"delay_ms"`
	}) (any, error) {
		f.Delay = time.Duration(f.MS) * time.Millisecond
		return nil, s.addFault(f.Fault)
	})
	for pattern, show := range map[string]func(asked func(string) string) (any, error){
		"DELETE /sim/faults": func(func(string) string) (any, error) { s.ClearFaults(); return nil, nil },
		"GET /sim/state":     func(func(string) string) (any, error) { return s.State(), nil },
		"GET /sim/messages": func(asked func(string) string) (any, error) {
			return map[string]any{"messages": slices.Concat([]Message{}, s.Messages(asked("chat")))}, nil
		},
		"GET /sim/requests": func(func(string) string) (any, error) {
			return map[string]any{"requests": s.Requests()}, nil
		},
		"GET /sim/deliveries": func(asked func(string) string) (any, error) {
			app, message := asked("app"), asked("message")
			return map[string]any{"deliveries": slices.DeleteFunc(s.Deliveries(), func(d Delivery) bool {
				return app != "" && d.App != app || message != "" && d.MessageID != message
			})}, nil
		},
		"GET /sim/openid": func(asked func(string) string) (any, error) { return s.lookUp(asked("app"), asked("of")) },
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := show(r.FormValue)
			answer(w, v, err)
		})
	}
	protected := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.RemoteAddr) || !local(r.Host) {
			answer(w, nil, &apiError{status: http.StatusForbidden, msg: "/sim/ is for this machine only, by a loopback address"})
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// local reports whether an address or Host header is a loopback address.
func local(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// place is the parameters that identify objects in the control API.
type place struct {
	Group   string `json:"group"`
	Member  string `json:"member"`
	Message string `json:"message_id"`
	App     string `json:"app"`
	User    string `json:"user"`
	Emoji   string `json:"emoji_type"`
	Status  string `json:"status"`
}

// handle adds a route that decodes the body.
func handle[T any](mux *http.ServeMux, pattern string, do func(T) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in T
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBody))
		if err == nil {
			err = decode(body, &in)
		}
		if err != nil {
			answer(w, nil, fmt.Errorf("body: %w", err))
			return
		}
		out, err := do(in)
		answer(w, out, err)
	})
}

// decode reads JSON in which unknown fields are an error.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		status := http.StatusBadRequest
		if e, ok := errors.AsType[*apiError](err); ok {
			status, err = e.status, errors.New(e.msg)
		}
		writeJSON(w, status, map[string]string{"error": err.Error()})
		return
	}
	if v == nil {
		v = map[string]any{}
	}
	writeJSON(w, http.StatusOK, v)
}

// State is all apps, users and groups.
type State struct {
	Apps   []AppState `json:"apps"`
	Users  []User     `json:"users"`
	Groups []Group    `json:"groups"`
}

// AppState is an app and its current state.
type AppState struct {
	App
	Connections int `json:"connections"` // ready for events
	Waiting     int `json:"waiting"`     // events that are not acknowledged
}

// State returns all apps, users and groups, in the order of their creation,
// secrets included.
func (s *Server) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{Apps: []AppState{}, Users: []User{}, Groups: []Group{}}
	for _, id := range s.order {
		if u := s.users[id]; u != nil {
			out.Users = append(out.Users, *u)
			continue
		}
		a := s.apps[id]
		out.Apps = append(out.Apps, AppState{a.App, len(a.ready()), len(a.pending)})
	}
	for _, c := range s.chats {
		if c.mode != modeP2P {
			out.Groups = append(out.Groups, c.group())
		}
	}
	slices.SortFunc(out.Groups, func(a, b Group) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return out
}

// lookUp returns the ids of an app or user, as an app sees it.
func (s *Server) lookUp(app, of string) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	viewer, err := s.entity(app)
	if err != nil {
		return nil, err
	}
	entity, err := s.entity(of)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"open_id": s.openID(viewer, entity), "union_id": s.unionID(entity), "name": s.name(entity)}, nil
}
