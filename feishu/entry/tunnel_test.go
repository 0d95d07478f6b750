package entry_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu/entry"
)

// peer is a TCP server of one connection after the other.
func peer(t *testing.T, serve func(c *net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			serve(c.(*net.TCPConn))
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// connect opens a tunnel by hand.
func connect(t *testing.T, r *rig, addr string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c := dialTCP(t, r.addr)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr)
	in := bufio.NewReader(c)
	if res, body := answer(t, in, true); res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", res.Status, body)
	}
	return c, in
}

func TestATunnelClosesHalfAtATime(t *testing.T) {
	// It answers only when the question is over, and then goes on.
	addr := peer(t, func(c *net.TCPConn) {
		question, _ := io.ReadAll(c)
		fmt.Fprintf(c, "you said %s", question)
	})
	received := make(chan string, 1)
	reverse := peer(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "first me")
		_ = c.CloseWrite()
		rest, _ := io.ReadAll(c)
		received <- string(rest)
	})
	r := start(t, entry.Options{Loopback: true, Allow: []string{addr, reverse}})
	c, in := connect(t, r, addr)
	fmt.Fprint(c, "hello")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(in); string(got) != "you said hello" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	c, in = connect(t, r, reverse) // the other way round
	if got, err := io.ReadAll(in); string(got) != "first me" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	fmt.Fprint(c, "then you")
	c.Close()
	if got := <-received; got != "then you" {
		t.Errorf("got %q", got)
	}
}

// A client may send its first bytes together with the CONNECT.
func TestWhatFollowsConnectAtOnceIsNotLost(t *testing.T) {
	addr := peer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	r := start(t, entry.Options{Loopback: true, Allow: []string{addr}})
	c := dialTCP(t, r.addr)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\nearly", addr)
	in := bufio.NewReader(c)
	if res, _ := answer(t, in, true); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	_ = c.CloseWrite()
	if got, _ := io.ReadAll(in); string(got) != "early" {
		t.Errorf("got %q", got)
	}
}

func TestAnUnreachableHostIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	r := start(t, entry.Options{Loopback: true, Allow: []string{l.Addr().String()}})
	c := dialTCP(t, r.addr)
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
	if res, body := answer(t, bufio.NewReader(c), true); res.StatusCode != http.StatusBadGateway {
		t.Errorf("got %s %s", res.Status, body)
	}
}

func TestAnIdleTunnelIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, bot := net.Pipe()
		far, host := net.Pipe()
		joined := make(chan struct{})
		go func() { defer close(joined); entry.Join(t.Context(), near, far) }()
		begin := time.Now()
		say := func(from, to net.Conn) {
			t.Helper()
			go func() { _, _ = from.Write([]byte("x")) }()
			if _, err := io.ReadFull(to, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		for range 5 { // either side keeps it open
			time.Sleep(entry.TunnelIdle - time.Second)
			say(bot, host)
			time.Sleep(entry.TunnelIdle - time.Second)
			say(host, bot)
		}
		<-joined
		if got, want := time.Since(begin), 10*(entry.TunnelIdle-time.Second)+entry.TunnelIdle; got != want {
			t.Errorf("closed after %s, want %s", got, want)
		}
		if _, err := bot.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the bot's side: %v", err)
		}
	})
}

// A silent connection does not keep others from being served.
func TestASilentConnectionHoldsNobodyUp(t *testing.T) {
	r := start(t, entry.Options{})
	dialTCP(t, r.addr)
	wantBody(t, client(t, "", nil), "http://"+r.addr, "POST /")
}

func TestShutdown(t *testing.T) {
	entered, finish := make(chan struct{}), make(chan struct{})
	addr := peer(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	r := newRig(t, entry.Options{Loopback: true, Allow: []string{addr}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			<-finish
		}
		fmt.Fprint(w, "done")
	})})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()

	_, tunnel := connect(t, r, addr)
	idle := client(t, "", nil)
	if status, _ := ask(t, idle, "http://"+r.addr+"/"); status != 200 {
		t.Fatal(status)
	}
	slow := make(chan string, 1)
	go func() {
		_, body := ask(t, client(t, "", nil), "http://"+r.addr+"/slow")
		slow <- body
	}()
	<-entered

	stopped := make(chan error, 1)
	go func() { stopped <- r.Shutdown(context.Background()) }()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	close(finish)
	if body := <-slow; body != "done" {
		t.Errorf("the running request got %q", body)
	}
	if _, err := tunnel.ReadByte(); err == nil {
		t.Error("the tunnel is open")
	}
	if err := <-stopped; err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if err := r.Shutdown(context.Background()); err != nil {
		t.Errorf("the second time: %v", err)
	}
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("it still listens")
	}
	again, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(again); err != nil {
		t.Errorf("serve after shutdown: %v", err)
	}
}

func TestShutdownIsCutShort(t *testing.T) {
	entered := make(chan struct{})
	r := newRig(t, entry.Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	go func() { fmt.Fprint(dialTCP(t, l.Addr().String()), "GET / HTTP/1.1\r\nHost: x\r\n\r\n") }()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The network's own proxy stands between the gateway and the rest.
func TestTheSidecarsOwnProxy(t *testing.T) {
	other, addr := origin(t)
	asked := make(chan *http.Request, 1)
	proxy := peer(t, func(c *net.TCPConn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			t.Error(err)
			return
		}
		asked <- r
		if r.Host != "origin.test:443" {
			fmt.Fprint(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
			return
		}
		far, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		entry.Join(context.Background(), c, far)
	})
	t.Setenv("HTTPS_PROXY", "http://user:pass@"+proxy)
	r := start(t, entry.Options{Loopback: true})
	config := other.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	c := client(t, "http://"+r.addr, config)
	wantBody(t, c, "https://origin.test", "origin")
	c.CloseIdleConnections() // the proxy serves one at a time
	if got := (<-asked).Header.Get("Proxy-Authorization"); got != "Basic dXNlcjpwYXNz" {
		t.Errorf("the proxy was given %q", got)
	}
	res, _ := raw(t, r.addr, "CONNECT refused.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	if res.StatusCode != http.StatusBadGateway {
		t.Errorf("got %s", res.Status)
	}
	<-asked
}

func TestTheGatewayIsNotItsOwnProxy(t *testing.T) {
	r := start(t, entry.Options{Loopback: true})
	r.SetProxy("http://" + r.addr) // as the environment says, which New reads
	res, _ := raw(t, r.addr, "CONNECT origin.test:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	if res.StatusCode != http.StatusBadGateway {
		t.Errorf("got %s", res.Status)
	}
	if !strings.Contains(r.log.String(), "names its gateway") {
		t.Errorf("not said: %s", r.log)
	}
}

func TestProxiesThatAreNotServed(t *testing.T) {
	for _, proxy := range []string{"socks5://127.0.0.1:1", "https://127.0.0.1:1"} {
		r := start(t, entry.Options{Loopback: true})
		r.SetProxy(proxy)
		if res, _ := raw(t, r.addr, "CONNECT origin.test:443 HTTP/1.1\r\nHost: x\r\n\r\n"); res.StatusCode != http.StatusBadGateway {
			t.Errorf("%s: got %s", proxy, res.Status)
		}
	}
}

// A handshake inside of a tunnel that fails ends that tunnel alone.
func TestABrokenHandshakeInsideATunnel(t *testing.T) {
	r := start(t, entry.Options{Mode: entry.ModeAuto, DataDir: t.TempDir()})
	c, in := connect(t, r, "open.feishu.cn:443")
	if _, err := c.Write([]byte{0x16, 3, 1, 0, 4, 1, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(in) // an alert, and the end
	if got := r.counted("tls_failed"); got != 1 {
		t.Errorf("counted %d", got)
	}
	inner := tls.Client(dialTCP(t, r.addr), r.trusting())
	inner.Close()
	wantBody(t, client(t, "http://"+r.addr, r.trusting()), "https://open.feishu.cn/", "POST /")
}
