package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"

	"feishu-relay/httpapi"
	"feishu-relay/internal/attempts"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailapi"
)

// localAPI is the server of the local API.
type localAPI struct {
	*server
	failures *attempts.Failures // wrong tokens, of the API and of tunnels
	lines    mailapi.Lines      // of a bot at /v1/mailbox/ws
}

// listen binds the listener of the local API.
func (s *Sidecar) listen() (err error) {
	a, b, o := s.api, s.base, s.served()
	o.Token, o.AdminToken, o.Failures = string(b.cfg.APIToken), string(b.cfg.AdminToken), a.failures
	signedOut := b.name() + ".signed-out"
	if text, err := safefile.ReadFile(b.processed, signedOut); err == nil {
		_ = o.SignedOut.UnmarshalText(text) // else never
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o.SignOut = func(at time.Time) error {
		return safefile.Replace(b.processed, signedOut, at.AppendFormat(nil, time.RFC3339Nano))
	}
	o.Name, o.Metrics, o.Logger = string(b.cfg.Agent)+" "+b.cfg.ListenAddr, b.metrics.handler(), b.log
	if a.server, err = listenOn("LISTEN_ADDR", b.cfg.ListenAddr, httpapi.New(o), b.log); err != nil {
		return &setting{err}
	}
	b.onClose(func() error {
		a.server.close()
		return nil
	})
	return nil
}

// stop ends the long connections and lets short requests finish.
func (a *localAPI) stop() {
	a.lines.Close()
	ctx, cancel := context.WithTimeout(context.Background(), finishRequests)
	defer cancel()
	if err := a.Shutdown(ctx); err != nil {
		_ = a.Close()
	}
}

const (
	// maxConns is the most connections to the local API or to WEBHOOK_ADDR. A further one waits in the kernel until one
	// of them ends.
	maxConns = 512
	// maxHeader is the most bytes of a request's header, to which net/http adds 4 KiB: many short fields
	// take twenty times their size in memory.
	maxHeader = 8 << 10
)

// server is a server with its listener, with deadlines and with at most maxConns connections.
type server struct {
	http.Server
	listener net.Listener
}

// bind listens on the address that a variable sets.
func bind(variable, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; set it to a free address of this host, or end the program that uses it",
			variable, err)
	}
	return l, nil
}

func listenOn(variable, addr string, handler http.Handler, log *slog.Logger) (*server, error) {
	l, err := bind(variable, addr)
	if err != nil {
		return nil, err
	}
	return &server{http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}, netutil.LimitListener(l, maxConns)}, nil
}

// serve serves until the server is shut down; fail is told about a listener that ended by itself.
func (s *server) serve(name string, fail func(error)) {
	if err := s.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		fail(fmt.Errorf("%w: %s: %w", errListener, name, err))
	}
}

// close closes what is left after a shutdown, or without one.
func (s *server) close() {
	_ = s.Close()
	_ = s.listener.Close()
}
