package entry_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu/entry"
)

// pipes is a listener whose connections are pipes, for tests on the fake clock.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// A body may take as long as it likes, and pause for entry.StallTimeout at most.
func TestASenderThatStallsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		r := newRig(t, entry.Options{Loopback: true, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			got <- err
		})})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- r.Serve(l) }()
		near, far := net.Pipe()
		l.conns <- near
		go func() { _, _ = io.Copy(io.Discard, far) }()
		fmt.Fprint(far, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		for range 5 {
			time.Sleep(entry.StallTimeout - time.Second)
			fmt.Fprint(far, "x")
		}
		synctest.Wait()
		last := time.Now()
		if err := <-got; err == nil {
			t.Error("the body was taken as whole")
		}
		if paused := time.Since(last); paused != entry.StallTimeout {
			t.Errorf("dropped after %s, want %s", paused, entry.StallTimeout)
		}
		ctx, cancel := contextFor(patience)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = far.Close()
	})
}

// Clients that send nothing, or stall, have all connections until their deadlines. Then a bot that waited is served.
func TestStalledClientsMakeRoomInTime(t *testing.T) {
	for name, beginning := range map[string]string{"silent": "", "header": "GET / HTTP/1.1\r\nX: ",
		"body": "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, entry.Options{Loopback: true})
				l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
				served := make(chan error, 1)
				go func() { served <- r.Serve(l) }()
				for range entry.MaxConns {
					near, far := net.Pipe()
					l.conns <- near
					go func() {
						_, _ = io.WriteString(far, beginning)
						_, _ = io.Copy(io.Discard, far)
					}()
				}
				synctest.Wait()
				begin := time.Now()
				near, far := net.Pipe()
				l.conns <- near // as the kernel's queue, it holds the bot until there is room
				fmt.Fprint(far, "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
				res, err := http.ReadResponse(bufio.NewReader(far), nil)
				if err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("got %v, %v", res, err)
				}
				if waited := time.Since(begin); waited == 0 || waited > entry.StallTimeout {
					t.Errorf("the bot waited for %s", waited)
				}
				_ = far.Close()
				ctx, cancel := contextFor(patience)
				defer cancel()
				_ = r.Shutdown(ctx)
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Short fields take many times the memory of their bytes.
func TestHeadersAreBounded(t *testing.T) {
	r := start(t, entry.Options{})
	for fields, want := range map[int]int{1000: http.StatusOK, 1500: http.StatusRequestHeaderFieldsTooLarge} {
		request := "GET /x HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("abc:\r\n", fields) + "\r\n"
		if res, _ := raw(t, r.addr, request); res.StatusCode != want {
			t.Errorf("%d fields: got %s", fields, res.Status)
		}
	}
}
