package mailapi

import (
	"context"
	"encoding/json"
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
	handleTime   = 10 * time.Second // for one envelope of the bot's
	pongTime     = 20 * time.Second // for the answer to a ping; one is sent after web.KeepAlive
)

var errDead = errors.New("the bot answers no ping")

// mailboxSocket is the connection of a bot at /v1/mailbox/ws.
type mailboxSocket struct {
	api   *API
	conn  *websocket.Conn
	alive context.Context // ends with nothing: a cancelled read or write would cut the connection without a close code
	reads atomic.Int64    // frames read
}

// line serves GET /v1/mailbox/ws (docs/protocol.md 6.9): one envelope a text frame,
// either way, after the bot has registered.
func (a *API) line(w http.ResponseWriter, r *http.Request) {
	if !web.IsUpgrade(r) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		web.WriteError(w, relay.Errorf(web.CodeUpgradeRequired, "open this route as a WebSocket"))
		return
	}
	alive := context.WithoutCancel(r.Context())
	turn, leave, err := a.Lines.join(alive)
	if err != nil {
		web.WriteError(w, err)
		return
	}
	defer leave()
	conn, err := web.Accept(w, r)
	if err != nil {
		return
	}
	conn.SetReadLimit(mailbox.MaxEnvelope) // a larger frame ends the connection
	s := &mailboxSocket{api: a, conn: conn, alive: alive}
	frames := make(chan []byte)
	ended := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { s.read(frames, ended) })
	defer reader.Wait()
	defer conn.CloseNow()
	defer close(ended)
	code, reason := s.serve(turn, frames)
	if code != 0 {
		_ = conn.Close(code, reason)
	}
}

// read hands on what the bot sends until the connection ends.
func (s *mailboxSocket) read(frames chan<- []byte, ended <-chan struct{}) {
	defer close(frames)
	for {
		_, data, err := s.conn.Read(s.alive)
		if err != nil {
			return
		}
		s.reads.Add(1)
		select {
		case frames <- data:
		case <-ended:
		}
	}
}

// serve is the connection's life. It returns the code to close it with, 0 when
// the bot is gone.
func (s *mailboxSocket) serve(turn context.Context, frames <-chan []byte) (websocket.StatusCode, string) {
	first, err := s.first(turn, frames)
	if err == nil {
		err = s.checkRegister(first)
	}
	if err != nil {
		return s.refuse(turn, first, err)
	}
	registered := make(chan struct{})
	line := s.api.Mailbox.Attach(func(ctx context.Context, e mailbox.Envelope) error {
		select { // mail comes behind the answer to the registration
		case <-registered:
			return s.send(ctx, e)
		case <-turn.Done():
			return context.Cause(turn)
		}
	})
	defer line.Close()
	if err := s.register(turn, line, first); err != nil {
		return s.refuse(turn, first, err)
	}
	close(registered)
	return s.serveRegistered(turn, line, frames)
}

// serveRegistered serves a connection that has registered.
func (s *mailboxSocket) serveRegistered(turn context.Context, line agent.Line, frames <-chan []byte) (
	code websocket.StatusCode, reason string) {
	turn, dead := context.WithCancelCause(turn)
	var pings sync.WaitGroup
	pings.Go(func() { s.ping(turn, dead) })
	defer pings.Wait()
	defer dead(context.Canceled)
	for {
		select {
		case <-turn.Done():
			return closing(context.Cause(turn))
		case <-line.Done():
			return web.StatusReplaced, web.ErrReplaced.Error()
		case frame, ok := <-frames:
			if !ok {
				return 0, ""
			}
			s.take(turn, line, frame)
		}
	}
}

// closing is how a connection is closed that ended for a cause.
func closing(cause error) (websocket.StatusCode, string) {
	if errors.Is(cause, web.ErrStopping) {
		return websocket.StatusGoingAway, web.ErrStopping.Error()
	}
	return 0, ""
}

// errGone says that the bot has hung up.
var errGone = errors.New("the bot is gone")

// first waits for the bot to say who it is.
func (s *mailboxSocket) first(turn context.Context, frames <-chan []byte) (mailbox.Envelope, error) {
	late := time.NewTimer(registerTime)
	defer late.Stop()
	select {
	case <-turn.Done():
		return mailbox.Envelope{}, context.Cause(turn)
	case <-late.C:
		return mailbox.Envelope{}, &mailbox.Error{Code: mailbox.Unauthorized,
			Message: "register first: nothing came within " + registerTime.String()}
	case frame, ok := <-frames:
		if !ok {
			return mailbox.Envelope{}, errGone
		}
		return s.decode(frame)
	}
}

// decode reads what the bot says; what it may leave out is filled in.
func (s *mailboxSocket) decode(frame []byte) (mailbox.Envelope, error) {
	return mailbox.DecodeLine(frame, s.api.Mailbox.Self(), time.Now())
}

// register lets the mailbox know the bot's card, and answers it.
func (s *mailboxSocket) register(turn context.Context, line agent.Line, first mailbox.Envelope) error {
	ctx, cancel := context.WithTimeout(turn, handleTime)
	defer cancel()
	answer, err := line.Handle(ctx, first)
	if err != nil || answer == nil {
		return err
	}
	if s.send(turn, *answer) != nil {
		return errGone
	}
	return nil
}

// refuse tells a bot why it may not stay, and how to close its connection.
func (s *mailboxSocket) refuse(turn context.Context, first mailbox.Envelope, err error) (websocket.StatusCode, string) {
	if turn.Err() != nil {
		return closing(context.Cause(turn))
	}
	if errors.Is(err, errGone) {
		return 0, ""
	}
	self := s.api.Mailbox.Self()
	code, message := s.refusal(err)
	answer := mailbox.NackFor(first, self, time.Now(), code, message)
	answer.Type, answer.To = mailbox.TypeError, self
	_ = s.send(turn, answer)
	return websocket.StatusPolicyViolation, "register first, as " + string(self)
}

// checkRegister reports why e does not register this sidecar's agent.
func (s *mailboxSocket) checkRegister(e mailbox.Envelope) error {
	if e.Type != mailbox.TypeRegister {
		return mailbox.Invalid("type", "the first frame has to be %s", mailbox.TypeRegister)
	}
	self := s.api.Mailbox.Self()
	stranger := func(field string) error {
		return &mailbox.Error{Code: mailbox.Unauthorized, Field: field, Message: "this is the sidecar of " + string(self)}
	}
	if e.From != self {
		return stranger("from")
	}
	for _, p := range e.Content.Parts {
		var own card
		_ = json.Unmarshal(p.Data, &own) // what is of another form names nobody
		if !own.names(self) {
			return stranger("content.agent_id")
		}
	}
	return nil
}

// card is what a bot says of itself, by the content or in it.
type card struct {
	AgentID *mailbox.AgentID `json:"agent_id"`
	Camel   *mailbox.AgentID `json:"agentId"`
	Agent   *card            `json:"agent"`
	Card    *card            `json:"card"`
}

// names reports whether c names no other agent than self.
func (c *card) names(self mailbox.AgentID) bool {
	return c == nil || (c.AgentID == nil || *c.AgentID == self) && (c.Camel == nil || *c.Camel == self) &&
		c.Agent.names(self) && c.Card.names(self)
}

// take hands an envelope of the bot's to the mailbox, and sends what answers it.
func (s *mailboxSocket) take(turn context.Context, line agent.Line, frame []byte) {
	ctx, cancel := context.WithTimeout(turn, handleTime)
	defer cancel()
	e, err := s.decode(frame)
	var answer *mailbox.Envelope
	if err == nil {
		answer, err = line.Handle(ctx, e)
	}
	if err != nil && turn.Err() == nil {
		code, message := s.refusal(err)
		answer = new(problem(e, s.api.Mailbox.Self(), code, message))
	}
	if answer != nil {
		_ = s.send(turn, *answer) // when it fails the reader sees the end
	}
}

// send writes an envelope to the bot. It fails when that takes too long; the
// connection is over then.
func (s *mailboxSocket) send(ctx context.Context, e mailbox.Envelope) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	frame, err := mailbox.Encode(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.alive, web.WriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, frame)
}

// ping ends the turn of a bot that answers no ping, unless frames come: the pong
// may stand behind them.
func (s *mailboxSocket) ping(turn context.Context, dead context.CancelCauseFunc) {
	tick := time.NewTicker(web.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-turn.Done():
			return
		case <-tick.C:
		}
		seen := s.reads.Load()
		ctx, cancel := context.WithTimeout(turn, pongTime)
		err := s.conn.Ping(ctx)
		cancel()
		if err != nil && s.reads.Load() == seen {
			dead(errDead)
			return
		}
	}
}

// refusal is an error in the words of the protocol. What is no refusal may be
// tried again, so it says AGENT_BUSY; the log says more.
func (s *mailboxSocket) refusal(err error) (mailbox.Code, string) {
	if e, ok := errors.AsType[*mailbox.Error](err); ok {
		if e.Field != "" {
			return e.Code, e.Field + ": " + e.Message
		}
		return e.Code, e.Message
	}
	if errors.Is(err, mailbox.ErrFull) {
		return mailbox.AgentBusy, mailbox.ErrFull.Error()
	}
	s.api.Logger.Error("mailbox request failed", "route", "GET /v1/mailbox/ws", "err", err)
	return mailbox.AgentBusy, "the mailbox cannot be reached now; send it again later"
}

// problem tells what is wrong with e: a nack where e can be told from others,
// else an error.
func problem(e mailbox.Envelope, self mailbox.AgentID, code mailbox.Code, message string) mailbox.Envelope {
	p := mailbox.NackFor(e, self, time.Now(), code, message)
	p.To = self // whoever the bot said it was
	if e.ID == "" || e.Type == mailbox.TypeAck || e.Type == mailbox.TypeNack {
		p.Type = mailbox.TypeError
	}
	return p
}
