package mailapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"feishu-relay/internal/test/apitest"
	"feishu-relay/mailapi"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
)

// fakeLine is the mailbox's side of a WebSocket.
type fakeLine struct {
	give   agent.Send
	handle func(mailbox.Envelope) (*mailbox.Envelope, error)
	taken  chan mailbox.Envelope
	done   chan struct{}
	closed chan struct{}
	close  func()
	wait   func(context.Context) error // before an envelope is handled; nil: it is not waited for

	register func(mailbox.Envelope) (*mailbox.Envelope, error) // nil: it is answered
}

func (l *fakeLine) Handle(ctx context.Context, e mailbox.Envelope) (*mailbox.Envelope, error) {
	if l.wait != nil {
		if err := l.wait(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case e.Type != mailbox.TypeRegister:
		l.taken <- e
		return l.handle(e)
	case l.register != nil:
		return l.register(e)
	}
	return new(mailbox.RegisteredFor(e, "agent_a", noon)), nil
}

// send sends an envelope that the bot has to acknowledge.
func (l *fakeLine) send(ctx context.Context, e mailbox.Envelope) error {
	e.Metadata.RequiresAck = true
	return l.give(ctx, e, func() {})
}
func (l *fakeLine) Done() <-chan struct{} { return l.done }
func (l *fakeLine) Close()                { l.close() }

// switchboard is a server with a mailbox that bots may attach to.
type switchboard struct {
	t        *testing.T
	url      string
	lines    *mailapi.Lines
	attached chan *fakeLine
	handle   func(mailbox.Envelope) (*mailbox.Envelope, error)
	register func(mailbox.Envelope) (*mailbox.Envelope, error)
	log      bytes.Buffer
}

func newSwitchboard(t *testing.T) *switchboard {
	t.Helper()
	s := &switchboard{t: t, lines: &mailapi.Lines{}, attached: make(chan *fakeLine, 100),
		handle: func(mailbox.Envelope) (*mailbox.Envelope, error) { return nil, nil }}
	b := newBox()
	b.attach = func(send agent.Send) agent.Line {
		l := &fakeLine{give: send, handle: s.handle, register: s.register, taken: make(chan mailbox.Envelope, 100), done: make(chan struct{}), closed: make(chan struct{})}
		l.close = sync.OnceFunc(func() { close(l.closed) })
		s.attached <- l
		return l
	}
	f := withMailbox(b)
	f.Lines = s.lines
	f.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	server := httptest.NewServer(f.handler())
	s.url = server.URL + "/v1/mailbox/ws"
	t.Cleanup(func() {
		s.lines.Close()
		server.Close()
	})
	return s
}

// phone is a bot's side of a WebSocket.
type phone struct {
	t    *testing.T
	conn *websocket.Conn
}

func (s *switchboard) dial() *phone {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), apitest.Patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.CloseNow() })
	return &phone{s.t, conn}
}

func (p *phone) say(frame string) {
	p.t.Helper()
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *phone) read() (e mailbox.Envelope, err error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), apitest.Patience)
	defer cancel()
	kind, frame, err := p.conn.Read(ctx)
	if err != nil {
		return e, err
	}
	if kind != websocket.MessageText {
		p.t.Errorf("a frame of kind %v", kind)
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
	p := s.dial()
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
		if err := line.send(t.Context(), letter(id)); err != nil {
			t.Fatal(err)
		}
		if e := p.hear(); e.ID != id || e.Text() != "a < b" {
			t.Errorf("got %+v", e)
		}
		p.say(frame("a"+id, `,"type":"ack","content":{"originalMessageId":"`+id+`","success":true},"metadata":{"correlationId":"`+id+`"}`))
		if e := <-line.taken; e.Type != mailbox.TypeAck || mailbox.Original(e) != id {
			t.Errorf("taken: %+v", e)
		}
	}
	p.say(frame("t1", `,"type":"message","content":"hi"`)) // mail of the bot's
	if e := <-line.taken; e.ID != "t1" || e.Text() != "hi" || e.To != "agent_b" {
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
		"forged":  mailbox.Invalid("from", "is not this agent"),
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
		{``, "JSON", "error", "", "INVALID_MESSAGE"},
		{`[]`, "object", "error", "", "INVALID_MESSAGE"},
		{`{"type":"message","content":"hi"}`, "to: required", "error", "", "INVALID_MESSAGE"},
		{frame("u", `,"type":"gossip","content":"hi"`), "type: ", "nack", "u", "INVALID_MESSAGE"},
		{frame("e", `,"type":"message","content":" "`), "content: ", "nack", "e", "INVALID_MESSAGE"},
		{frame("l", `,"type":"message","content":"`+strings.Repeat("x", 65_537)+`"`), "65536", "nack", "l", "INVALID_MESSAGE"},
		{frame("d", `,"type":"task","task":{"id":"t","deadline":"soon"},"content":"do"`), "task.deadline: ", "nack", "d", "INVALID_MESSAGE"},
		{frame("k", `,"type":"ack","content":{},"priority":9`), "priority: ", "error", "k", "INVALID_MESSAGE"}, // an ack is not acknowledged
		{frame("refused", `,"type":"message","content":"hi"`), "10 minutes", "nack", "refused", "RATE_LIMITED"},
		{frame("forged", `,"type":"message","content":"hi"`), "from: ", "nack", "forged", "INVALID_MESSAGE"},
		{frame("full", `,"type":"message","content":"hi"`), "full", "nack", "full", "AGENT_BUSY"},
		{frame("broken", `,"type":"message","content":"hi"`), "later", "nack", "broken", "AGENT_BUSY"},
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
	if err := line.send(t.Context(), letter("m1")); err != nil {
		t.Fatal(err)
	}
	if e := p.hear(); e.ID != "m1" {
		t.Errorf("got %+v", e)
	}
}

func TestAFrameOfMoreThanAMiBEndsTheConnection(t *testing.T) {
	s := newSwitchboard(t)
	p, line := s.connected()
	p.say(strings.Repeat(" ", 1<<20+1))
	p.wantClosed(websocket.StatusMessageTooBig)
	<-line.closed
}

func TestWhoHasToRegisterFirst(t *testing.T) {
	for name, tt := range map[string]struct {
		frame string
		code  mailbox.Code
		says  string
	}{
		"no JSON":                 {`hello`, "INVALID_MESSAGE", "JSON"},
		"no envelope":             {`{}`, "INVALID_MESSAGE", "to"},
		"something else":          {frame("m", `,"type":"message","content":"hi"`), "INVALID_MESSAGE", "handshake.register"},
		"another agent":           {strings.Replace(register, `"from":"agent_a"`, `"from":"agent_b"`, 1), "UNAUTHORIZED", "from: "},
		"another agent's":         {strings.Replace(register, `"agent_id":"agent_a"`, `"agent_id":"agent_b"`, 1), "UNAUTHORIZED", "agent_id: "},
		"in camelCase, too":       {strings.Replace(register, `"agent_id":"agent_a"`, `"agentId":"agent_b"`, 1), "UNAUTHORIZED", "agent_id: "},
		"in a card":               {strings.Replace(register, `"agent_id":"agent_a"`, `"card":{"agent_id":"agent_b"}`, 1), "UNAUTHORIZED", "agent_id: "},
		"beside a name":           {strings.Replace(register, `"agent_id":"agent_a"`, `"agent":"agent_a","agent_id":"agent_b"`, 1), "UNAUTHORIZED", "agent_id: "},
		"in an agent":             {strings.Replace(register, `"agent_id":"agent_a"`, `"agent":{"agentId":"agent_b"}`, 1), "UNAUTHORIZED", "agent_id: "},
		"a card without an agent": {strings.Replace(register, `"agent_id":"agent_a"`, `"agent_id":""`, 1), "UNAUTHORIZED", "agent_id: "},
		"a path for an agent":     {strings.Replace(register, `"from":"agent_a"`, `"from":"../x"`, 1), "INVALID_MESSAGE", "from: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwitchboard(t)
			p := s.dial()
			p.say(tt.frame)
			e := p.hear()
			if code, says := mailbox.Refusal(e); e.Type != mailbox.TypeError || code != tt.code || !strings.Contains(says, tt.says) {
				t.Errorf("got %s %s %q, want error %s %q", e.Type, code, says, tt.code, tt.says)
			}
			p.wantClosed(websocket.StatusPolicyViolation)
			if len(s.attached) > 0 {
				t.Error("it is attached")
			}
		})
	}
}

// The mailbox has the last word on a bot's card.
func TestARegistrationThatTheMailboxRefuses(t *testing.T) {
	for err, want := range map[error]mailbox.Code{mailbox.Invalid("content.status", "is none"): mailbox.InvalidMessage, apitest.ErrBehind: mailbox.AgentBusy} {
		s := newSwitchboard(t)
		s.register = func(mailbox.Envelope) (*mailbox.Envelope, error) { return nil, err }
		p := s.dial()
		p.say(register)
		if code, says := mailbox.Refusal(p.hear()); code != want || strings.Contains(says, "SECRET") {
			t.Errorf("got %s %q, want %s", code, says, want)
		}
		p.wantClosed(websocket.StatusPolicyViolation)
		line := <-s.attached
		<-line.closed
		if err := line.send(t.Context(), letter("m1")); err == nil {
			t.Error("mail was sent")
		}
	}
}

func TestASecondMailboxSocketTakesOver(t *testing.T) {
	s := newSwitchboard(t)
	first, line := s.connected()
	close(line.done) // as the mailbox does when another one is attached
	first.wantClosed(4001)
	<-line.closed
	second, line := s.connected()
	if err := line.send(t.Context(), letter("m1")); err != nil {
		t.Fatal(err)
	}
	if e := second.hear(); e.ID != "m1" {
		t.Errorf("got %+v", e)
	}
}

func TestClosingTheLines(t *testing.T) {
	s := newSwitchboard(t)
	p, line := s.connected()
	waits := s.dial() // has not registered
	apitest.Until(t, "the server has it", func() bool { return s.lines.Open() == 2 })
	heard := make(chan error, 2)
	for _, p := range []*phone{p, waits} {
		go func() {
			_, err := p.read()
			heard <- err
		}()
	}
	s.lines.Close()
	s.lines.Close()
	select {
	case <-line.closed:
	default:
		t.Error("Close did not wait for the line")
	}
	for range 2 {
		if err := <-heard; websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("got %v, want going away", err)
		}
	}
	_, resp, err := websocket.Dial(t.Context(), s.url, nil)
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new one: got %v", err)
	}
}

func TestMailboxSocketsAreBounded(t *testing.T) {
	s := newSwitchboard(t)
	var all []*phone
	for range 16 {
		all = append(all, s.dial())
	}
	_, resp, err := websocket.Dial(t.Context(), s.url, nil)
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("one more: got %v", err)
	}
	var body struct{ Error struct{ Code string } }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.Error.Code != "too_many_lines" {
		t.Errorf("got %+v, %v", body, err)
	}
	all[0].conn.CloseNow()
	apitest.Until(t, "there is room", func() bool {
		conn, _, err := websocket.Dial(t.Context(), s.url, nil)
		if err == nil {
			conn.CloseNow()
		}
		return err == nil
	})
}

// A bot that hangs up while it is being answered leaves nothing behind.
func TestABotThatHangsUp(t *testing.T) {
	s := newSwitchboard(t)
	p, line := s.connected()
	p.say(frame("t1", `,"type":"gossip"`))
	p.conn.CloseNow()
	<-line.closed
	if err := line.send(t.Context(), letter("m1")); err == nil {
		t.Error("it was sent without a connection")
	}
	apitest.Until(t, "it has left", func() bool { return s.lines.Open() == 0 })
}
