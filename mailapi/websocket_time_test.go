package mailapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/mailapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// pipes is a network of pipes: the fake clock of a bubble stops while a
// goroutine waits for a socket.
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

// wire is both ends of a WebSocket over a pipe.
type wire struct {
	*phone
	raw   net.Conn // the bot's end of the pipe
	line  *fakeLine
	lines *mailapi.Lines
}

// piped dials the mailbox's socket over a pipe.
func piped(t *testing.T) *wire {
	t.Helper()
	b, wire := newBox(), &wire{lines: &mailapi.Lines{}}
	line := &fakeLine{taken: make(chan mailbox.Envelope, 100), done: make(chan struct{}), closed: make(chan struct{})}
	line.close = func() { close(line.closed) }
	line.handle = func(mailbox.Envelope) (*mailbox.Envelope, error) { return nil, nil }
	b.attach = func(send agent.Send) agent.Line {
		line.give = send
		return line
	}
	wire.line = line
	f := withMailbox(b)
	f.Lines = wire.lines
	network := make(pipes)
	// As the sidecar has it: none of these may end a WebSocket.
	server := &http.Server{Handler: f.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	go func() { _ = server.Serve(network) }()
	t.Cleanup(func() { _ = server.Close() })
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		network <- far
		wire.raw = near
		return near, nil
	}}
	conn, _, err := websocket.Dial(t.Context(), "ws://localhost/v1/mailbox/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	wire.phone = &phone{t, conn}
	return wire
}

// registered is the wire of a bot that has registered.
func registered(t *testing.T) *wire {
	t.Helper()
	w := piped(t)
	w.say(register)
	if e := w.hear(); e.Type != mailbox.TypeRegistered {
		t.Fatalf("got %+v", e)
	}
	return w
}

func TestABotThatDoesNotRegisterInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		w := piped(t)
		if code, _ := mailbox.Refusal(w.hear()); code != mailbox.Unauthorized {
			t.Errorf("got %s", code)
		}
		w.wantClosed(websocket.StatusPolicyViolation)
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
				w := registered(t)
				began := time.Now()
				dead(w.raw)
				<-w.line.closed
				if took := time.Since(began); took > time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestAQuietBotStaysConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := registered(t)
		frames := make(chan error, 1)
		go func() {
			_, _, err := w.conn.Read(t.Context()) // answers pings
			frames <- err
		}()
		time.Sleep(time.Hour)
		select {
		case <-w.line.closed:
			t.Fatal("it was closed")
		default:
		}
		if err := w.line.send(t.Context(), letter("m1")); err != nil {
			t.Error(err)
		}
		if err := <-frames; err != nil {
			t.Error(err)
		}
	})
}

// A bot that writes and does not read answers no ping, and is there.
func TestABotThatOnlyWritesStaysConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := registered(t)
		go func() { _, _ = io.Copy(io.Discard, w.raw) }()
		for range 20 {
			time.Sleep(10 * time.Second)
			err := w.conn.Write(t.Context(), websocket.MessageText, []byte(frame("m", `,"type":"message","content":"hi"`)))
			if err != nil {
				t.Fatal(err)
			}
			<-w.line.taken
		}
	})
}

// A mailbox that takes long to answer is given up, and the bot told to try again.
func TestAMailboxThatHangs(t *testing.T) {
	for name, dial := range map[string]func(*testing.T) *wire{"as a bot registers": piped, "later": registered} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := dial(t)
				began := time.Now()
				w.line.wait = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				w.say(register)
				if code, _ := mailbox.Refusal(w.hear()); code != mailbox.AgentBusy || time.Since(began) != 10*time.Second {
					t.Errorf("got %s after %v", code, time.Since(began))
				}
			})
		})
	}
}

// Mail that comes while a bot registers comes behind the answer.
func TestMailComesBehindTheAnswerToTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := piped(t)
		sent := make(chan error, 1)
		w.line.wait = func(context.Context) error {
			go func() { sent <- w.line.send(t.Context(), letter("m1")) }()
			synctest.Wait()
			return nil
		}
		w.say(register)
		if e := w.hear(); e.Type != mailbox.TypeRegistered {
			t.Fatalf("got %+v", e)
		}
		if e := w.hear(); e.ID != "m1" {
			t.Errorf("got %+v", e)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

func TestHowLongClosingTheLinesTakes(t *testing.T) {
	for name, tt := range map[string]struct {
		bot  func(*wire)
		took time.Duration
	}{
		"a bot that is there": {func(w *wire) { _, _ = w.read() }, 0},
		"a bot that is dead":  {func(*wire) {}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := registered(t)
				var bot sync.WaitGroup
				bot.Go(func() { tt.bot(w) })
				synctest.Wait()
				began := time.Now()
				w.lines.Close()
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
				bot.Wait()
			})
		})
	}
}
