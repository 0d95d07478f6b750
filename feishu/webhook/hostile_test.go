package webhook_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu/webhook"
)

// pipes is a listener without a network, so that a bubble of synctest settles.
type pipes struct {
	conns chan net.Conn
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

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- far
	return near
}

// listen serves r on connections without a network. The caller calls stop.
func (r *rig) listen() (p *pipes, stop func()) {
	p = &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: r.s}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(p) }()
	return p, func() { _ = server.Close(); <-ended }
}

// begin writes the head of a post and returns its connection.
func (p *pipes) begin(t *testing.T, header http.Header, length int) net.Conn {
	t.Helper()
	var head bytes.Buffer
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", webhook.EventPath, length)
	_ = header.Write(&head)
	head.WriteString("\r\n")
	c := p.dial()
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write(head.Bytes()); err != nil {
		t.Fatal(err)
	}
	return c
}

// status reads an answer and reports whether its connection ends behind it.
func status(t *testing.T, c net.Conn) (code int, closed bool) {
	t.Helper()
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Error("no answer:", err)
		return 0, false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if !resp.Close {
		return resp.StatusCode, false
	}
	_, err = in.ReadByte()
	return resp.StatusCode, errors.Is(err, io.EOF)
}

// send posts p whole.
func (p *pipes) send(t *testing.T, what post) int {
	t.Helper()
	c := p.begin(t, what.header, len(what.body))
	defer c.Close()
	go func() { _, _ = c.Write(what.body) }() // it may be answered before its end
	code, _ := status(t, c)
	return code
}

// forgery is the head of a post that seems signed until its body is read.
func forgery() http.Header {
	return http.Header{
		"X-Lark-Request-Timestamp": {strconv.FormatInt(time.Now().Unix(), 10)},
		"X-Lark-Signature":         {strings.Repeat("0", 64)},
	}
}

func botThatTakes(more ...func(*webhook.Options)) func(*webhook.Options) {
	return via(func(*http.Request) (*http.Response, error) { return says(200, "ok"), nil }, more...)
}

func TestSlowSendersBlockNobodyAndAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "http://bot/", botThatTakes())
		p, stop := r.listen()
		defer stop()
		var slow []net.Conn
		for range 300 {
			c := p.begin(t, forgery(), 1000)
			if _, err := c.Write([]byte("{")); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, c)
		}
		synctest.Wait()
		begin := time.Now()
		if code := p.send(t, signed(t, event("e1"))); code != 200 || time.Since(begin) != 0 {
			t.Errorf("Feishu's post among slow senders: got %d after %s", code, time.Since(begin))
		}
		for _, c := range slow {
			if code, closed := status(t, c); code != http.StatusRequestTimeout || !closed {
				t.Fatalf("a slow sender: got %d, closed %v", code, closed)
			}
		}
		if n := r.counted("too_slow"); n != len(slow) {
			t.Errorf("counted %d slow senders, want %d", n, len(slow))
		}
	})
}

// Few large bodies are read at a time, and small posts pass whoever sends them.
func TestBodiesThatNeverEndAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "http://bot/", botThatTakes())
		p, stop := r.listen()
		defer stop()
		most := bytes.Repeat([]byte("a"), 1<<20-1)
		codes := make(chan int, 100)
		for range cap(codes) {
			c := p.begin(t, forgery(), len(most)+1)
			go func() { _, _ = c.Write(most) }()
			go func() {
				code, _ := status(t, c)
				codes <- code
			}()
			synctest.Wait()
		}
		if code := p.send(t, signed(t, event("e1"))); code != 200 {
			t.Errorf("Feishu's post: got %d", code)
		}
		large := strings.Replace(event("e2"), "hello", "hello"+strings.Repeat("a", 300<<10), 1)
		if code := p.send(t, signed(t, large)); code != http.StatusServiceUnavailable { // Feishu posts it again
			t.Errorf("Feishu's large post: got %d", code)
		}
		slow := 0
		for range cap(codes) {
			if code := <-codes; code == http.StatusRequestTimeout {
				slow++
			} else if code != http.StatusServiceUnavailable {
				t.Errorf("got %d", code)
			}
		}
		if slow != 16 {
			t.Errorf("%d bodies of 1 MiB were read, want 16", slow)
		}
		if code := p.send(t, signed(t, large)); code != 200 {
			t.Errorf("afterwards: got %d", code)
		}
	})
}

// Feishu stops waiting after 3 s and repeats the event after 15 s, 5 min and 1 h.
// A bot that thinks in its handler gets it once, and is not cut off.
func TestABotThatThinksForMinutesGetsAnEventOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posts, finished := 0, error(nil)
		r := newRig(t, "http://bot/", via(func(req *http.Request) (*http.Response, error) {
			posts++
			thought := time.NewTimer(10 * time.Minute)
			select {
			case <-thought.C:
			case <-req.Context().Done():
				finished = req.Context().Err()
				return nil, finished
			}
			return says(200, ""), nil
		}))
		p, stop := r.listen()
		defer stop()
		feishu := func() int {
			what := signed(t, event("e1"))
			c := p.begin(t, what.header, len(what.body))
			defer c.Close()
			if _, err := c.Write(what.body); err != nil {
				t.Fatal(err)
			}
			_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return 0
			}
			return resp.StatusCode
		}
		for _, try := range []struct {
			after time.Duration
			want  int
		}{{0, 0}, {15 * time.Second, 503}, {5 * time.Minute, 503}, {time.Hour, 200}} {
			time.Sleep(try.after)
			if got := feishu(); got != try.want {
				t.Errorf("after another %s: got %d, want %d", try.after, got, try.want)
			}
		}
		if posts != 1 || finished != nil {
			t.Errorf("the bot got it %d times; it was cut: %v", posts, finished)
		}
		if r.counted("in_progress") != 2 || r.counted("repeated") != 1 {
			t.Errorf("counted %v", r.counts)
		}
	})
}

func TestForgeriesFillNoLog(t *testing.T) {
	r := newRig(t, "http://bot/", botThatTakes())
	for range 1000 {
		r.take(plain(event("e1")))
	}
	if n := strings.Count(r.log.String(), "\n"); n > 50 {
		t.Errorf("%d lines for 1000 forged posts", n)
	}
	if r.counted("forged") != 1000 {
		t.Errorf("counted %d", r.counted("forged"))
	}
}

// A bot that thinks about some events keeps nobody from posting others.
func TestEventsThatTheBotWorksOnLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "http://bot/", via(func(req *http.Request) (*http.Response, error) {
			if req.Header.Get("X-Slow") != "" {
				time.Sleep(time.Minute)
			}
			return says(200, ""), nil
		}))
		p, stop := r.listen()
		defer stop()
		large := func(id string) post {
			return signed(t, strings.Replace(event(id), "hello", "hello"+strings.Repeat("a", 200<<10), 1))
		}
		codes := make(chan int, 50)
		for i := range cap(codes) {
			what := large("slow" + strconv.Itoa(i))
			what.header.Set("X-Slow", "1")
			go func() { codes <- p.send(t, what) }()
			synctest.Wait()
		}
		if code := p.send(t, large("another")); code != 200 {
			t.Errorf("another event: got %d", code)
		}
		for range cap(codes) {
			if code := <-codes; code != 200 {
				t.Errorf("an event that the bot works on: got %d", code)
			}
		}
	})
}
