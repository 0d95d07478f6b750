package entry

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxTunnels is the most tunnels at a time. A further one takes the place of the
	// one in which nothing moved for longest, tunnelStill at least; else it is answered 503.
	maxTunnels = 256
	// tunnelStill is longer than the pause between the pings of a WebSocket.
	tunnelStill = 5 * time.Minute
	// tunnelIdle closes a tunnel in which nothing moved, either way.
	tunnelIdle = 10 * time.Minute
	// dialTimeout is how long the far side may take to be connected, and a
	// proxy on the way to it to answer.
	dialTimeout = 10 * time.Second
)

var dialer = net.Dialer{Timeout: dialTimeout}

var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// tunnel joins the bot with addr and looks at nothing of it. To one of
// Feishu's hosts (feishu) it does not lead back to ourselves, which a host
// alias on this machine would make it do.
func (e *Entry) tunnel(w http.ResponseWriter, r *http.Request, addr string, feishu bool) {
	place := e.tunnels.admit(r.Context())
	if place == nil {
		e.count("tunnel_full")
		e.once("too many tunnels at a time", "max", maxTunnels)
		refuse(w, http.StatusServiceUnavailable, "too many tunnels at a time")
		return
	}
	defer e.tunnels.release(place)
	far, err := e.dial(r.Context(), addr)
	if errors.Is(err, errForbidden) {
		e.forbid(w, addr)
		return
	}
	if err != nil {
		e.count("proxy_failed")
		e.log.Debug("tunnel", "addr", addr, "err", err)
		refuse(w, http.StatusBadGateway, "cannot reach "+addr)
		return
	}
	defer far.Close()
	if feishu && e.isOurselves(r.Context(), far) {
		e.count("proxy_failed")
		e.once("the name of Feishu's host leads back to this gateway: set GATEWAY_TLS=auto, or do not use the gateway "+
			"as a proxy", "addr", addr)
		refuse(w, http.StatusLoopDetected, addr+" leads back to this gateway")
		return
	}
	near, err := takeOver(w)
	if err != nil {
		e.log.Error("take over a connection", "err", err)
		return
	}
	defer near.Close()
	if _, err := near.Write([]byte(established)); err != nil {
		return
	}
	e.count("tunnel")
	join(place.ctx, near, far, place.move)
}

// tunnels bounds how many are open.
type tunnels struct {
	open sync.WaitGroup

	mu     sync.Mutex
	max    int                       // guarded by mu
	places map[*tunnelPlace]struct{} // guarded by mu
}

func newTunnels(most int) *tunnels {
	return &tunnels{max: most, places: map[*tunnelPlace]struct{}{}}
}

// tunnelPlace is that of one tunnel.
type tunnelPlace struct {
	ctx   context.Context // ends when another tunnel takes the place
	end   context.CancelFunc
	moved atomic.Int64 // when something moved last, in Unix milliseconds
}

func (p *tunnelPlace) move() { p.moved.Store(time.Now().UnixMilli()) }

// admit takes a place, where need be that of another tunnel; nil: there is no room.
func (t *tunnels) admit(ctx context.Context) *tunnelPlace {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.max > 0 && len(t.places) >= t.max {
		var stillest *tunnelPlace
		for p := range t.places {
			if stillest == nil || p.moved.Load() < stillest.moved.Load() {
				stillest = p
			}
		}
		if time.Since(time.UnixMilli(stillest.moved.Load())) >= tunnelStill {
			delete(t.places, stillest)
			stillest.end()
		}
	}
	if len(t.places) >= t.max {
		return nil
	}
	p := &tunnelPlace{}
	p.ctx, p.end = context.WithCancel(ctx)
	p.move()
	t.places[p] = struct{}{}
	t.open.Add(1)
	return p
}

func (t *tunnels) release(p *tunnelPlace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.places, p)
	p.end()
	t.open.Done()
}

// stop admits no more tunnels and waits until all are closed.
func (t *tunnels) stop() {
	t.mu.Lock()
	t.max = 0
	t.mu.Unlock()
	t.open.Wait()
}

// isOurselves reports whether far was connected to the listener on which the
// request of ctx came in.
func (e *Entry) isOurselves(ctx context.Context, far net.Conn) bool {
	local, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	remote, isTCP := far.RemoteAddr().(*net.TCPAddr)
	if !ok || !isTCP {
		return false
	}
	host, port := split(remote.String(), "")
	return e.isOurs(local, host, port)
}

// join copies both ways until both sides have said all they had, one of them
// fails, nothing moved for tunnelIdle, or ctx ends. It closes both.
func join(ctx context.Context, a, b net.Conn, noteMove func()) {
	hangUp := func() {
		_ = a.Close()
		_ = b.Close()
	}
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	idle := time.AfterFunc(tunnelIdle, hangUp)
	defer idle.Stop()
	moved := func() {
		idle.Reset(tunnelIdle)
		noteMove()
	}
	var back sync.WaitGroup
	back.Go(func() { oneWay(a, b, moved, hangUp) })
	oneWay(b, a, moved, hangUp)
	back.Wait()
}

// oneWay copies until src ends, which it tells dst, or either fails, which
// ends the other direction too.
func oneWay(dst, src net.Conn, moved, hangUp func()) {
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			moved()
			if _, err := dst.Write(buf[:n]); err != nil {
				hangUp()
				return
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if closeWrite(dst) != nil {
				hangUp()
			}
			return
		default:
			hangUp()
			return
		}
	}
}
