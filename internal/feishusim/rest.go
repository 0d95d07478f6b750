package feishusim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxBody is the most bytes of a request's body, except for uploads; a larger
// one is refused.
const maxBody = 1 << 20

// call is one request of an app.
type call struct {
	s    *Server
	app  *app // nil if the route needs none
	r    *http.Request
	body []byte
}

// top is an answer whose fields are next to code and msg, not under data.
type top map[string]any

type route struct {
	pattern string
	scopes  []string // one of them is needed; nil: none
	open    bool     // needs no token
	upload  bool     // the body is a form with a file
	run     func(*call) (any, error)
}

// routes returns the handler of all routes. Unknown paths get Feishu's own 404.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, table := range [][]route{authRoutes, identityRoutes, messageRoutes, readRoutes, chatRoutes, mediaRoutes,
		cardRoutes} {
		for _, rt := range table {
			mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt) })
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, route{open: true, run: func(*call) (any, error) { return nil, errNotFound }})
	})
	mux.HandleFunc("GET "+socketPath, s.socket)
	control := s.control()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/sim/") {
			control.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "//") { // a base URL with a slash at its end
			u := *r.URL
			u.Path, u.RawPath = "/"+strings.TrimLeft(u.Path, "/"), ""
			clean := *r
			clean.URL = &u
			r = &clean
		}
		mux.ServeHTTP(w, r)
	})
}

// serve runs a route and answers as Feishu does.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt route) {
	c := &call{s: s, r: r}
	err := c.receive(rt)
	planned := s.answerFault(r)
	var answer any
	if err == nil && (planned == nil || planned.Applied) {
		answer, err = c.run(rt)
	}
	s.record(r, c.body)
	if planned != nil {
		select {
		case <-time.After(planned.Delay):
		case <-r.Context().Done():
		}
	}
	logID := newID(time.Now().UTC().Format("20060102150405"), 9)
	w.Header().Set("X-Tt-Logid", logID)
	w.Header().Set("X-Request-Id", newID("", 16))
	switch {
	case planned != nil && !planned.onlyLate():
		planned.write(w)
	case err != nil:
		e, ok := errors.AsType[*apiError](err)
		if !ok {
			e = failure(99992402, err.Error())
		}
		var id string
		if c.app != nil {
			id = c.app.ID
		}
		writeJSON(w, e.status, e.body(id, logID))
	default:
		write(w, answer)
	}
}

// receive reads the body.
func (c *call) receive(rt route) (err error) {
	most := int64(maxBody)
	if rt.upload {
		most = maxFile
	}
	if c.body, err = io.ReadAll(http.MaxBytesReader(nil, c.r.Body, most)); err == nil && rt.upload {
		c.r.Body = io.NopCloser(bytes.NewReader(c.body))
		err = c.r.ParseMultipartForm(most)
	}
	_, tooLong := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return nil
	case tooLong && rt.upload:
		return errFileSize
	case tooLong:
		return errTooLong
	case rt.upload:
		return errNoFile
	}
	return errField
}

// run calls the route's handler, holding the lock.
func (c *call) run(rt route) (_ any, err error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.app, err = c.s.authorize(c.r, rt); err != nil {
		return nil, err
	}
	return rt.run(c)
}

// authorize finds the app of the token, and checks its scopes. The caller holds
// s.mu.
func (s *Server) authorize(r *http.Request, rt route) (*app, error) {
	if rt.open {
		return nil, nil
	}
	header := r.Header.Get("Authorization")
	given, ok := strings.CutPrefix(header, "Bearer ")
	switch {
	case header == "" || !ok || given == "":
		return nil, errNoToken
	case strings.HasPrefix(given, "u-"):
		return nil, errUserToken
	case !strings.HasPrefix(given, "t-"):
		return nil, errTokenShape
	}
	t := s.tokens[given]
	if t == nil || time.Now().After(t.expires) || s.apps[t.app] == nil {
		return nil, errBadToken
	}
	a := s.apps[t.app]
	if rt.scopes != nil && !a.may(rt.scopes...) {
		return a, scopeError(a.ID, rt.scopes)
	}
	return a, nil
}

// with returns a handler of calls that have a JSON body, or none.
func with[T any](run func(c *call, in *T) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		in := new(T)
		if len(bytes.TrimSpace(c.body)) > 0 && json.Unmarshal(c.body, in) != nil {
			return nil, errField
		}
		return run(c, in)
	}
}

// onMessage returns a handler of calls about the message in the path.
func onMessage[T any](run func(c *call, m *message, in *T) (any, error)) func(*call) (any, error) {
	return with(func(c *call, in *T) (any, error) {
		m, err := c.message(errMessageID)
		if err != nil {
			return nil, err
		}
		return run(c, m, in)
	})
}

func (c *call) query(name string) string { return c.r.URL.Query().Get(name) }

func write(w http.ResponseWriter, answer any) {
	switch v := answer.(type) {
	case *file:
		v.serve(w)
	case top:
		out := map[string]any{"code": 0, "msg": "ok"}
		maps.Copy(out, v)
		writeJSON(w, http.StatusOK, out)
	case nil:
		writeJSON(w, http.StatusOK, map[string]any{"code": 0, "msg": "success", "data": map[string]any{}})
	default:
		writeJSON(w, http.StatusOK, map[string]any{"code": 0, "msg": "success", "data": v})
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, compact(v)) // fails if the caller is gone
}

// Limits of the recorded requests; beyond them the oldest are dropped.
const (
	maxRequests     = 5_000
	maxRequestBytes = 64 << 20 // bytes of all bodies
)

// Request is a call as received, for comparisons byte by byte.
type Request struct {
	Method string      `json:"method"`
	URI    string      `json:"uri"` // path and query as in the request
	Header http.Header `json:"header"`
	Body   []byte      `json:"body,omitempty"` // the first MiB
}

// Requests returns the calls of the apps, in the order of their answers: REST,
// bootstrap calls and upgrades to a WebSocket, secrets included.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) record(r *http.Request, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body = body[:min(len(body), maxBody)]
	s.requests = append(s.requests, Request{r.Method, r.RequestURI, r.Header.Clone(), body})
	s.recorded += len(body)
	for len(s.requests) > maxRequests || s.recorded > maxRequestBytes {
		s.recorded -= len(s.requests[0].Body)
		s.requests = s.requests[1:]
	}
}
