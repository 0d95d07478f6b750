// Package redistest runs a real redis-server for tests and benchmarks: in a folder of its own, on a port of the loopback that nobody else gets
// ([loopback.Addr]) or on a Unix socket, without persistence unless asked for.
//
//	srv := redistest.Start(t)
//	queue, err := redisrelay.New(redisrelay.Options{URL: srv.URL(), …})
//	srv.Kill()    // SIGKILL: what was not persisted is gone
//	srv.Restart() // the same address, the same folder
//
// # A missing redis-server
//
// A test never skips: without the program, [Start] fails it and says what to
// install.
//
// # What it ends
//
// Each server is a child of this process and is ended by its own process id,
// when the test ends or at [Server.Stop].
package redistest

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"feishu-relay/internal/loopback"
)

const (
	startLimit = 20 * time.Second // for a server to accept connections; then Start fails
	portTries  = 20               // a picked port can be taken by another program before the server has it
	keptOutput = 4 << 10          // bytes of a failed server's output that its error quotes
)

// TB is what [Start] needs of a *testing.T or *testing.B. The testing package
// itself is not imported: package scale is a program.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// Server is one redis-server. Its methods are for one goroutine.
type Server struct {
	dir     string
	args    []string
	socket  string // "" on TCP
	host    string
	port    string
	cluster bool
	bus     string     // port of the Cluster's bus
	tls     *Authority // nil: no TLS
	cmd     *exec.Cmd
	exited  chan struct{}
}

// Start runs a server until the test ends; args are further options of
// redis-server ("--requirepass", "x").
func Start(tb TB, args ...string) *Server {
	tb.Helper()
	return started(tb, false, nil, args)
}

// StartTLS is [Start] with TLS alone, by certificates of a; a client needs one of these
// too, unless args has "--tls-auth-clients", "no".
func StartTLS(tb TB, a *Authority, args ...string) *Server {
	tb.Helper()
	return started(tb, false, a, args)
}

// StartUnix is [Start] on a Unix socket and no port.
func StartUnix(tb TB, args ...string) *Server {
	tb.Helper()
	return started(tb, true, nil, args)
}

func started(tb TB, unix bool, a *Authority, args []string) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "redis") // short: a socket's path has at most 107 bytes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := launch(dir, unix, a, args)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

func launch(dir string, unix bool, a *Authority, args []string) (*Server, error) {
	s := &Server{dir: dir, args: args, tls: a}
	for i, arg := range args {
		s.cluster = s.cluster || arg == "--cluster-enabled" && i+1 < len(args) && args[i+1] == "yes"
	}
	if unix {
		s.socket = filepath.Join(dir, "redis.sock")
		return s, s.run()
	}
	var err error
	for range portTries {
		if s.host, s.port, err = freePort(); err != nil {
			return nil, err
		}
		if port, _ := strconv.Atoi(s.port); s.cluster && Before(7, 0) && port+busOffset > math.MaxUint16 {
			err = fmt.Errorf("port %d leaves none for the bus", port)
			continue
		}
		if err = s.run(); err == nil {
			return s, nil
		}
		if errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	return nil, err
}

func freePort() (host, port string, err error) {
	addr, err := loopback.Addr()
	if err != nil {
		return "", "", err
	}
	return net.SplitHostPort(addr)
}

// Addr is host:port, or the path of the socket.
func (s *Server) Addr() string {
	if s.socket != "" {
		return s.socket
	}
	return net.JoinHostPort(s.host, s.port)
}

// URL is the address as REDIS_URL has it, without a password.
func (s *Server) URL() string {
	if s.socket != "" {
		return "unix://" + s.socket
	}
	if s.tls != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Kill ends the server with SIGKILL and waits until it is gone.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // fails only when it has ended already
	<-s.exited
	s.cmd = nil
}

// Stop is [Server.Kill] by the name that belongs at the end of a program:
// nothing here needs a server's last words.
func (s *Server) Stop() { s.Kill() }

// Restart runs the server again at the same address, after Kill or instead of it.
func (s *Server) Restart() error {
	s.Kill()
	var err error
	for range portTries {
		if err = s.run(); err == nil {
			return nil
		}
	}
	return err
}

// run starts the process and returns when it accepts connections.
func (s *Server) run() error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return fmt.Errorf("the program redis-server is needed; install the package redis-server (or redis): %w", err)
	}
	args := []string{
		"--dir", s.dir, "--bind", cmp.Or(s.host, "127.0.0.1"),
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", "",
	}
	if s.host != "" {
		args = append(args, "--replica-announce-ip", s.host) // where it connects from is 127.0.0.1
	}
	if s.tls == nil {
		args = append(args, "--port", cmp.Or(s.port, "0"))
	} else {
		options, err := s.tls.options(s)
		if err != nil {
			return err
		}
		args = append(append(args, "--port", "0"), options...)
	}
	if s.socket != "" {
		args = append(args, "--unixsocket", s.socket)
	}
	if s.cluster {
		if s.bus == "" {
			if s.bus, err = s.busPort(); err != nil {
				return err
			}
		}
		if args = append(args, "--cluster-announce-ip", s.host); !Before(7, 0) {
			args = append(args, "--cluster-port", s.bus)
		}
		if s.tls != nil {
			args = append(args, "--tls-cluster", "yes")
		}
	}
	return s.start(exec.Command(program, append(args, s.args...)...))
}

func (s *Server) start(cmd *exec.Cmd) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = write, write
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return fmt.Errorf("start redis-server: %w", err)
	}
	exited := make(chan struct{})
	out := &output{ready: make(chan struct{})}
	go func() {
		defer close(exited)
		out.follow(read)
		_ = read.Close()
		_ = cmd.Wait() // how it ended is of no interest: the tests kill it
	}()
	s.cmd, s.exited = cmd, exited
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-out.ready:
		return nil
	case <-exited:
		s.cmd = nil
		return fmt.Errorf("redis-server ended at once: %s", out.tail())
	case <-limit.C:
		s.Kill()
		return fmt.Errorf("redis-server was not ready within %s: %s", startLimit, out.tail())
	}
}

// output reads what a server prints and notices when it is ready.
type output struct {
	ready chan struct{}
	mu    sync.Mutex
	last  []byte // guarded by mu
}

func (o *output) follow(r io.Reader) {
	isReady := false
	for scan := bufio.NewScanner(r); scan.Scan(); {
		line := scan.Bytes()
		if !isReady && (bytes.Contains(line, []byte("eady to accept connections")) ||
			bytes.Contains(line, []byte("Sentinel ID is"))) {
			isReady = true
			close(o.ready)
		}
		o.mu.Lock()
		o.last = append(append(o.last, line...), '\n')
		o.last = o.last[max(0, len(o.last)-keptOutput):]
		o.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // behind a line too long to scan: a full pipe would stop the server
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.last))
}
