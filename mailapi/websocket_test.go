package mailapi_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/internal/wait"
	"feishu-relay/mailapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// fakeLine is the mailbox's side of a WebSocket.
type fakeLine struct {
	*switchboard
	give   agent.Send
	taken  chan mailbox.Envelope
	done   chan struct{}
	closed chan struct{}
	close  func()
}

func (l *fakeLine) Handle(ctx context.Context, e mailbox.Envelope) (*mailbox.Envelope, error) {
	if l.wait != nil {
		if err := l.wait(ctx); err != nil {
			return nil, err
		}
	}
	if e.Type == mailbox.TypeRegister {
		return new(mailbox.RegisteredFor(e, "agent_a", noon)), l.refuses
	}
	l.taken <- e
	return l.handle(e)
}

// send sends an envelope that the bot has to acknowledge.
func (l *fakeLine) send(ctx context.Context, e mailbox.Envelope) error {
	e.Metadata.RequiresAck = true
	return l.give(ctx, e, func() {})
}
func (l *fakeLine) Done() <-chan struct{} { return l.done }
func (l *fakeLine) Close()                { l.close() }

// switchboard is a server with a mailbox that bots may attach to, on a network of pipes: the fake clock of a bubble stops
// while a goroutine waits for a socket.
type switchboard struct {
	t        *testing.T
	lines    mailapi.Lines
	attached chan *fakeLine
	handle   func(mailbox.Envelope) (*mailbox.Envelope, error)
	refuses  error                       // registrations
	wait     func(context.Context) error // before an envelope is handled; nil: it is not waited for
	log      bytes.Buffer
	network  chan net.Conn
}

func (s *switchboard) Accept() (net.Conn, error) {
	conn, ok := <-s.network
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (s *switchboard) Close() error   { close(s.network); return nil }
func (s *switchboard) Addr() net.Addr { return &net.IPAddr{} }

func newSwitchboard(t *testing.T) *switchboard {
	t.Helper()
	s := &switchboard{t: t, attached: make(chan *fakeLine, 100), network: make(chan net.Conn),
		handle: func(mailbox.Envelope) (*mailbox.Envelope, error) { return nil, nil }}
	b := newBox()
	b.attach = func(send agent.Send) agent.Line {
		l := &fakeLine{switchboard: s, give: send, taken: make(chan mailbox.Envelope, 100), done: make(chan struct{}), closed: make(chan struct{})}
		l.close = sync.OnceFunc(func() { close(l.closed) })
		s.attached <- l
		return l
	}
	f := withMailbox(b)
	f.Lines, f.Logger = &s.lines, slog.New(slog.NewTextHandler(&s.log, nil))
	// As the sidecar has it: none of these may end a WebSocket.
	server := &http.Server{Handler: f.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute}
	go func() { _ = server.Serve(s) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

// phone is a bot's side of a WebSocket.
type phone struct {
	t    *testing.T
	conn *websocket.Conn
	raw  net.Conn // the bot's end of the pipe
}

func (s *switchboard) dial() (*phone, *http.Response) {
	s.t.Helper()
	p := &phone{t: s.t}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		s.network <- far
		p.raw = near
		return near, nil
	}}
	conn, resp, err := websocket.Dial(s.t.Context(), "ws://localhost/v1/mailbox/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		return nil, resp
	}
	p.conn = conn
	s.t.Cleanup(func() { conn.CloseNow() })
	return p, resp
}

func (p *phone) say(frame string) {
	p.t.Helper()
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *phone) read() (e mailbox.Envelope, err error) {
	_, frame, err := p.conn.Read(p.t.Context())
	if err != nil {
		return e, err
	}
	return mailbox.Decode(frame)
}

func (p *phone) hear() mailbox.Envelope {
	p.t.Helper()
	e, err := p.read()
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// wantClosed expects the connection to end with a code.
func (p *phone) wantClosed(code websocket.StatusCode) {
	p.t.Helper()
	if e, err := p.read(); websocket.CloseStatus(err) != code {
		p.t.Errorf("got %+v, %v; want code %d", e, err, code)
	}
}

const register = `{"id":"msg-1-r","from":"agent_a","to":"agent_a","type":"handshake.register","timestamp":"2026-04-26T10:00:00.000Z",
	"content":{"agent_id":"agent_a","capabilities":["search"]},"metadata":{"requiresAck":false}}`

// connected registers a bot and returns both ends.
func (s *switchboard) connected() (*phone, *fakeLine) {
	s.t.Helper()
	p, _ := s.dial()
	p.say(register)
	if e := p.hear(); e.Type != mailbox.TypeRegistered || e.From != "agent_a" || mailbox.Original(e) != "msg-1-r" || e.ReplyTo != "msg-1-r" {
		s.t.Fatalf("got %+v, want handshake.ack", e)
	}
	return p, <-s.attached
}

func frame(id, rest string) string {
	return `{"id":"` + id + `","from":"agent_a","to":"agent_b","timestamp":"2026-04-26T10:00:00Z"` + rest + `}`
}

func TestAConversationOverTheMailboxSocket(t *testing.T) {
	s := newSwitchboard(t)
	s.handle = func(e mailbox.Envelope) (*mailbox.Envelope, error) {
		if e.Type == mailbox.TypePing {
			return new(mailbox.PongFor(e, "agent_a", noon)), nil
		}
		return nil, nil
	}
	p, line := s.connected()
	for _, id := range []string{"m1", "m2"} { // mail for the bot
		go func() { _ = line.send(t.Context(), letter(id)) }()
		if e := p.hear(); e.ID != id || e.Text() != "a < b" {
			t.Errorf("got %+v", e)
		}
		p.say(`{"type":"ack","reply_to":"` + id + `"}`) // a bot need not say what the sidecar knows
		if e := <-line.taken; e.Type != mailbox.TypeAck || e.To != "agent_a" || mailbox.Original(e) != id {
			t.Errorf("taken: %+v", e)
		}
	}
	p.say(`{"to":"agent_b","type":"task_update","task":{"id":"t1","state":"completed"},"content":"done"}`) // mail of the bot's
	if e := <-line.taken; e.From != "agent_a" || e.ID == "" || e.Timestamp.IsZero() || e.Task.State != mailbox.Completed || e.Text() != "done" {
		t.Errorf("taken: %+v", e)
	}
	p.say(frame("p1", `,"type":"ping","content":{}`)) // answered on the line
	if e := p.hear(); e.Type != mailbox.TypePong || mailbox.Original(e) != "p1" {
		t.Errorf("got %+v", e)
	}
	if err := p.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	<-line.closed
}

// Mail without requiresAck is confirmed by the pong behind it: a bot whose side has read no further may not have it.
func TestMailIsConfirmedByThePongBehindIt(t *testing.T) {
	s := newSwitchboard(t)
	for _, reads := range []bool{false, true} {
		p, line := s.connected()
		written, sent := make(chan struct{}), make(chan error, 1)
		go func() { sent <- line.give(t.Context(), letter("m1"), func() { close(written) }) }()
		p.hear()
		<-written
		if reads {
			go func() { _, _ = p.read() }()
		} else {
			p.conn.CloseNow()
		}
		if err := <-sent; (err == nil) != reads {
			t.Errorf("a bot that reads on: %v; got %v", reads, err)
		}
	}
}

func TestBadFramesAreAnsweredAndTheConnectionStays(t *testing.T) {
	s := newSwitchboard(t)
	refuse := map[string]error{
		"refused": &mailbox.Error{Code: mailbox.RateLimited, Message: "10 in 10 minutes"},
		"full":    mailbox.ErrFull,
		"broken":  apitest.ErrBehind,
	}
	s.handle = func(e mailbox.Envelope) (*mailbox.Envelope, error) { return nil, refuse[e.ID] }
	p, line := s.connected()
	for _, tt := range []struct {
		frame, says string
		typ         mailbox.Type
		about       string
		code        mailbox.Code
	}{
		{`{"id":`, "JSON", "error", "", "INVALID_MESSAGE"},
		{`{"type":"message","content":"hi"}`, "to: required", "error", "", "INVALID_MESSAGE"},
		{frame("u", `,"type":"gossip","content":"hi"`), "type: ", "nack", "u", "INVALID_MESSAGE"},
		{frame("d", `,"type":"task","task":{"id":"t","deadline":"soon"},"content":"do"`), "task.deadline: ", "nack", "d", "INVALID_MESSAGE"},
		{frame("k", `,"type":"ack","content":{},"priority":9`), "priority: ", "error", "k", "INVALID_MESSAGE"}, // an ack is not acknowledged
		{frame("refused", `,"type":"message","content":"hi"`), "10 minutes", "nack", "refused", "RATE_LIMITED"},
		{frame("full", `,"type":"message","content":"hi"`), "inbox", "nack", "full", "AGENT_BUSY"},
		{frame("broken", `,"type":"message","content":"hi"`), "try again", "nack", "broken", "AGENT_BUSY"},
	} {
		p.say(tt.frame)
		e := p.hear()
		code, says := mailbox.Refusal(e)
		if e.Type != tt.typ || mailbox.Original(e) != tt.about || code != tt.code || !strings.Contains(says, tt.says) || e.To != "agent_a" || e.Metadata.RequiresAck {
			t.Errorf("%.80s: got %s of %q, %s %q; want %s of %q, %s %q", tt.frame, e.Type, mailbox.Original(e), code, says, tt.typ, tt.about, tt.code, tt.says)
		}
		if strings.Contains(says, "SECRET") {
			t.Errorf("told %q", says)
		}
	}
	if strings.Count(s.log.String(), "\n") != 1 || !strings.Contains(s.log.String(), "SECRET cause") {
		t.Errorf("logged %q", s.log.String())
	}
	p.say(strings.Repeat(" ", 1<<20+1))
	p.wantClosed(websocket.StatusMessageTooBig)
	<-line.closed
}

func TestWhoHasToRegisterFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		frame   string
		refuses error // of the mailbox
		code    mailbox.Code
		says    string
	}{
		"no JSON":          {`hello`, nil, "INVALID_MESSAGE", "JSON"},
		"something else":   {frame("m", `,"type":"message","content":"hi"`), nil, "INVALID_MESSAGE", "handshake.register"},
		"another agent":    {strings.Replace(register, `"from":"agent_a"`, `"from":"agent_b"`, 1), nil, "UNAUTHORIZED", "from: "},
		"a broken mailbox": {register, apitest.ErrBehind, "AGENT_BUSY", "try again"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwitchboard(t)
			s.refuses = tt.refuses
			p, _ := s.dial()
			p.say(tt.frame)
			e := p.hear()
			if code, says := mailbox.Refusal(e); e.Type != mailbox.TypeError || code != tt.code || !strings.Contains(says, tt.says) {
				t.Errorf("got %s %s %q, want error %s %q", e.Type, code, says, tt.code, tt.says)
			}
			p.wantClosed(websocket.StatusPolicyViolation)
			if tt.refuses == nil && len(s.attached) > 0 {
				t.Error("it is attached")
			} else if tt.refuses != nil {
				line := <-s.attached
				<-line.closed
				if line.send(t.Context(), letter("m1")) == nil {
					t.Error("mail was sent")
				}
			}
		})
	}
}

func TestASecondMailboxSocketTakesOver(t *testing.T) {
	s := newSwitchboard(t)
	first, line := s.connected()
	close(line.done) // as the mailbox does when another one is attached
	first.wantClosed(4001)
	<-line.closed
	second, line := s.connected()
	go func() { _ = line.send(t.Context(), letter("m1")) }()
	if e := second.hear(); e.ID != "m1" {
		t.Errorf("got %+v", e)
	}
}

// Closing the lines waits for those of bots that are there, and no longer than two seconds for a dead one.
func TestClosingTheLines(t *testing.T) {
	for name, want := range map[string]time.Duration{"there": 0, "dead": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSwitchboard(t)
				p, _ := s.connected()
				waits, _ := s.dial() // has not registered
				var bots sync.WaitGroup
				for _, p := range []*phone{p, waits} {
					if name == "there" {
						bots.Go(func() { p.wantClosed(websocket.StatusGoingAway) })
					}
				}
				synctest.Wait()
				began := time.Now()
				s.lines.Close()
				if took := time.Since(began); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
				bots.Wait()
				if _, resp := s.dial(); resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("a new one: got %v", resp)
				}
			})
		})
	}
}

func TestABotThatDoesNotRegisterInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p, _ := newSwitchboard(t).dial()
		if code, _ := mailbox.Refusal(p.hear()); code != mailbox.Unauthorized {
			t.Errorf("got %s", code)
		}
		p.wantClosed(websocket.StatusPolicyViolation)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A bot that answers no ping is gone, unless it writes.
func TestADeadLinkIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		bot  func(context.Context, *phone)
		dead bool
	}{
		"nothing is taken any more":     {func(context.Context, *phone) {}, true},
		"what comes is never looked at": {func(_ context.Context, p *phone) { _, _ = io.Copy(io.Discard, p.raw) }, true},
		"pings are answered":            {func(ctx context.Context, p *phone) { _, _, _ = p.conn.Read(ctx) }, false},
		"it only writes": {func(ctx context.Context, p *phone) {
			go func() { _, _ = io.Copy(io.Discard, p.raw) }()
			for ctx.Err() == nil {
				p.say(frame("m", `,"type":"message","content":"hi"`))
				_ = wait.Sleep(ctx, 10*time.Second)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, line := newSwitchboard(t).connected()
				var bot sync.WaitGroup
				defer bot.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				bot.Go(func() { tt.bot(ctx, p) })
				late := time.After(4 * time.Minute)
				select {
				case <-line.closed:
					if !tt.dead {
						t.Error("it was closed")
					}
				case <-late:
					if tt.dead {
						t.Error("it was not closed")
					}
				}
			})
		})
	}
}

// A mailbox that takes long to answer is given up, and the bot told to try again.
func TestAMailboxThatHangs(t *testing.T) {
	for _, registered := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSwitchboard(t)
			p, _ := s.dial()
			if registered {
				p, _ = s.connected()
			}
			began := time.Now()
			s.wait = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			p.say(register)
			if code, _ := mailbox.Refusal(p.hear()); code != mailbox.AgentBusy || time.Since(began) != 10*time.Second {
				t.Errorf("got %s after %v", code, time.Since(began))
			}
		})
	}
}

// Mail that comes while a bot registers comes behind the answer.
func TestMailComesBehindTheAnswerToTheRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSwitchboard(t)
		s.wait = func(context.Context) error {
			line := <-s.attached
			go func() { _ = line.send(t.Context(), letter("m1")) }()
			synctest.Wait()
			return nil
		}
		p, _ := s.dial()
		p.say(register)
		if e := p.hear(); e.Type != mailbox.TypeRegistered {
			t.Fatalf("got %+v", e)
		}
		if e := p.hear(); e.ID != "m1" {
			t.Errorf("got %+v", e)
		}
	})
}
