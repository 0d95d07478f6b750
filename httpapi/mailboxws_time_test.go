package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/httpapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// pipes is a network of pipes: the fake clock of a bubble stands still while
// somebody waits for a socket.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }

// piped dials the mailbox's socket over a pipe. The bot registers when it is told to.
func piped(t *testing.T, registers bool) (conn *websocket.Conn, raw net.Conn, line *fakeLine) {
	t.Helper()
	b := newBox()
	line = &fakeLine{taken: make(chan mailbox.Envelope, 100), done: make(chan struct{}), closed: make(chan struct{})}
	line.close = func() { close(line.closed) }
	line.handle = func(mailbox.Envelope) (*mailbox.Envelope, error) { return nil, nil }
	b.attach = func(send func(context.Context, mailbox.Envelope) error) agent.Line {
		line.send = send
		return line
	}
	network := make(pipes)
	// As the sidecar has it: none of these may end a WebSocket.
	server := &http.Server{Handler: httpapi.New(withMailbox(b).Options), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	go func() { _ = server.Serve(network) }()
	t.Cleanup(func() { _ = server.Close() })
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		network <- far
		raw = near
		return near, nil
	}}
	conn, _, err := websocket.Dial(t.Context(), "ws://localhost/v1/mailbox/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	if registers {
		p := &phone{t, conn}
		p.say(register)
		if e := p.hear(); e.Type != mailbox.TypeRegistered {
			t.Fatalf("got %+v", e)
		}
	}
	return conn, raw, line
}

func TestABotThatDoesNotRegisterInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		conn, _, _ := piped(t, false)
		p := &phone{t, conn}
		if code, _ := mailbox.Refusal(p.hear()); code != mailbox.Unauthorized {
			t.Errorf("got %s", code)
		}
		p.wantClosed(websocket.StatusPolicyViolation)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestADeadLinkIsFound(t *testing.T) {
	for name, dead := range map[string]func(net.Conn){
		"nothing is taken any more":     func(net.Conn) {},
		"what comes is never looked at": func(raw net.Conn) { go func() { _, _ = io.Copy(io.Discard, raw) }() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, raw, line := piped(t, true)
				began := time.Now()
				dead(raw)
				<-line.closed
				if took := time.Since(began); took > time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestAQuietBotStaysConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, line := piped(t, true)
		frames := make(chan error, 1)
		go func() {
			_, _, err := conn.Read(t.Context()) // answers pings
			frames <- err
		}()
		time.Sleep(time.Hour)
		select {
		case <-line.closed:
			t.Fatal("it was closed")
		default:
		}
		if err := line.send(t.Context(), letter("m1")); err != nil {
			t.Error(err)
		}
		if err := <-frames; err != nil {
			t.Error(err)
		}
	})
}

// A bot that writes and does not read is not asked for pongs while it writes.
func TestABotThatOnlyWritesStaysConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, raw, line := piped(t, true)
		go func() { _, _ = io.Copy(io.Discard, raw) }()
		for range 20 {
			time.Sleep(10 * time.Second)
			err := conn.Write(t.Context(), websocket.MessageText, []byte(frame("m", `,"type":"message","content":"hi"`)))
			if err != nil {
				t.Fatal(err)
			}
			<-line.taken
		}
	})
}

// A mailbox that takes long to answer is given up, and the bot told to try again.
func TestAMailboxThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _, line := piped(t, true)
		var hung error
		line.handle = func(mailbox.Envelope) (*mailbox.Envelope, error) { return nil, errors.New("not set") }
		line.wait = func(ctx context.Context) { <-ctx.Done(); hung = ctx.Err() }
		p := &phone{t, conn}
		p.say(frame("m", `,"type":"message","content":"hi"`))
		if code, _ := mailbox.Refusal(p.hear()); code != mailbox.AgentBusy || !errors.Is(hung, context.DeadlineExceeded) {
			t.Errorf("got %s, %v", code, hung)
		}
	})
}
