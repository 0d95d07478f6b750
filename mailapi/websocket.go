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
	handleTime   = 10 * time.Second // for one envelope from the bot
	pongTime     = 20 * time.Second // for the answer to a ping, which is sent after web.KeepAlive
)

// mailboxSocket is the connection of a bot at /v1/mailbox/ws.
type mailboxSocket struct {
	api   *API
	conn  *websocket.Conn
	alive context.Context // never ends: a cancelled read or write would cut the connection without a close code
	reads atomic.Int64    // frames read
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

// read passes on the bot's frames until the connection ends.
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

// serve serves the connection until its end. It returns the code to close it
// with, 0 if the bot is gone.
func (s *mailboxSocket) serve(turn context.Context, frames <-chan []byte) (websocket.StatusCode, string) {
	first, err := s.first(turn, frames)
	if err == nil {
		err = s.checkRegister(first)
	}
	if err != nil {
		return s.refuse(turn, first, err)
	}
	registered := make(chan struct{})
	line := s.api.Mailbox.Attach(func(ctx context.Context, e mailbox.Envelope, written func()) error {
		select { // mail follows the answer to the registration
		case <-registered:
		case <-turn.Done():
			return context.Cause(turn)
		}
		err := s.send(ctx, e)
		if err != nil {
			return err
		}
		if written(); !e.Metadata.RequiresAck {
			err = s.conn.Ping(turn) // the pong follows what the bot's side has read
		}
		return err
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

// closing returns the code and reason to close a connection with for cause.
func closing(cause error) (websocket.StatusCode, string) {
	if errors.Is(cause, web.ErrStopping) {
		return websocket.StatusGoingAway, web.ErrStopping.Error()
	}
	return 0, ""
}

// errGone means that the bot has closed the connection.
var errGone = errors.New("the bot is gone")

// first waits for the bot's first envelope, which registers it.
func (s *mailboxSocket) first(turn context.Context, frames <-chan []byte) (mailbox.Envelope, error) {
	late := time.NewTimer(registerTime)
	defer late.Stop()
	select {
	case <-turn.Done():
		return mailbox.Envelope{}, context.Cause(turn)
	case <-late.C:
		return mailbox.Envelope{}, &mailbox.Error{Code: mailbox.Unauthorized,
			Message: "register first: no frame came within " + registerTime.String()}
	case frame, ok := <-frames:
		if !ok {
			return mailbox.Envelope{}, errGone
		}
		return mailbox.DecodeLine(frame, s.api.Mailbox.Self(), time.Now())
	}
}

// register passes the bot's card to the mailbox, and answers the bot.
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

// refuse answers a bot that cannot register, and returns how to close its
// connection.
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
		_ = json.Unmarshal(p.Data, &own) // other data names no agent
		if !own.names(self) {
			return stranger("content.agent_id")
		}
	}
	return nil
}

// card has the names in a bot's card, which is the content or a part of it.
type card struct {
	AgentID *mailbox.AgentID `json:"agent_id"`
	Camel   *mailbox.AgentID `json:"agentId"`
	Agent   *card            `json:"agent"`
	Card    *card            `json:"card"`
}

// names reports whether c names no agent but self.
func (c *card) names(self mailbox.AgentID) bool {
	return c == nil || (c.AgentID == nil || *c.AgentID == self) && (c.Camel == nil || *c.Camel == self) &&
		c.Agent.names(self) && c.Card.names(self)
}

// take passes an envelope from the bot to the mailbox, and sends the answer.
func (s *mailboxSocket) take(turn context.Context, line agent.Line, frame []byte) {
	ctx, cancel := context.WithTimeout(turn, handleTime)
	defer cancel()
	e, err := mailbox.DecodeLine(frame, s.api.Mailbox.Self(), time.Now())
	var answer *mailbox.Envelope
	if err == nil {
		answer, err = line.Handle(ctx, e)
	}
	if err != nil && turn.Err() == nil {
		code, message := s.refusal(err)
		answer = new(problem(e, s.api.Mailbox.Self(), code, message))
	}
	if answer != nil {
		_ = s.send(turn, *answer) // if it fails the reader notices the end
	}
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
	ctx, cancel := context.WithTimeout(s.alive, web.WriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, frame)
}

// ping ends the turn of a bot that does not answer a ping, unless other frames
// come, since the pong may follow them.
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
			dead(errGone)
			return
		}
	}
}

// refusal returns the protocol's code and text for err. An error that is not a
// refusal may be retried, so its code is AGENT_BUSY; the log has the details.
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

// problem returns the answer to a faulty e: a nack if e has an id, else an
// error.
func problem(e mailbox.Envelope, self mailbox.AgentID, code mailbox.Code, message string) mailbox.Envelope {
	p := mailbox.NackFor(e, self, time.Now(), code, message)
	p.To = self // regardless of the sender in e
	if e.ID == "" || e.Type == mailbox.TypeAck || e.Type == mailbox.TypeNack {
		p.Type = mailbox.TypeError
	}
	return p
}
