//go:build unix

package sidecar_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/redistest"
	"feishu-relay/sidecar"
)

// Redis is away when the sidecars start: they start all the same, say what is
// wrong, take what the bots send, and deliver it when Redis is there.
func TestFaultRedisDownAtStart(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	srv.Kill()
	c := prepare(t, setup{redis: srv.URL(), separate: true, bots: 2})
	for _, b := range c.bots {
		b.side.start("")
	}
	c.connect()
	simple := startNaive(t, srv.URL(), srv.URL())
	ctx := limited(t)
	c.talk(ctx, 5, "oc_1", "oc_2")
	for _, b := range c.bots {
		st, err := b.status(ctx)
		must(t, err)
		if st.Ready || !strings.Contains(st.NotReady, "redis") {
			t.Errorf("%s without Redis: ready %v, %q", b.name, st.Ready, st.NotReady)
		}
	}
	simple.bitten(ctx)
	b := c.bots[0].side // what was accepted survives that, too
	b.kill()
	b.countKill()
	b.start("")
	must(t, srv.Restart())
	c.talk(ctx, 2, "oc_1", "oc_2")
	c.verify(ctx)
	simple.mustLose(t)
}

// Redis, which persists nothing, is killed and comes back under load, with a
// sidecar killed meanwhile.
func TestFaultRedisKilled(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := newCluster(t, setup{redis: srv.URL(), separate: true, bots: 2, webhooks: []int{1}})
	simple := startNaive(t, srv.URL(), srv.URL())
	ctx := limited(t)
	eventually(ctx, t, "naive programs talk", simple.begun)
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		for round := range 3 {
			failed = c.h.awaitEvents(ctx, 25)
			srv.Kill()
			failed = errors.Join(failed, c.h.awaitSends(ctx, 5)) // they are accepted
			if round > 0 {
				side := c.bots[round-1].side
				side.kill()
				side.countKill()
				side.start("")
			}
			simple.bitten(ctx)
			if failed = errors.Join(failed, srv.Restart()); failed != nil {
				return
			}
		}
	}()
	c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
	must(t, failed)
	c.verify(ctx)
	simple.mustLose(t)
}

// Redis stands still for three seconds: connections are taken, nobody answers.
func TestFaultRedisPaused(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := newCluster(t, setup{redis: srv.URL(), separate: true, bots: 2})
	simple := startNaive(t, srv.URL(), srv.URL())
	ctx := limited(t)
	eventually(ctx, t, "naive programs talk", simple.begun)
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		failed = c.h.awaitEvents(ctx, 20)
		failed = errors.Join(failed, srv.Pause())
		<-time.After(3 * time.Second) // the fault itself
		failed = errors.Join(failed, srv.Resume())
	}()
	c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
	must(t, failed)
	c.verify(ctx)
	simple.mustLose(t)
}

// The way to Redis swallows everything, while connections stay up and new ones
// are taken: a sidecar notices, says so, and has missed nothing afterwards.
func TestFaultRedisBlackHole(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	way := newProxy(t, srv.Addr())
	c := newCluster(t, setup{redis: srv.URL(), separate: true, bots: 2, change: func(i int, cfg *sidecar.Config) {
		if i == 1 {
			cfg.RedisURL = sidecar.Secret("redis://" + way.addr())
		}
	}})
	simple := startNaive(t, srv.URL(), "redis://"+way.addr())
	ctx := limited(t)
	eventually(ctx, t, "naive programs talk", simple.begun)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c.h.awaitEvents(ctx, 20) != nil {
			return
		}
		way.dark.Store(true)
		for ctx.Err() == nil {
			if st, err := c.bots[1].status(ctx); err == nil && !st.Ready {
				break
			}
			breathe(ctx)
		}
		way.dark.Store(false)
	}()
	c.talkUntil(ctx, done, 5, "oc_1", "oc_2")
	c.verify(ctx)
	simple.mustLose(t)
}

// proxy passes connections on to a server. While it is dark it swallows what
// passes, and a connection that lost something so never comes to life again,
// as one behind a router that forgot it.
type proxy struct {
	listener net.Listener
	target   string
	dark     atomic.Bool
	open     sync.WaitGroup
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{listener: l, target: target}
	ctx, cancel := context.WithCancel(context.Background())
	p.open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.open.Go(func() { p.pass(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		p.open.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) pass(ctx context.Context, near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer far.Close()
	defer context.AfterFunc(ctx, func() {
		_ = near.Close()
		_ = far.Close()
	})()
	var dead atomic.Bool
	dead.Store(p.dark.Load())
	var both sync.WaitGroup
	both.Go(func() { p.pump(far, near, &dead) })
	both.Go(func() { p.pump(near, far, &dead) })
	both.Wait()
}

// pump copies until one side ends, and then ends the other, unless the
// connection is dead: then nobody hears of it.
func (p *proxy) pump(to, from net.Conn, dead *atomic.Bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if p.dark.Load() {
			dead.Store(true)
		}
		if n > 0 && !dead.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if c, ok := to.(interface{ CloseWrite() error }); ok && errors.Is(err, io.EOF) && !dead.Load() {
				_ = c.CloseWrite()
			}
			return
		}
	}
}
