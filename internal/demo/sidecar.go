package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"feishu-relay/relay"
)

// portTries is how often another port is tried: between picking a free one and
// the sidecar's listening on it another program can take it.
const portTries = 5

// logTail is how many bytes of a sidecar's log a failed demo shows.
const logTail = 3000

// sidecar is one `feishu-relay run`. Its methods are for one goroutine, apart
// from url.
type sidecar struct {
	character
	stage *stage
	env   []string
	log   string // path
	addr  atomic.Pointer[string]
	front bool   // it has a gateway
	gate  string // where; "" until it was ready once: from then on the bot knows the address

	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process is gone
	expected *atomic.Bool  // the end of this process is wanted
	unwatch  context.CancelFunc
}

// newSidecar sets an environment of its own: whatever is configured in the
// user's, a judge's key above all, has no place in the demo. The folders are the
// default ones of DATA_DIR.
func newSidecar(s *stage, c character, env []string) *sidecar {
	return &sidecar{character: c, stage: s, log: filepath.Join(s.dir, c.agent+".log"), unwatch: func() {},
		env: append([]string{"AGENT_NAME=" + c.agent, "AGENT_ROLE=" + c.role, "DATA_DIR=" + s.dir, "LOG_FORMAT=text"}, env...)}
}

// url is where the local API answers.
func (s *sidecar) url() string { return "http://" + *s.addr.Load() }

// start runs the process, waits until it is ready, and watches it.
func (s *sidecar) start(ctx context.Context) error {
	var err error
	for range portTries {
		gate := s.gate
		if s.front && gate == "" {
			gate, err = freeAddr()
		}
		if err == nil {
			err = s.spawn(gate)
		}
		if err != nil {
			return fmt.Errorf("start the sidecar of %s: %w", s.name, err)
		}
		if err = s.awaitReady(ctx); err == nil {
			s.gate = gate
			return s.watch(ctx)
		}
		if !errors.Is(err, errEnded) || ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("the sidecar of %s: %w", s.name, err)
}

var errEnded = errors.New("ended before it was ready")

// spawn runs the process, with a gateway at gate unless that is "".
func (s *sidecar) spawn(gate string) error {
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(s.stage.Program, "run")
	cmd.Env = append([]string{"LISTEN_ADDR=" + addr, "GATEWAY_ADDR=" + gate}, s.env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.stage.dir, log, log
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return err
	}
	s.addr.Store(&addr)
	exited := make(chan struct{})
	s.cmd, s.exited, s.expected = cmd, exited, new(atomic.Bool)
	go func() {
		defer close(exited)
		_ = cmd.Wait() // ProcessState tells
	}()
	return nil
}

// freeAddr is a loopback address that was free a moment ago.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("pick a port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *sidecar) awaitReady(ctx context.Context) error {
	return until(ctx, readyWithin, "ready", func(ctx context.Context) (bool, error) {
		select {
		case <-s.exited:
			return false, errEnded
		default:
			return s.stage.client.get(ctx, s.url()+"/readyz", nil) == nil, nil
		}
	})
}

// watch enters what the sidecar says of messages on the board, until the
// process ends. An end that nobody wanted fails the demo.
func (s *sidecar) watch(ctx context.Context) error {
	ctx, s.unwatch = context.WithCancel(context.WithoutCancel(ctx))
	// From its first event on: what it did before we could ask counts as well.
	events, err := s.stage.client.subscribe(ctx, s.url()+"/v1/events", "0")
	if err != nil {
		s.unwatch()
		return fmt.Errorf("watch the sidecar of %s: %w", s.name, err)
	}
	expected, exited := s.expected, s.exited
	s.stage.listeners.Go(func() {
		defer events.Close()
		for e, err := range events.all {
			if err == nil {
				err = s.stage.board.observe(s.agent, e)
			}
			if err != nil && !expected.Load() {
				s.stage.fail(fmt.Errorf("events of %s's sidecar: %w", s.name, err))
			}
			if err != nil {
				return
			}
		}
	})
	s.stage.listeners.Go(func() {
		<-exited
		if !expected.Load() {
			s.stage.fail(fmt.Errorf("the sidecar of %s ended by itself", s.name))
		}
	})
	return nil
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
	limit := time.NewTimer(stoppedWithin)
	defer limit.Stop()
	select {
	case <-s.exited:
	case <-limit.C:
		s.kill()
		return fmt.Errorf("the sidecar of %s did not stop within %s and was killed", s.name, stoppedWithin)
	}
	if !s.cmd.ProcessState.Success() {
		return fmt.Errorf("the sidecar of %s ended with %s", s.name, s.cmd.ProcessState)
	}
	return nil
}

// transcript is the record of a chat as the sidecar shows it; nil where it shows
// none.
func (s *sidecar) transcript(ctx context.Context, chat relay.ChatID) ([]entry, error) {
	var answer struct{ Entries []entry }
	err := s.stage.client.get(ctx, fmt.Sprintf("%s/v1/transcripts/%s/%s?limit=%d", s.url(), relay.DefaultChannel, chat, maxShown), &answer)
	if e, ok := errors.AsType[*statusError](err); ok && e.status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("transcript of %s at %s's sidecar: %w", chat, s.name, err)
	}
	return answer.Entries, nil
}

// maxShown is the most messages of a chat that can be checked: one answer of the
// API holds no more. [maxLines] keeps below it.
const maxShown = 1000

type entry struct {
	MessageID relay.MessageID `json:"message_id"`
	Role      string          `json:"role"`
	Content   string          `json:"content"`
}

// logEnd is the end of the sidecar's log, from the beginning of a line.
func (s *sidecar) logEnd() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return ""
	}
	return lastLines(string(data), logTail)
}
