//go:build unix

package sidecar_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"feishu-relay/sidecar"
)

// Roles of this binary when a test starts it as a process of its own.
const (
	sidecarEnv = "SIDECAR_TEST_CONFIG" // file of a configuration: be that sidecar
	crashEnv   = "CRASH_AT"            // <step>:<n>: be killed at the n-th time of a step
	killsEnv   = "CRASH_KILLS"         // how many sidecars the long crash tests kill
)

// patience is how long anything is waited for. It is no measurement: only a
// test that fails waits so long.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	config := os.Getenv(sidecarEnv)
	if config == "" {
		os.Exit(m.Run())
	}
	if err := beSidecar(config, os.Getenv(crashEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// beSidecar does what `feishu-relay run` does, prints where it listens, and
// ends when its standard input does, so that none outlives the test.
func beSidecar(path, crashAt string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var cfg sidecar.Config
	if err := json.Unmarshal(data, &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	o := sidecar.Options{Version: "test", Trace: crashPoint(crashAt), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	s, err := sidecar.New(cfg, o)
	if err != nil {
		return err
	}
	fmt.Println(s.Addr())
	return s.Run(ctx)
}

// crashPoint returns a trace that kills this process at a step, as the system
// would: nothing is flushed, closed or said.
func crashPoint(at string) func(string) {
	step, count, ok := strings.Cut(at, ":")
	left, err := strconv.Atoi(count)
	if !ok || err != nil {
		return nil
	}
	var mu sync.Mutex
	return func(s string) {
		mu.Lock()
		defer mu.Unlock()
		if s != step {
			return
		}
		if left--; left == 0 {
			die()
		}
	}
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal may take a moment
}

// process is one sidecar through all its lives.
type process struct {
	t      *testing.T
	agent  string
	config string // path
	log    string // path
	cfg    sidecar.Config
	hooked bool // each life appends its number to INJECT_URL

	mu     sync.Mutex
	life   *life         // guarded by mu
	next   chan struct{} // closed when the next life begins; guarded by mu
	lives  int           // guarded by mu
	killed []int         // the lives that ended with SIGKILL; guarded by mu
}

type life struct {
	number int // 1 is the first
	cmd    *exec.Cmd
	addr   string        // set when ready is closed
	ready  chan struct{} // it listens
	exited chan struct{}
}

// newProcess starts nothing yet.
func newProcess(t *testing.T, dir string, cfg sidecar.Config) *process {
	t.Helper()
	p := &process{t: t, agent: string(cfg.Agent), config: filepath.Join(dir, string(cfg.Agent)+".config.json"),
		log: filepath.Join(dir, string(cfg.Agent)+".log"), cfg: cfg, next: make(chan struct{})}
	t.Cleanup(func() {
		p.kill()
		p.examineLog()
	})
	return p
}

// start begins a life; crashAt may name the point of its end. It may be called
// from any goroutine.
func (p *process) start(crashAt string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lives++
	l, err := p.spawn(p.lives, crashAt)
	if err != nil {
		panic(err) // this binary cannot be started: no test makes sense any more
	}
	p.life = l
	close(p.next)
	p.next = make(chan struct{})
}

// spawn writes the configuration and starts a process.
func (p *process) spawn(number int, crashAt string) (*life, error) {
	cfg := p.cfg
	if p.hooked {
		cfg.InjectURL += "/" + strconv.Itoa(number)
	}
	data, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.config, data, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), sidecarEnv+"="+p.config, crashEnv+"="+crashAt,
		"GORACE=atexit_sleep_ms=0") // else the race detector adds a second to every orderly end
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if _, err := cmd.StdinPipe(); err != nil { // held open until Wait
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	l := &life{number: number, cmd: cmd, ready: make(chan struct{}), exited: make(chan struct{})}
	go func() {
		defer close(l.exited)
		if r := bufio.NewScanner(out); r.Scan() {
			l.addr = r.Text()
			close(l.ready)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // ProcessState tells
	}()
	return l, nil
}

func (p *process) current() (l *life, next <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life, p.next
}

// url is where the present life listens, or the next one if that has ended.
func (p *process) url(ctx context.Context) (string, error) {
	url, _, err := p.present(ctx)
	return url, err
}

// present is url with the number of the life.
func (p *process) present(ctx context.Context) (url string, number int, err error) {
	for {
		l, next := p.current()
		if l != nil {
			select {
			case <-l.exited:
			case <-l.ready:
				return "http://" + l.addr, l.number, nil
			case <-ctx.Done():
				return "", 0, ctx.Err()
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return "", 0, ctx.Err()
		}
	}
}

// kill ends the present life with SIGKILL.
func (p *process) kill() {
	l, _ := p.current()
	if l == nil {
		return
	}
	_ = l.cmd.Process.Kill() // fails only when it has ended already
	<-l.exited
}

// countKill notes an end that was no orderly one, by kill or at a crash point.
func (p *process) countKill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = append(p.killed, p.life.number)
}

// killedLives are the numbers of the lives that ended so.
func (p *process) killedLives() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.killed)
}

// crash begins a life that ends at a point, and waits for its end.
func (p *process) crash(ctx context.Context, point string) error {
	p.start(point)
	l, _ := p.current()
	select {
	case <-l.exited:
	case <-ctx.Done():
		return fmt.Errorf("%s never came to %s", p.agent, point)
	}
	if status, ok := l.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		return fmt.Errorf("%s ended with %v at %s, want SIGKILL", p.agent, l.cmd.ProcessState, point)
	}
	p.countKill()
	return nil
}

// stop ends the present life in order.
func (p *process) stop() {
	l, _ := p.current()
	<-l.ready // before, a SIGTERM is no orderly stop
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-l.exited:
	case <-time.After(patience):
		p.t.Errorf("%s does not stop", p.agent)
		p.kill()
	}
	if !l.cmd.ProcessState.Success() {
		p.t.Errorf("%s stopped with %v", p.agent, l.cmd.ProcessState)
	}
}

// pid of the present life.
func (p *process) pid() int {
	l, _ := p.current()
	return l.cmd.Process.Pid
}

// complaints are lines that no log of a sidecar may hold, whatever was done to it.
var complaints = [][]byte{[]byte("DATA RACE"), []byte("panic:"), []byte("fatal error:"),
	[]byte("messages of a peer are missing"), []byte("entries were trimmed")}

func (p *process) examineLog() {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return // it never ran
	}
	for _, complaint := range complaints {
		if i := bytes.Index(data, complaint); i >= 0 {
			p.t.Errorf("log of %s: %.3000s", p.agent, data[i:])
		}
	}
	if !p.t.Failed() {
		return
	}
	_ = os.WriteFile(filepath.Join(p.t.ArtifactDir(), filepath.Base(p.log)), data, 0o600)
	fmt.Fprintf(p.t.Output(), "log of %s ends with:\n%s\n", p.agent, data[max(0, len(data)-2000):])
}

func must(t testing.TB, err error) {
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

// eventually polls for what has no event to wait for, ever less often: many tests wait side by side, and each
// look costs a call or two.
func eventually(ctx context.Context, t *testing.T, what string, cond func() bool) {
	t.Helper()
	for pause := 10 * time.Millisecond; !cond(); pause = min(pause*3/2, 100*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
