package feishusim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Kinds of faults.
const (
	// FaultDrop cuts the existing long connections, without a close frame.
	FaultDrop = "drop"
	// FaultClose closes them with the close code Code (default 1001).
	FaultClose = "close"
	// FaultBootstrap refuses bootstrap calls with Code, or with HTTP Status.
	FaultBootstrap = "bootstrap"
	// FaultDelay delivers events later, by Delay.
	FaultDelay = "delay"
	// FaultDuplicate delivers events twice, with the same event_id.
	FaultDuplicate = "duplicate"
	// FaultReorder delivers each event after some time, at most Delay (default 1 s).
	FaultReorder = "reorder"
	// FaultLose drops the first delivery; the schedule repeats it.
	FaultLose = "lose"
	// FaultNoAck ignores acknowledgements.
	FaultNoAck = "noack"
	// FaultFragment sends events in Parts pieces (default 2), in any order, Delay apart.
	FaultFragment = "fragment"
	// FaultAnswer answers calls of Route with Code, Msg, Status and Header, or with Body as it is, after Delay. The
	// call has no effect unless Applied is set: then only its answer is lost, or without another answer late.
	FaultAnswer = "answer"
)

// Fault is a simulated fault.
type Fault struct {
	Kind    string        `json:"kind"`
	App     string        `json:"app,omitempty"`   // the affected app; "": all
	Count   int           `json:"count,omitempty"` // how often it happens; 0: until [Server.ClearFaults]
	Code    int           `json:"code,omitempty"`
	Status  int           `json:"status,omitempty"` // HTTP; 0: 400 if Code is set, else 500
	Msg     string        `json:"msg,omitempty"`
	Header  http.Header   `json:"header,omitempty"` // of an answer
	Body    string        `json:"body,omitempty"`   // of an answer, whatever it is
	Route   string        `json:"route,omitempty"`  // method and path; "*" matches one part of the path
	Applied bool          `json:"applied,omitempty"`
	Delay   time.Duration `json:"-"`               // "delay_ms" over HTTP
	Parts   int           `json:"parts,omitempty"` // pieces of an event
}

type fault struct {
	Fault
	left int // 0: unlimited
}

var faultKinds = []string{
	FaultDrop, FaultClose, FaultBootstrap, FaultDelay, FaultDuplicate,
	FaultReorder, FaultLose, FaultNoAck, FaultFragment, FaultAnswer,
}

// FaultKinds lists the kinds.
func FaultKinds() []string { return slices.Clone(faultKinds) }

func (f *Fault) check() error {
	switch {
	case !slices.Contains(faultKinds, f.Kind):
		return fmt.Errorf("no fault %.40q: want one of %s", f.Kind, strings.Join(faultKinds, ", "))
	case f.Kind == FaultAnswer && len(strings.Fields(f.Route)) != 2:
		return fmt.Errorf("route %.80q: want a method and a path", f.Route)
	case f.Count < 0 || f.Parts < 0 || f.Parts > maxFragments || f.Delay < 0:
		return errors.New("count, parts or delay out of range")
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("status %d: want one of HTTP", f.Status)
	}
	return nil
}

// Fault starts a fault. It replaces the fault of the same kind and app, except
// answers, which queue up. It panics if f is invalid.
func (s *Server) Fault(f Fault) { must(0, s.addFault(f)) }

func (s *Server) addFault(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.App != "" && s.apps[f.App] == nil {
		return fmt.Errorf("no app %.60q", f.App)
	}
	if f.Kind == FaultDrop || f.Kind == FaultClose {
		s.breakConnections(f)
		return nil
	}
	if f.Kind != FaultAnswer {
		s.faults = slices.DeleteFunc(s.faults, func(old *fault) bool { return old.Kind == f.Kind && old.App == f.App })
	}
	s.faults = append(s.faults, &fault{f, f.Count})
	return nil
}

// ClearFaults ends all faults.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *Server) breakConnections(f Fault) {
	left := f.Count
	for _, a := range s.apps {
		if f.App != "" && a.ID != f.App {
			continue
		}
		for _, c := range a.conns {
			if f.Count > 0 && left == 0 {
				return
			}
			left--
			if f.Kind == FaultDrop {
				c.cut()
			} else {
				c.close(f.Code, f.Msg)
			}
		}
	}
}

// fault returns a fault of the app, and counts its use. The caller holds s.mu.
func (s *Server) fault(kind, app string) *Fault {
	return s.use(app, func(f *Fault) bool { return f.Kind == kind })
}

// use returns the app's first fault that is such a one, and counts its use.
func (s *Server) use(app string, is func(*Fault) bool) *Fault {
	i := slices.IndexFunc(s.faults, func(f *fault) bool { return (f.App == "" || f.App == app) && is(&f.Fault) })
	if i < 0 {
		return nil
	}
	f := s.faults[i]
	if f.left--; f.left == 0 {
		s.faults = slices.Delete(s.faults, i, i+1)
	}
	return &f.Fault
}

// answerFault returns the fault with the answer planned for a request, or nil.
func (s *Server) answerFault(r *http.Request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.use(s.tokenApp(r), func(f *Fault) bool {
		return f.Kind == FaultAnswer && matches(f.Route, r.Method, r.URL.Path)
	})
}

func (s *Server) tokenApp(r *http.Request) string {
	if t := s.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]; t != nil {
		return t.app
	}
	return ""
}

// matches compares a call with "METHOD /path/*/more".
func matches(route, method, path string) bool {
	want := strings.Fields(route)
	if want[0] != "*" && want[0] != method {
		return false
	}
	a, b := strings.Split(want[1], "/"), strings.Split(path, "/")
	return slices.EqualFunc(a, b, func(pattern, part string) bool { return pattern == "*" || pattern == part })
}

// onlyLate reports whether the call's own answer is sent, after Delay.
func (f *Fault) onlyLate() bool {
	return f.Applied && f.Code == 0 && f.Msg == "" && f.Status == 0 && f.Body == ""
}

// write sends the planned answer.
func (f *Fault) write(w http.ResponseWriter) {
	for key, values := range f.Header {
		for _, v := range values {
			w.Header().Set(key, v)
		}
	}
	if f.Code != 0 || f.Msg != "" {
		writeJSON(w, cmp.Or(f.Status, http.StatusBadRequest),
			map[string]any{"code": f.Code, "msg": f.Msg, "data": map[string]any{}, "error": map[string]any{}})
		return
	}
	kind := "text/plain; charset=utf-8"
	if json.Valid([]byte(f.Body)) {
		kind = "application/json; charset=utf-8"
	}
	w.Header().Set("Content-Type", cmp.Or(w.Header().Get("Content-Type"), kind))
	status := cmp.Or(f.Status, http.StatusInternalServerError)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, cmp.Or(f.Body, http.StatusText(status))) // fails if the caller is gone
}
