package feishusim

import (
	"bytes"
	"context"
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

// Limits of the control API.
const (
	maxControlBody = 1 << 20
	maxWait        = 10 * time.Minute
)

// control serves the API under /sim/, for this machine only and not for web
// pages.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	handle(mux, "POST /sim/apps", func(a App) (any, error) { return locked(s, func() (App, error) { return s.addApp(a) }) })
	handle(mux, "PATCH /sim/apps", func(a App) (any, error) { return s.UpdateApp(a) })
	handle(mux, "POST /sim/users", func(u User) (any, error) { return locked(s, func() (User, error) { return s.addUser(u.Name) }) })
	handle(mux, "POST /sim/groups", func(g Group) (any, error) { return locked(s, func() (Group, error) { return s.addGroup(g) }) })
	handle(mux, "POST /sim/say", func(u Utterance) (any, error) {
		id, err := s.Post(u)
		return map[string]string{"message_id": id}, err
	})
	handle(mux, "POST /sim/join", func(p place) (any, error) { return nil, s.Join(p.Group, p.Member) })
	handle(mux, "POST /sim/leave", func(p place) (any, error) { return nil, s.Leave(p.Group, p.Member) })
	handle(mux, "POST /sim/disband", func(p place) (any, error) { return nil, s.Disband(p.Group, p.Status) })
	handle(mux, "POST /sim/reid", func(p place) (any, error) { return nil, s.Reid(p.App) })
	handle(mux, "PATCH /sim/groups", func(g Group) (any, error) { return s.UpdateGroup(g) })
	handle(mux, "POST /sim/recall", func(p place) (any, error) { return nil, s.RecallBy(p.Message, p.User) })
	handle(mux, "POST /sim/react", func(p place) (any, error) { return nil, s.React(p.Message, p.User, p.Emoji) })
	handle(mux, "POST /sim/unreact", func(p place) (any, error) { return nil, s.Unreact(p.Message, p.User, p.Emoji) })
	handle(mux, "POST /sim/verify", func(p place) (any, error) { return nil, s.Verify(s.ctx, p.App) })
	handle(mux, "POST /sim/revoke", func(p place) (any, error) { s.RevokeTokens(p.App); return nil, nil })
	handle(mux, "POST /sim/emit", func(e emission) (any, error) { return nil, s.Emit(e.App, e.Type, e.Event) })
	handle(mux, "POST /sim/faults", func(f Fault) (any, error) { return nil, s.addFault(f) })
	mux.HandleFunc("DELETE /sim/faults", func(w http.ResponseWriter, _ *http.Request) { s.ClearFaults(); answer(w, nil, nil) })
	mux.HandleFunc("GET /sim/state", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.State(), nil) })
	mux.HandleFunc("GET /sim/messages", s.controlMessages)
	mux.HandleFunc("GET /sim/requests", func(w http.ResponseWriter, _ *http.Request) { answer(w, map[string]any{"requests": s.Requests()}, nil) })
	mux.HandleFunc("DELETE /sim/requests", func(w http.ResponseWriter, _ *http.Request) { s.ForgetRequests(); answer(w, nil, nil) })
	mux.HandleFunc("GET /sim/deliveries", s.controlDeliveries)
	mux.HandleFunc("GET /sim/openid", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.lookUp(r.FormValue("app"), r.FormValue("of"))
		answer(w, v, err)
	})
	mux.HandleFunc("POST /sim/files", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFile))
		if err != nil {
			answer(w, nil, err)
			return
		}
		key, err := s.AddFile(r.FormValue("name"), data)
		answer(w, map[string]string{"key": key}, err)
	})
	mux.HandleFunc("GET /sim/events", s.controlEvents)
	mux.HandleFunc("GET /sim/{$}", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.State(), nil) })
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

// emission is an event of any type.
type emission struct {
	App   string          `json:"app"`
	Type  string          `json:"event_type"`
	Event json.RawMessage `json:"event"`
}

// handle adds a route that decodes the body, in which unknown fields are an
// error.
func handle[T any](mux *http.ServeMux, pattern string, do func(T) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in T
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxControlBody))
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(body))
			d.DisallowUnknownFields()
			err = d.Decode(&in)
		}
		if err != nil {
			answer(w, nil, fmt.Errorf("body: %w", err))
			return
		}
		out, err := do(in)
		answer(w, out, err)
	})
}

func locked[T any](s *Server, do func() (T, error)) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return do()
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
	Faults []Fault    `json:"faults"`
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
	out := State{Apps: []AppState{}, Users: []User{}, Groups: []Group{}, Faults: []Fault{}}
	for _, id := range s.order {
		if u := s.users[id]; u != nil {
			out.Users = append(out.Users, u.User)
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
	for _, f := range s.faults {
		out.Faults = append(out.Faults, f.Fault)
	}
	return out
}

// controlMessages lists messages, filtered by chat, sender, text, and the
// message they follow; with wait it blocks until there is one.
func (s *Server) controlMessages(w http.ResponseWriter, r *http.Request) {
	match, err := s.messageFilter(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	if given := r.FormValue("wait"); given != "" {
		d, err := time.ParseDuration(given)
		if err != nil || d < 0 || d > maxWait {
			answer(w, nil, fmt.Errorf("wait=%.20s: want a time like 30s, at most %s", given, maxWait))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		if _, err := s.Wait(ctx, match); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			answer(w, nil, err)
			return
		}
	}
	all := slices.DeleteFunc(s.Messages(""), func(m Message) bool { return !match(m) })
	answer(w, map[string]any{"messages": slices.Concat([]Message{}, all)}, nil)
}

func (s *Server) messageFilter(r *http.Request) (func(Message) bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var chat, from string
	var after uint64
	if ref := r.FormValue("chat"); ref != "" {
		c, err := s.chat(ref)
		if err != nil {
			return nil, err
		}
		chat = c.id
	}
	if ref := r.FormValue("from"); ref != "" {
		var err error
		if from, err = s.entity(ref); err != nil {
			return nil, err
		}
	}
	order := map[string]uint64{}
	if id := r.FormValue("after"); id != "" {
		m, err := s.messageOf(id)
		if err != nil {
			return nil, err
		}
		after = m.seq
		for _, m := range s.sent {
			if m.seq <= after {
				order[m.ID] = m.seq
			}
		}
	}
	contains := r.FormValue("contains")
	return func(m Message) bool {
		_, before := order[m.ID]
		return (chat == "" || m.ChatID == chat) && (from == "" || m.Sender == from) && !before && strings.Contains(m.Text, contains)
	}, nil
}

func (s *Server) controlDeliveries(w http.ResponseWriter, r *http.Request) {
	app, message := r.FormValue("app"), r.FormValue("message")
	all := slices.DeleteFunc(s.Deliveries(), func(d Delivery) bool {
		return app != "" && d.App != app || message != "" && d.MessageID != message
	})
	answer(w, map[string]any{"deliveries": all}, nil)
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

// controlEvents streams activities as server-sent events.
func (s *Server) controlEvents(w http.ResponseWriter, r *http.Request) {
	activities, stop, err := s.Watch()
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer stop()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return // a writer that cannot stream
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case a := <-activities:
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", a.Kind, compact(a)); err != nil || flush() != nil {
				return
			}
		}
	}
}
