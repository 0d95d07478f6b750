package entry

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Clients that begin requests and never end them do not keep the bot out, nor does
// room for them cost a request that is being answered.
func TestStalledRequestsMakeRoom(t *testing.T) {
	held, finish := make(chan struct{}), make(chan struct{})
	r := start(t, Options{Mode: ModeOff, Loopback: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/held": // Feishu takes its time to answer, or to take an upload
			close(held)
			<-finish
		case "/refused": // without a look at the body
			w.WriteHeader(http.StatusForbidden)
			return
		}
		said(w, r)
	})})
	answered := make(chan error, 1)
	go func() {
		res, err := client(t, "", nil).Post("http://"+r.addr+"/held", "text/plain", io.LimitReader(zeros{}, 1<<20))
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			err = errors.Join(err, res.Body.Close())
		}
		answered <- err
	}()
	<-held
	const attackers = 2100
	var opened sync.WaitGroup
	for i := range attackers {
		part := "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"
		if i%2 == 1 {
			part = "POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
		}
		opened.Go(func() {
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			_, _ = io.WriteString(c, part) // fails where it had to make room
		})
	}
	opened.Wait()
	wantBody(t, client(t, "", nil), "http://"+r.addr+"/open-apis", "body=hello")
	close(finish)
	if err := <-answered; err != nil {
		t.Errorf("the request that was being answered: %v", err)
	}
	if r.counted("crowded") == 0 {
		t.Error("no connection made room")
	}
}

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

// A body may take as long as it likes, and pause for stallTimeout at most.
func TestASenderThatStallsIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		r := newRig(t, Options{Mode: ModeOff, Loopback: true, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			got <- err
		})})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- r.Serve(l) }()
		near, far := net.Pipe()
		l.conns <- near
		fmt.Fprint(far, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
		for range 5 {
			time.Sleep(stallTimeout - time.Second)
			fmt.Fprint(far, "x")
		}
		synctest.Wait()
		last := time.Now()
		if err := <-got; err == nil {
			t.Error("the body was taken as whole")
		}
		if paused := time.Since(last); paused != stallTimeout {
			t.Errorf("dropped after %s, want %s", paused, stallTimeout)
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

// from is a connection of a client at an address.
func (p *pipes) from(ip string) net.Conn {
	near, far := net.Pipe()
	p.conns <- addressed{near, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
	return far
}

// onPipes serves on pipes within a bubble of synctest.
func onPipes(t *testing.T, test func(l *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Mode: ModeOff, Loopback: true})
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- r.Serve(l) }()
		test(l)
		ctx, cancel := contextFor(patience)
		defer cancel()
		_ = r.Shutdown(ctx) // some do not end
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

const head = "POST /x HTTP/1.1\r\nHost: x\r\n"

// get is what a bot does: its request is answered at once.
func get(t *testing.T, c net.Conn) {
	t.Helper()
	begin := time.Now()
	_ = c.SetDeadline(begin.Add(patience))
	if _, err := io.WriteString(c, head+"Content-Length: 2\r\n\r\nhi"); err != nil {
		t.Errorf("the bot's request: %v", err)
		return
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	if err != nil {
		t.Errorf("the bot's answer: %v", err)
	}
	if took := time.Since(begin); took != 0 {
		t.Errorf("the bot waited for %s", took)
	}
}

// hostile are clients that keep the gateway waiting.
var hostile = map[string]func(net.Conn){
	"that drip": func(c net.Conn) {
		_, err := io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(c, "1\r\nx\r\n")
			time.Sleep(500 * time.Millisecond)
		}
	},
	"that send just fast enough": func(c net.Conn) {
		_, err := io.WriteString(c, head+"Content-Length: 1000000000\r\n\r\n")
		for err == nil {
			_, err = c.Write(make([]byte, 2*minRate))
			time.Sleep(time.Second)
		}
	},
	"that never read": func(c net.Conn) {
		_, _ = io.WriteString(c, head+"Content-Length: 0\r\n\r\n")
	},
	"that had an answer": func(c net.Conn) {
		_, _ = io.WriteString(c, head+"Content-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	},
}

// A bot connects at once, and is answered while others go on to connect, whatever the
// clients do that have all slots of an address, its own or another.
func TestClientsThatKeepTheGatewayWaitingMakeRoom(t *testing.T) {
	const theirs = "192.0.2.1"
	for name, client := range hostile {
		for _, bots := range []string{theirs, "192.0.2.2"} {
			t.Run(name+", bot at "+bots, func(t *testing.T) {
				onPipes(t, func(l *pipes) {
					var clients sync.WaitGroup
					var conns []net.Conn
					attack := func(n int) {
						for range n {
							c := l.from(theirs)
							conns = append(conns, c)
							clients.Go(func() { client(c) })
						}
					}
					attack(maxPerAddr)
					time.Sleep(10 * time.Second)
					attack(1)
					for range 3 {
						c := l.from(bots)
						conns = append(conns, c)
						attack(maxPerAddr / 4)
						synctest.Wait()
						get(t, c)
						time.Sleep(time.Second)
					}
					for _, c := range conns {
						_ = c.Close()
					}
					clients.Wait()
				})
			})
		}
	}
}

// A large file goes on while all other slots are taken, and by others again.
func TestABodyThatComesIsNotCutOff(t *testing.T) {
	onPipes(t, func(l *pipes) {
		upload := l.from("192.0.2.1")
		defer upload.Close()
		_ = upload.SetDeadline(time.Now().Add(10 * patience))
		_, err := io.WriteString(upload, head+fmt.Sprintf("Content-Length: %d\r\n\r\n", 60*2*minRate))
		for range 60 {
			for range maxPerAddr / 4 {
				c := l.from("192.0.2.1")
				defer c.Close()
			}
			if err == nil {
				_, err = upload.Write(make([]byte, 2*minRate))
			}
			time.Sleep(time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.ReadResponse(bufio.NewReader(upload), nil); err != nil || res.StatusCode != http.StatusOK {
			t.Errorf("got %v, %v", res, err)
		}
	})
}

func TestWhatCountsAsOneAddress(t *testing.T) {
	from := func(ip string) any {
		return sender(addressed{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}})
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"127.0.0.1", "127.0.0.2", true}, {"127.0.0.1", "::1", true}, {"10.0.0.1", "::ffff:10.0.0.1", true}, {"10.0.0.1", "10.0.0.2", false},
		{"2001:db8::1", "2001:db8::ffff:2", true}, {"2001:db8::1", "2001:db8:0:1::1", false}, {"10.0.0.1", "127.0.0.1", false},
	} {
		if got := from(c.a) == from(c.b); got != c.same {
			t.Errorf("%s and %s: got %v", c.a, c.b, got)
		}
	}
}

type addressed struct {
	net.Conn
	addr net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.addr }

// Short fields take many times the memory of their bytes.
func TestHeadersAreBounded(t *testing.T) {
	r := start(t, Options{Mode: ModeOff})
	for fields, want := range map[int]int{1000: http.StatusOK, 1500: http.StatusRequestHeaderFieldsTooLarge} {
		request := "GET /x HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("abc:\r\n", fields) + "\r\n"
		if res, _ := raw(t, r.addr, request); res.StatusCode != want {
			t.Errorf("%d fields: got %s", fields, res.Status)
		}
	}
}
