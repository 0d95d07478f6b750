// Package netfault puts network faults between a client and a server in tests: those of
// Toxiproxy, and connections that stay open and silent forever.
//
//	proxy := netfault.Start(t, srv.Addr())
//	… a client of proxy.Addr() …
//	proxy.Begin(fault)
//	proxy.End()
package netfault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Fault is a fault of connections. It applies to open and to new ones.
type Fault struct {
	Name   string
	Toxics []Toxic
	// Silent: connections are accepted, and all data written to them is lost. A silent connection
	// remains silent after the end of the fault, like one whose route a router has dropped.
	Silent bool
	// Cuts: the connections that are open when the fault begins are closed.
	Cuts bool
	// Stops: no data passes.
	Stops bool
}

// Toxic is a toxic of Toxiproxy, applied in both directions.
type Toxic struct {
	Type       string         `json:"type"`
	Attributes map[string]int `json:"attributes"` // in milliseconds, KB/s or bytes
}

// Faults are the faults that the tests use.
var Faults = []Fault{
	{Name: "latency", Toxics: []Toxic{{"latency", map[string]int{"latency": 200}}}},
	{Name: "jitter", Toxics: []Toxic{{"latency", map[string]int{"latency": 60, "jitter": 50}}}},
	{Name: "slow and in small pieces", Toxics: []Toxic{
		{"bandwidth", map[string]int{"rate": 100}},
		{"slicer", map[string]int{"average_size": 200, "size_variation": 100, "delay": 100}},
	}},
	{Name: "slow close", Toxics: []Toxic{{"slow_close", map[string]int{"delay": 500}}}, Cuts: true},
	{Name: "reset", Toxics: []Toxic{{"reset_peer", map[string]int{"timeout": 50}}}, Stops: true},
	{Name: "closed after some bytes", Toxics: []Toxic{{"limit_data", map[string]int{"bytes": 3000}}}},
	{Name: "black hole", Toxics: []Toxic{{"timeout", map[string]int{"timeout": 0}}}, Stops: true},
	{Name: "half-open", Silent: true, Stops: true},
}

// Proxy forwards connections to a server.
type Proxy struct {
	front  net.Listener
	toxic  *toxiproxy.Proxy
	silent atomic.Bool
	open   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu
}

// quiet silences a part of Toxiproxy that ignores its logger and writes to
// stderr.
var quiet = sync.OnceFunc(func() { zerolog.SetGlobalLevel(zerolog.Disabled) })

// Start runs a proxy until the test ends.
func Start(t *testing.T, target string) *Proxy {
	t.Helper()
	quiet()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{toxic: toxiproxy.NewProxy(server, "", "127.0.0.1:0", target), conns: map[net.Conn]struct{}{}}
	if err := p.toxic.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.toxic.Stop)
	behind := p.toxic.Listen
	var err error
	if p.front, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	p.open.Go(func() {
		for {
			conn, err := p.front.Accept()
			if err != nil {
				return
			}
			p.open.Go(func() { p.pass(conn, behind) })
		}
	})
	t.Cleanup(func() {
		_ = p.front.Close()
		p.cut()
		p.open.Wait()
	})
	return p
}

// Addr is the address at which the proxy listens.
func (p *Proxy) Addr() string { return p.front.Addr().String() }

// Begin begins a fault. Only one may be active at a time.
func (p *Proxy) Begin(f Fault) error {
	p.silent.Store(f.Silent)
	for _, toxic := range f.Toxics {
		for _, stream := range []string{"upstream", "downstream"} {
			data, err := json.Marshal(struct {
				Toxic
				Stream string `json:"stream"`
			}{toxic, stream})
			if err == nil {
				_, err = p.toxic.Toxics.AddToxicJson(bytes.NewReader(data))
			}
			if err != nil {
				return err
			}
		}
	}
	if f.Cuts {
		p.cut()
	}
	return nil
}

// End ends the fault.
func (p *Proxy) End() {
	p.silent.Store(false)
	p.toxic.Toxics.ResetToxics(context.Background())
}

// Silence begins or ends the half-open fault.
func (p *Proxy) Silence(silent bool) { p.silent.Store(silent) }

// cut closes the clients' connections.
func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *Proxy) pass(near net.Conn, behind string) {
	defer near.Close()
	p.mu.Lock()
	p.conns[near] = struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, near)
	}()
	far, err := net.Dial("tcp", behind)
	if err != nil {
		return
	}
	defer far.Close()
	var dead atomic.Bool
	dead.Store(p.silent.Load())
	var both sync.WaitGroup
	both.Go(func() { p.pump(far, near, &dead, false) })
	both.Go(func() { p.pump(near, far, &dead, true) })
	both.Wait()
}

// pump copies until one side ends, and ends the other in the same way. A client does not notice
// the end of a silent connection.
func (p *Proxy) pump(to, from net.Conn, dead *atomic.Bool, toClient bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if p.silent.Load() {
			dead.Store(true)
		}
		if n > 0 && !dead.Load() {
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err == nil {
			continue
		}
		if toClient && dead.Load() {
			return
		}
		if !errors.Is(err, io.EOF) {
			_ = to.(*net.TCPConn).SetLinger(0) // a reset
		}
		_ = to.Close()
		return
	}
}
