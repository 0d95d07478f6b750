package endurance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/loopback"
	"feishu-relay/internal/subprocess"
	"feishu-relay/internal/wait"
)

// patience is the longest wait. Only a test that fails waits that long.
const patience = 5 * time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// limited is a context for the waits of a test.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls for what has no event to wait for.
func eventually(ctx context.Context, t *testing.T, what string, cond func() bool) {
	t.Helper()
	for !cond() {
		if wait.Sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// side is one sidecar through all its lives, each a process of a version of the program.
type side struct {
	t       *testing.T
	name    string
	program string
	addr    string // of the API
	log     string // path
	env     map[string]string
	hook    string // the bot's webhook; each life appends its number to it. "": none
	client  *http.Client
	ahead   atomic.Int64 // nanoseconds that its clock is ahead

	mu      sync.Mutex
	life    int                 // 1 is the first; guarded by mu
	killed  map[int]bool        // lives that ended with SIGKILL; guarded by mu
	process *subprocess.Process // of the present life; nil: there is none; guarded by mu
}

func newSide(t *testing.T, name, dir string, env map[string]string) *side {
	t.Helper()
	addr, err := loopback.Addr()
	must(t, err)
	s := &side{t: t, name: name, addr: addr, log: filepath.Join(dir, name+".log"), env: maps.Clone(env),
		killed: map[int]bool{}, client: &http.Client{Transport: &http.Transport{IdleConnTimeout: time.Second}}}
	s.env["AGENT_NAME"], s.env["BOT_NAME"], s.env["LISTEN_ADDR"] = name, name, addr
	t.Cleanup(func() {
		s.kill()
		s.examineLog()
	})
	return s
}

// start begins a life. It may be called from any goroutine.
func (s *side) start() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life++
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(s.log), "GORACE=atexit_sleep_ms=0"}
	for name, value := range s.env {
		env = append(env, name+"="+value)
	}
	if s.hook != "" {
		env = append(env, "INJECT_URL="+s.hook+"/"+strconv.Itoa(s.life))
	}
	s.process, err = subprocess.Start("", s.log, env, s.program, "run")
	return err
}

// kill ends the present life with SIGKILL, if there is one.
func (s *side) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.killed[s.life] = true
		s.process.Kill()
		s.process = nil
	}
}

// stop ends the present life in order.
func (s *side) stop() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Stop(patience); err != nil {
		s.t.Errorf("%s: %v", s.name, err)
	}
	s.process = nil
}

// as lets the next lives be of another version.
func (s *side) as(program string) { s.program = program }

func (s *side) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Pid()
}

// wasKilled reports whether a life ended with SIGKILL.
func (s *side) wasKilled(life int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed[life]
}

// ready waits until the sidecar takes messages.
func (s *side) ready(ctx context.Context) {
	s.t.Helper()
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	err := process.Ready(ctx, func(ctx context.Context) bool {
		status, _, err := s.call(ctx, http.MethodGet, "/readyz", nil, nil)
		return err == nil && status == http.StatusOK
	})
	if err != nil {
		s.t.Fatalf("%s: %v", s.name, err)
	}
}

// call makes one call of the API; an answer of 2xx is stored in into.
func (s *side) call(ctx context.Context, method, route string, body, into any) (status int, text string, err error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, "", err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+route, content)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode < http.StatusMultipleChoices && into != nil {
		err = json.Unmarshal(data, into)
	}
	return resp.StatusCode, string(data), err
}

// do makes a call that has to succeed.
func (s *side) do(ctx context.Context, method, route string, body, into any) {
	s.t.Helper()
	if status, text, err := s.call(ctx, method, route, body, into); err != nil || status >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s of %s: %d %.300s %v", method, route, s.name, status, text, err)
	}
}

// insist posts until the answer is 2xx, over kills and restarts.
func (s *side) insist(ctx context.Context, route string, body any) error {
	return s.insistOn(ctx, http.MethodPost, route, body)
}

// insistOn is insist with another method.
func (s *side) insistOn(ctx context.Context, method, route string, body any) error {
	for {
		status, text, err := s.call(ctx, method, route, body, nil)
		if err == nil && status < http.StatusMultipleChoices {
			return nil
		}
		if err == nil && status < http.StatusInternalServerError && status != http.StatusTooManyRequests {
			return fmt.Errorf("%s of %s answered %d %.300s", route, s.name, status, text)
		}
		if wait.Sleep(ctx, 20*time.Millisecond) != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// queue is a part of GET /v1/status.
type queue struct {
	Outbox struct {
		Pending, Bytes int
		Error          string
	}
	Unsettled, Lag int
	Error          string
}

type status struct {
	Ready  bool
	Queues map[string]queue
	Errors []struct {
		Part, Error string
		Count       int
	} `json:"last_errors"`
}

// idle reports whether nothing of the sidecar's queues is under way.
func (s *side) idle(ctx context.Context) bool {
	var st status
	if code, _, err := s.call(ctx, http.MethodGet, "/v1/status", nil, &st); err != nil || code != http.StatusOK {
		return false
	}
	for _, q := range st.Queues {
		if q.Outbox.Pending > 0 || q.Unsettled > 0 || q.Lag > 0 {
			return false
		}
	}
	return st.Ready
}

// complaints are lines that no log of a sidecar may have.
var complaints = []string{"DATA RACE", "panic:", "fatal error:"}

func (s *side) examineLog() {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return // it never ran
	}
	for _, c := range complaints {
		if i := bytes.Index(data, []byte(c)); i >= 0 {
			s.t.Errorf("log of %s: %.3000s", s.name, data[i:])
		}
	}
	if s.t.Failed() {
		lines := slices.Collect(strings.Lines(string(data)))
		fmt.Fprintf(s.t.Output(), "log of %s ends with:\n%s\n", s.name, strings.Join(lines[max(0, len(lines)-30):], ""))
	}
}
