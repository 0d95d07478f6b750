package mailapi

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/internal/web"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/agent"
	"feishu-relay/relay"
)

const (
	registerTime = 10 * time.Second // for the first frame
	handleTime   = 10 * time.Second // for one envelope from the bot
	pongTime     = 20 * time.Second // for the answer to a ping, which is sent after web.KeepAlive
)

// Causes of the end of a connection, besides those of package web.
var (
	errRegister = errors.New("register first")
	errDead     = errors.New("the bot answers no ping")
)

// mailboxSocket is the connection of a bot at /v1/mailbox/ws. One goroutine reads and handles its frames; when its turn
// ends it is closed, and the reading with it.
type mailboxSocket struct {
	api   *API
	self  mailbox.AgentID
	conn  *websocket.Conn
	turn  context.Context
	end   context.CancelCauseFunc // of turn
	ready chan struct{}           // closed when the bot has the answer to its registration
	reads atomic.Int64            // frames read
}

// line serves GET /v1/mailbox/ws (docs/protocol.md 6.9): one envelope a text frame
// in either direction, after the bot has registered.
func (a *API) line(w http.ResponseWriter, r *http.Request) {
	if !web.IsUpgrade(r) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		web.WriteError(w, relay.Errorf(web.CodeUpgradeRequired, "open this route as a WebSocket"))
		return
	}
	turn, end, refusal := a.Lines.join()
	if refusal != nil {
		web.WriteError(w, refusal)
		return
	}
	defer a.Lines.left.Done()
	defer end(context.Canceled)
	conn, err := web.Accept(w, r)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(mailbox.MaxEnvelope) // a larger frame ends the connection
	s := &mailboxSocket{api: a, self: a.Mailbox.Self(), conn: conn, turn: turn, end: end, ready: make(chan struct{})}
	defer context.AfterFunc(turn, s.close)()
	s.serve()
}

// close closes the connection with the code of what ended its turn.
func (s *mailboxSocket) close() {
	cause := context.Cause(s.turn)
	code := map[error]websocket.StatusCode{web.ErrStopping: websocket.StatusGoingAway, web.ErrReplaced: web.StatusReplaced,
		errRegister: websocket.StatusPolicyViolation}[cause]
	if code != 0 {
		_ = s.conn.Close(code, cause.Error())
	}
	_ = s.conn.CloseNow()
}

// serve reads until the connection ends. A read with a context would end the connection without a close code.
func (s *mailboxSocket) serve() {
	late := time.AfterFunc(registerTime, func() {
		s.refuse(mailbox.Envelope{}, mailbox.Refused(mailbox.Unauthorized, "", "no frame came within %s", registerTime))
	})
	defer late.Stop()
	var watch sync.WaitGroup
	defer watch.Wait()
	defer s.end(context.Canceled)
	var line agent.Line
	for {
		_, frame, err := s.conn.Read(context.Background())
		if err != nil {
			return
		}
		s.reads.Add(1)
		e, err := mailbox.DecodeLine(frame, s.self, time.Now())
		switch {
		case s.turn.Err() != nil: // read to the peer's close frame
		case line != nil:
			s.take(line, e, err)
		case !late.Stop():
		default:
			if err == nil {
				err = s.checkRegister(e)
			}
			if err != nil {
				s.refuse(e, err)
				continue
			}
			line = s.api.Mailbox.Attach(s.give)
			defer line.Close()
			if err := s.register(line, e); err != nil {
				s.refuse(e, err)
				continue
			}
			watch.Go(func() { s.watch(line) })
		}
	}
}

// give writes mail to the bot, as an [agent.Send].
func (s *mailboxSocket) give(ctx context.Context, e mailbox.Envelope, written func()) error {
	select { // mail follows the answer to the registration
	case <-s.ready:
	case <-s.turn.Done():
		return context.Cause(s.turn)
	}
	if err := s.send(ctx, e); err != nil {
		return err
	}
	if written(); e.Metadata.RequiresAck {
		return nil
	}
	return s.conn.Ping(s.turn) // the pong follows what the bot's side has read
}

// checkRegister reports why e does not register this sidecar's agent.
func (s *mailboxSocket) checkRegister(e mailbox.Envelope) error {
	if e.Type != mailbox.TypeRegister {
		return mailbox.Invalid("type", "the first frame has to be %s", mailbox.TypeRegister)
	}
	if e.From != s.self {
		return mailbox.Refused(mailbox.Unauthorized, "from", "this is the sidecar of %s", s.self)
	}
	return nil
}

// register passes the registration to the mailbox, and answers the bot.
func (s *mailboxSocket) register(line agent.Line, e mailbox.Envelope) error {
	ctx, cancel := context.WithTimeout(s.turn, handleTime)
	defer cancel()
	answer, err := line.Handle(ctx, e)
	if err == nil && answer != nil {
		err = s.send(s.turn, *answer)
	}
	if err == nil {
		close(s.ready)
	}
	return err
}

// refuse answers a bot that cannot register, and ends its turn.
func (s *mailboxSocket) refuse(e mailbox.Envelope, err error) {
	answer := s.nack(e, err)
	answer.Type = mailbox.TypeError
	_ = s.send(s.turn, answer)
	s.end(errRegister)
}

// take passes an envelope from the bot to the mailbox, and sends the answer; err is why it cannot be read.
func (s *mailboxSocket) take(line agent.Line, e mailbox.Envelope, err error) {
	ctx, cancel := context.WithTimeout(s.turn, handleTime)
	defer cancel()
	var answer *mailbox.Envelope
	if err == nil {
		answer, err = line.Handle(ctx, e)
	}
	if err != nil {
		answer = new(s.nack(e, err))
		if e.ID == "" || e.Type == mailbox.TypeAck || e.Type == mailbox.TypeNack {
			answer.Type = mailbox.TypeError
		}
	}
	if answer != nil {
		_ = s.send(s.turn, *answer) // if it fails the reader notices the end
	}
}

// nack answers a faulty e. What is no refusal may be tried again, so its code is AGENT_BUSY.
func (s *mailboxSocket) nack(e mailbox.Envelope, err error) mailbox.Envelope {
	refusal, code := s.api.web.Refusal(s.turn, "GET /v1/mailbox/ws", err), mailbox.AgentBusy
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		code = e.Code
	}
	answer := mailbox.NackFor(e, s.self, time.Now(), code, refusal.Message)
	answer.To = s.self // regardless of the sender in e
	return answer
}

// send writes an envelope to the bot. It fails if that takes too long, which
// also ends the connection.
func (s *mailboxSocket) send(ctx context.Context, e mailbox.Envelope) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	frame, err := mailbox.Encode(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), web.WriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, frame)
}

// watch ends the turn when another line takes over, and that of a bot that does not answer a ping, unless other frames
// come, since the pong may follow them.
func (s *mailboxSocket) watch(line agent.Line) {
	tick := time.NewTicker(web.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-s.turn.Done():
			return
		case <-line.Done():
			s.end(web.ErrReplaced)
			return
		case <-tick.C:
		}
		seen := s.reads.Load()
		ctx, cancel := context.WithTimeout(s.turn, pongTime)
		err := s.conn.Ping(ctx)
		cancel()
		if err != nil && s.reads.Load() == seen {
			s.end(errDead)
			return
		}
	}
}
