package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"feishu-relay/internal/loopback"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// logTail is how many bytes of a sidecar's log a failed demo shows.
const logTail = 3000

// sidecar is one `feishu-relay run`. Its methods are for one goroutine, apart
// from url and calls.
type sidecar struct {
	character
	stage *stage
	env   []string
	log   string // path
	addr  atomic.Pointer[string]
	front bool // it has a gateway

	listen string // LISTEN_ADDR; "": one that the system chooses
	token  string // API_TOKEN; "": none

	gate string // where; "" until it was started once: from then on the bot knows the address

	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process is gone
	expected *atomic.Bool  // the end of this process is wanted
	unwatch  context.CancelFunc
}

// newSidecar sets an environment of its own: whatever is configured in the
// user's, a judge's key above all, has no place in the demo. The folders are the
// default ones of DATA_DIR.
func newSidecar(s *stage, c character, env []string, more ...string) *sidecar {
	env = append([]string{"AGENT_NAME=" + c.agent, "AGENT_ROLE=" + c.role, "DATA_DIR=" + s.dir, "LOG_FORMAT=text"}, env...)
	return &sidecar{character: c, stage: s, log: filepath.Join(s.dir, c.agent+".log"), unwatch: func() {},
		env: append(env, more...)}
}

// url is where the local API answers on this machine.
func (s *sidecar) url() string {
	host, port, _ := net.SplitHostPort(*s.addr.Load())
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// get reads an answer of the local API into out, which may be nil.
func (s *sidecar) get(ctx context.Context, route string, out any) error {
	return s.post(ctx, route, nil, out)
}

// post sends in, unless that is nil, to the local API and reads the answer into out.
func (s *sidecar) post(ctx context.Context, route string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	body, err := s.open(ctx, route, in, "")
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil || out == nil {
		return wrap(err, "read the answer")
	}
	return json.Unmarshal(data, out)
}

// start runs the process, waits until it is ready, and watches it.
func (s *sidecar) start(ctx context.Context) error {
	return wrap(try(func() {
		s.spawn()
		must(until(ctx, readyWithin, "ready", func(ctx context.Context) (bool, error) {
			select {
			case <-s.exited:
				return false, errors.New("ended before it was ready")
			default:
				return s.get(ctx, "/readyz", nil) == nil, nil
			}
		}))
		s.watch(ctx)
	}), "start the sidecar of %s", s.name)
}

// spawn runs the process.
func (s *sidecar) spawn() {
	addr, err := s.listen, error(nil)
	if addr == "" {
		addr, err = loopback.Addr()
	}
	must(err)
	if s.front && s.gate == "" {
		s.gate, err = loopback.Addr()
		must(err)
	}
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	must(err)
	defer log.Close() // the process has its own
	cmd := exec.Command(s.stage.Program, "run")
	cmd.Env = append([]string{"LISTEN_ADDR=" + addr, "GATEWAY_ADDR=" + s.gate, "API_TOKEN=" + s.token}, s.env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.stage.dir, log, log
	cmd.SysProcAttr = detached()
	must(cmd.Start())
	s.addr.Store(&addr)
	exited := make(chan struct{})
	s.cmd, s.exited, s.expected = cmd, exited, new(atomic.Bool)
	go func() {
		defer close(exited)
		_ = cmd.Wait() // ProcessState tells
	}()
}

// watch enters what the sidecar says of messages on the board, until the
// process ends. An end that nobody wanted fails the demo.
func (s *sidecar) watch(ctx context.Context) {
	ctx, s.unwatch = context.WithCancel(context.WithoutCancel(ctx))
	// From its first event on: what it did before we could ask counts as well.
	events, err := s.subscribe(ctx, "/v1/events", "0")
	must(wrap(err, "watch"))
	expected, exited := s.expected, s.exited
	s.stage.listeners.Go(func() {
		err := events.each(func(e event) error { return s.stage.board.observe(s.agent, e) })
		if !expected.Load() {
			s.stage.fail(fmt.Errorf("events of %s's sidecar: %w", s.name, err))
		}
	})
	s.stage.listeners.Go(func() {
		<-exited
		if !expected.Load() {
			s.stage.fail(fmt.Errorf("the sidecar of %s ended by itself", s.name))
		}
	})
}

// kill ends the process at once, as a crash does.
func (s *sidecar) kill() {
	s.expected.Store(true)
	_ = s.cmd.Process.Kill() // fails only when it has ended already
	<-s.exited
	s.unwatch()
}

// stop asks the process to end, and returns an error unless it exits with 0.
func (s *sidecar) stop() error {
	if s.cmd == nil {
		return nil
	}
	s.expected.Store(true)
	defer s.unwatch()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.kill()
		return fmt.Errorf("ask the sidecar of %s to stop: %w", s.name, err)
	}
	if !wait.Closed(s.exited, stoppedWithin) {
		s.kill()
		return fmt.Errorf("the sidecar of %s did not stop within %s and was killed", s.name, stoppedWithin)
	}
	if !s.cmd.ProcessState.Success() {
		return fmt.Errorf("the sidecar of %s ended with %s", s.name, s.cmd.ProcessState)
	}
	return nil
}

// pageSize is the most messages of a chat in one answer of the API.
const pageSize = 1000

type entry struct {
	MessageID relay.MessageID `json:"message_id"`
	Role      string          `json:"role"`
	Content   string          `json:"content"`
}

// transcript is the record of a chat as the sidecar shows it; nil where it shows
// none.
func (s *sidecar) transcript(ctx context.Context, chat relay.ChatID) (all []entry, err error) {
	for before := ""; ; {
		var page struct {
			Entries []entry
			Earlier string
		}
		query := url.Values{"limit": {strconv.Itoa(pageSize)}}
		if before != "" {
			query.Set("before", before)
		}
		err = s.get(ctx, fmt.Sprintf("/v1/transcripts/%s/%s?%s", relay.DefaultChannel, chat, query.Encode()), &page)
		if e, ok := errors.AsType[*statusError](err); ok && e.status == http.StatusNotFound {
			err = nil
		}
		all = append(page.Entries, all...)
		if before = page.Earlier; err != nil || before == "" {
			return all, wrap(err, "transcript of %s at %s's sidecar", chat, s.name)
		}
	}
}

// logEnd is the end of the sidecar's log, from the beginning of a line.
func (s *sidecar) logEnd() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return ""
	}
	return lastLines(string(data), logTail)
}

const (
	callWithin = 10 * time.Second // a call that is no stream
	maxAnswer  = 8 << 20          // bytes of an answer or of one event; more is an error
)

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

// statusError is an answer that is no success.
type statusError struct {
	status int
	code   string
}

func (e *statusError) Error() string { return fmt.Sprintf("answered %d %s", e.status, e.code) }

// open sends a request and returns the body of an answer that is a success.
func (s *sidecar) open(ctx context.Context, route string, in any, lastID string) (io.ReadCloser, error) {
	method, body := http.MethodGet, []byte(nil)
	if in != nil {
		method, body = http.MethodPost, []byte(asJSON(in))
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url()+route, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := s.caller().Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var e struct{ Error struct{ Code string } }
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&e) // the status alone tells enough
	return nil, &statusError{resp.StatusCode, e.Error.Code}
}

// until asks again and again until done says so, or fails: for what tells no
// events. What is not there within a time is an error that says what.
func until(ctx context.Context, within time.Duration, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s: not within %s", what, within))
	defer cancel()
	for {
		ok, err := done(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ok || err != nil {
			return err
		}
		_ = wait.Sleep(ctx, pollEvery) // done sees that ctx has ended
	}
}

// event is one server-sent event.
type event struct {
	kind, id string
	data     []byte
}

// events is an open stream of them.
type events struct{ body io.ReadCloser }

// subscribe opens a stream of server-sent events behind lastID; "" is from now
// on. When it returns, the server has answered and counts us as listening.
func (s *sidecar) subscribe(ctx context.Context, route, lastID string) (*events, error) {
	body, err := s.open(ctx, route, nil, lastID)
	return &events{body}, err
}

// each takes the events until the stream ends or take fails, and closes it. The
// error is never nil.
func (s *events) each(take func(event) error) error {
	defer s.body.Close()
	for e, err := range s.all {
		if err == nil {
			err = take(e)
		}
		if err != nil {
			return err
		}
	}
	return io.EOF
}

// all yields the events until the stream ends, and then the error it ended
// with, which is never nil.
func (s *events) all(yield func(event, error) bool) {
	lines := bufio.NewScanner(s.body)
	lines.Buffer(nil, maxAnswer)
	var e event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			e.data = append(e.data, value...)
		case "":
			if lines.Text() != "" { // a comment
				continue
			}
			if len(e.data) > 0 && !yield(e, nil) {
				return
			}
			e = event{}
		}
	}
	err := lines.Err()
	if err == nil {
		err = io.EOF
	}
	yield(event{}, err)
}
