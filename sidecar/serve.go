package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"feishu-relay/dedup"
	"feishu-relay/httpapi"
	"feishu-relay/internal/attempts"
	"feishu-relay/mailapi"
)

// localAPI is the server of the local API.
type localAPI struct {
	*base
	listener  net.Listener
	server    *http.Server
	failures  *attempts.Failures // wrong tokens, of the API and of tunnels
	lines     mailapi.Lines      // of a bot at /v1/mailbox/ws
	signedOut *dedup.Window      // sessions of browsers
}

func openAPI(b *base) (*localAPI, error) {
	a := &localAPI{base: b, failures: attempts.New()}
	var err error
	a.signedOut, err = b.window(".sessions.jsonl", httpapi.MaxEnded)
	return a, err
}

// listen binds the listener for what options serve.
func (a *localAPI) listen(options httpapi.Options) error {
	var err error
	if a.listener, err = net.Listen("tcp", a.cfg.ListenAddr); err != nil {
		return &setting{bindError("LISTEN_ADDR", err)}
	}
	a.onClose(func() error {
		if err := a.listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	options.Token, options.AdminToken = string(a.cfg.APIToken), string(a.cfg.AdminToken)
	options.Name = string(a.cfg.Agent) + " " + a.cfg.ListenAddr
	options.Ended, options.Failures = a.signedOut, a.failures
	options.Metrics, options.Logger = a.metrics.handler(), a.log
	a.server, a.listener = bounded(a.listener, httpapi.New(options), a.log)
	return nil
}

// stop ends the long connections and lets short requests finish.
func (a *localAPI) stop() {
	a.lines.Close()
	ctx, cancel := context.WithTimeout(context.Background(), finishRequests)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		_ = a.server.Close()
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

// bounded returns a server, and the listener to serve, with deadlines and with at most maxConns connections.
func bounded(l net.Listener, handler http.Handler, log *slog.Logger) (*http.Server, net.Listener) {
	s := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	var fresh sync.Map // connections on which no request came yet, for which a shutdown would wait
	s.ConnState = func(conn net.Conn, state http.ConnState) {
		if fresh.Delete(conn); state == http.StateNew {
			fresh.Store(conn, nil)
		}
	}
	s.RegisterOnShutdown(func() {
		fresh.Range(func(conn, _ any) bool {
			_ = conn.(net.Conn).Close()
			return true
		})
	})
	return s, netutil.LimitListener(l, maxConns)
}
