package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

const maxChallenge = 64 << 10 // the bot's answer to one; a longer one is cut

// pass posts an event to the bot as it came, and gives Feishu the bot's answer.
// What the tap wants done begins when the bot has the event; the answer waits for
// it until deadline. pass reports whether the bot answered 200, and settles the
// event by it at once.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, body []byte, do func(), deadline time.Time,
	settle func(handled bool)) (took bool) {
	ctx, cancel := detached(r.Context(), s.Timeout)
	defer cancel()
	task := &task{s: s, do: do, done: make(chan struct{})}
	resp, err := s.post(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				task.begin()
			}
		},
	}), r, body)
	if err != nil {
		s.Counter("bot_away")
		answer(w, http.StatusBadGateway, "the bot cannot be reached")
		return false
	}
	defer resp.Body.Close()
	took = resp.StatusCode == http.StatusOK
	settle(took)
	s.Counter("passed")
	task.wait(deadline)
	copyHeader(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // Feishu posts again where it does not get all
	return took
}

// challenge lets the bot answer Feishu's question, and answers it where the bot
// does not: Feishu waits no longer than 1 s (docs/feishu.md 2.1).
func (s *Server) challenge(w http.ResponseWriter, r *http.Request, body []byte, challenge string) {
	ctx, cancel := context.WithTimeout(r.Context(), verifyWithin)
	defer cancel()
	resp, err := s.post(ctx, r, body)
	if err == nil {
		defer resp.Body.Close()
		var said []byte
		if said, err = io.ReadAll(io.LimitReader(resp.Body, maxChallenge)); err == nil {
			copyHeader(w.Header(), resp.Header)
			w.Header().Del("Content-Length")
			w.WriteHeader(resp.StatusCode)
			_, _ = w.Write(said)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]string{"challenge": challenge})
}

// post sends the bot what came from Feishu.
func (s *Server) post(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target(r.URL.RawQuery), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	copyHeader(req.Header, r.Header)
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header["User-Agent"] = nil // none came, so none is added
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.reached(0, err)
		return nil, err
	}
	s.reached(resp.StatusCode, nil)
	return resp, nil
}

// target is the bot's address with the query of Feishu's post added.
func (s *Server) target(rawQuery string) string {
	u := *s.bot
	switch {
	case u.RawQuery == "":
		u.RawQuery = rawQuery
	case rawQuery != "":
		u.RawQuery += "&" + rawQuery
	}
	return u.String()
}

// task is what the tap wants done once the bot has the event.
type task struct {
	s    *Server
	do   func() // nil: nothing
	once sync.Once
	done chan struct{} // closed when it is done, or will not be
}

// begin begins it; the first call counts.
func (t *task) begin() {
	t.once.Do(func() {
		started := t.do != nil && t.s.start(func() {
			defer close(t.done)
			t.do()
		})
		if !started {
			close(t.done)
			if t.do != nil {
				t.s.Counter("after_dropped")
			}
		}
	})
}

// wait waits until it is done, or the deadline is over.
func (t *task) wait(deadline time.Time) {
	t.begin() // an answer came, so the bot has the event
	if !wait.Closed(t.done, time.Until(deadline)) {
		t.s.Counter("after_late")
	}
}

// copyHeader copies what is meant for the far end (RFC 9110, 7.6.1).
func copyHeader(to, from http.Header) {
	maps.Copy(to, from)
	feishu.DropHopByHop(to)
}
