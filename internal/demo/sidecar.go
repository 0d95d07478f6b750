package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	"feishu-relay/internal/loopback"
	"feishu-relay/internal/sse"
	"feishu-relay/internal/subprocess"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// sidecar is one `feishu-relay run`. Its methods are for one goroutine, apart
// from the calls of the local API.
type sidecar struct {
	character
	stage *stage
	env   []string
	log   string // path
	addr  string // of the local API
	gate  string // of the gateway
	token string // API_TOKEN; "": none

	process *subprocess.Process // nil: not started yet
	unwatch context.CancelFunc  // called before an end that is wanted
}

// newSidecar sets an environment of its own: whatever is configured in the
// user's, a judge's key above all, has no place in the demo. The folders are the
// default ones of DATA_DIR.
func (s *stage) newSidecar(i int, env []string) *sidecar {
	c := s.script.Cast[i]
	sc := &sidecar{character: c, stage: s, log: filepath.Join(s.dir, c.Agent+".log")}
	var err error
	sc.addr, err = loopback.Addr()
	must(err)
	sc.gate, err = loopback.Addr()
	must(err)
	if (s.Chat || s.View) && i == 0 {
		sc.addr, sc.token = cmp.Or(s.Listen, sc.addr), s.Token
	}
	sc.env = append(env, "LOG_FORMAT=text", "AGENT_NAME="+c.Agent, "AGENT_ROLE="+c.Role, "DATA_DIR="+s.dir,
		"LISTEN_ADDR="+sc.addr, "API_TOKEN="+sc.token, "GATEWAY_ADDR="+sc.gate, "GATEWAY_SETTLE="+settle,
		"GATEWAY_EDIT_SETTLE="+settle)
	return sc
}

// settle is GATEWAY_SETTLE and GATEWAY_EDIT_SETTLE here: these bots write nothing behind a card's end, and edit
// no text.
const settle = "200ms"

// url is where the local API answers on this machine.
func (s *sidecar) url() string { return "http://" + s.addr }

// start runs the process, waits until it is ready, and watches it.
func (s *sidecar) start(ctx context.Context) (err error) {
	defer func() { err = wrap(err, "start the sidecar of %s", s.Name) }()
	if s.process, err = subprocess.Start(s.stage.dir, s.log, s.env, s.stage.Program, "run"); err != nil {
		return err
	}
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	s.unwatch = unwatch
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("ready: not within %s", readyWithin))
	defer cancel()
	err = s.process.Ready(ctx, func(ctx context.Context) bool { return s.call(ctx, "/readyz", nil) == nil })
	if err != nil {
		return err
	}
	// From its first event on: what it did before we could ask counts as well.
	events, err := s.open(watching, "/v1/events")
	if err != nil {
		return err
	}
	s.stage.listeners.Go(func() {
		err := read(events, func(e sse.Event) error { return s.stage.board.observe(s.Agent, e) })
		if watching.Err() == nil {
			s.stage.fail(fmt.Errorf("the sidecar of %s ended by itself, or its events did: %w", s.Name, err))
		}
	})
	return nil
}

// kill ends the process at once, as a crash does.
func (s *sidecar) kill() {
	s.unwatch()
	s.process.Kill()
}

// stop asks the process to end, and returns an error unless it exits with 0.
func (s *sidecar) stop() error {
	if s.process == nil {
		return nil
	}
	s.unwatch()
	return wrap(s.process.Stop(stoppedWithin), "stop the sidecar of %s", s.Name)
}

// runs reports whether the process has started, and not ended.
func (s *sidecar) runs() bool {
	select {
	case <-s.process.Exited:
		return false
	default:
		return true
	}
}

type entry struct {
	MessageID relay.MessageID `json:"message_id"`
	Role      string          `json:"role"`
	Content   string          `json:"content"`
}

// transcript is the record of a chat as the sidecar shows it; nil where it shows
// none.
func (s *sidecar) transcript(ctx context.Context, chat relay.ChatID) ([]entry, error) {
	var page struct{ Entries []entry }
	err := s.call(ctx, fmt.Sprintf("/v1/transcripts/%s/%s?limit=%d", relay.DefaultChannel, chat, maxEntries), &page)
	if errors.Is(err, errNotFound) {
		err = nil
	}
	return page.Entries, wrap(err, "transcript of %s at %s's sidecar", chat, s.Name)
}

const (
	callWithin = 10 * time.Second // a call that is no stream
	maxAnswer  = 8 << 20          // bytes of an answer; more is an error
	maxError   = 1000             // bytes of an answer that is no success, in an error
)

// call reads an answer of the local API into out, which may be nil.
func (s *sidecar) call(ctx context.Context, route string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	body, err := s.open(ctx, route)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		return nil
	}
	return wrap(json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out), "read the answer")
}

// read takes the server-sent events of a stream, until that ends or take fails, and closes it. The error is never nil.
func read(stream io.ReadCloser, take func(sse.Event) error) error {
	defer stream.Close()
	for e, err := range sse.Read(stream) {
		if err == nil {
			err = take(e)
		}
		if err != nil {
			return err
		}
	}
	return io.EOF
}

// transport calls the local API, as any program would. No proxy: whatever the user's environment
// says, this stays on loopback. No connection is kept: a spare one, dialled and never used, would
// hold up the sidecar's stop, since a server cannot know that nothing will come on it.
var transport = &http.Transport{Proxy: nil, DisableKeepAlives: true}

// caller is a client of the local API, with its token.
func (s *sidecar) caller() *http.Client { return &http.Client{Transport: bearer(s.token)} }

// bearer adds a token, unless it is "", to each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+string(b))
	}
	return transport.RoundTrip(r)
}

// errNotFound is the answer to a call for what the sidecar does not have.
var errNotFound = errors.New("answered 404")

// open sends a request and returns the body of an answer that is a success. A stream of events begins with the first.
func (s *sidecar) open(ctx context.Context, route string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+route, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Last-Event-ID", "0")
	resp, err := s.caller().Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return nil, errNotFound
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxError)) // the status alone tells enough
	return nil, fmt.Errorf("answered %d %s", resp.StatusCode, text)
}

// await asks again and again until done returns true, or fails. What is not there within a time is an error that names
// it.
func await(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settledWithin, fmt.Errorf("%s: not within %s", what, settledWithin))
	defer cancel()
	return wait.Until(ctx, pollEvery, done)
}
