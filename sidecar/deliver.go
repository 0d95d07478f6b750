package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/httpapi"
	"feishu-relay/internal/delivery"
	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// deliveryGrace is how long an answer is waited for when the sidecar stops;
// without it the bot would be given the message again.
const deliveryGrace = finishDelivery * 4 / 5

func (s *Sidecar) openDeliveries() error {
	root, err := s.folder("deliveries", safefile.Name(string(s.cfg.Agent)))
	if err != nil {
		return err
	}
	return s.newDeliveries(root, s.doors.channels()...)
}

func (s *Sidecar) newDeliveries(root *os.Root, channels ...delivery.Channel) (err error) {
	s.deliveries, err = delivery.New(delivery.Options{Root: root, MaxAge: s.cfg.MaxAge, Timeout: s.cfg.DeliveryTimeout,
		Grace: deliveryGrace, Logger: s.log, Resumed: s.resumed, Late: s.answeredLate, Failed: s.deliveryFailed},
		channels...)
	return err
}

// inject begins the delivery of the message to the bot and returns when the next
// message of the chat may follow. The delivery goes on and ends the message.
func (s *Sidecar) inject(ctx context.Context, p *passage) (relay.Reason, error) {
	if s.native != nil && s.native.passed.Contains(p.key) {
		return relay.Duplicate, nil // the bot has it from Feishu
	}
	in, given := s.inbound(p)
	s.trace("inject")
	m := delivery.Message{Inbound: in, Given: given, Ref: delivery.Ref{ID: p.msg.RelayMsgID, Key: p.key,
		Channel: p.msg.Channel, Chat: p.msg.ChatID, Sender: p.msg.SenderAgentName, Sent: p.final}}
	if p.msg.Role == relay.RoleUser {
		m.Sent = p.arrived // Feishu delivers again for hours, and a person's message is never stopped for its age
	}
	m.Waited = p.behind
	next := make(chan struct{})
	hooks := s.hooks(p, &m)
	hooks.Next = sync.OnceFunc(func() { close(next) })
	hooks.Kept = func() { s.kept(p) }
	p.handed = true
	s.delivering.Go(func() {
		defer hooks.Next()
		s.guard(p, func() {
			if _, err := s.deliveries.Deliver(ctx, m, hooks); err != nil { // we are stopping; a restart goes on
				s.endClaim(p, false)
			}
		})
	})
	<-next
	return relay.Pass, nil
}

// kept lets go of a message that its delivery has put on disk.
func (s *Sidecar) kept(p *passage) {
	held := p.claim != claimNone
	s.endClaim(p, true)
	if err := s.dedup.Flush(); err != nil {
		s.problems.set("dedup", err)
		return // the queue keeps it, too
	}
	p.kept = true
	p.Settle()
	if held {
		s.inFlight.end(p.key)
	}
}

// resumed goes on with a message that an earlier process was delivering.
func (s *Sidecar) resumed(m *delivery.Message) delivery.Hooks {
	p := &passage{Delivery: relay.Delivery{Settle: func() {}}, arrived: m.Sent, key: m.Key, sent: m.Sent, final: m.Sent,
		handed: true, kept: true}
	if m.Source != nil {
		p.msg = *m.Source
	}
	if data, err := json.Marshal(m.Metadata["decision"]); err == nil {
		_ = json.Unmarshal(data, &p.decision) // without it only the depth in an event is missing
	}
	if s.dedup.Claim(p.key) == dedup.New { // it died before it was noted
		p.claim = claimHeld
		s.endClaim(p, true)
	}
	return s.hooks(p, m)
}

func (s *Sidecar) hooks(p *passage, m *delivery.Message) delivery.Hooks {
	given := func() { s.given.add(m.Given...) } // what it goes on to hear does not show it again
	return delivery.Hooks{Written: given, Ended: func(r delivery.Result) {
		if r.State == delivery.Delivered {
			given()
			s.received(p, m, r)
			return
		}
		if s.doors.stream != nil {
			s.doors.stream.Withdraw(m.ID)
		}
		p.cause = r.Err
		if r.State == delivery.Expired {
			s.end(p, stageInject, relay.Expired)
			return
		}
		s.problems.set(stageInject, r.Err)
		s.end(p, stageInject, relay.Undeliverable)
	}}
}

// stageInject is the stage that delivers.
const stageInject = "inject"

// received notes that the bot has the message.
func (s *Sidecar) received(p *passage, m *delivery.Message, r delivery.Result) {
	s.trace("delivered")
	s.endClaim(p, true)
	if err := s.dedup.Flush(); err != nil {
		s.problems.set("dedup", err)
	}
	s.trace("settling")
	s.botAway.Store(false)
	s.tellDelivered(p, r)
	s.log.Info("delivered", keyChat, p.msg.ChatID, keyMsg, p.key, keySender, p.msg.SenderAgentName, keyDoor, r.Channel)
	s.end(p, stageInject, relay.Pass)
}

// answeredLate notes that the bot answered a message after its time-out.
func (s *Sidecar) answeredLate(m delivery.Ref, r delivery.Result) {
	s.log.Info("the bot answered after the time-out", keyChat, m.Chat, keyMsg, m.Key, keySender, m.Sender,
		keyDoor, r.Channel)
	if m.Mail {
		go s.ackLate(m)
		return
	}
	s.tellDelivered(&passage{key: m.Key, final: m.Sent, msg: relay.Message{RelayMsgID: m.ID, Channel: m.Channel,
		ChatID: m.Chat, SenderAgentName: m.Sender}}, r)
}

// tellDelivered tells metrics and watchers that the bot has the message.
func (s *Sidecar) tellDelivered(p *passage, r delivery.Result) {
	s.metrics.delivered(r.Channel, p.final)
	s.noteDelivered(p, r.Channel)
	s.events.Publish(httpapi.Event{Type: httpapi.EventDelivery, Channel: p.msg.Channel, ChatID: p.msg.ChatID,
		RelayMsgID: p.msg.RelayMsgID, Sender: string(p.msg.SenderAgentName), Door: r.Channel})
}

// ackLateWithin bounds the work for a late answer to mail, whose store may be away.
const ackLateWithin = 30 * time.Second

// ackLate takes mail out of the inbox whose answer came late. Where that fails the
// mail stays there and is not handed over again.
func (s *Sidecar) ackLate(m delivery.Ref) {
	ctx, cancel := context.WithTimeout(context.Background(), ackLateWithin)
	defer cancel()
	if err := s.mail.Ack(ctx, string(m.ID)); err != nil {
		s.log.Warn("mail that was answered late stays in the inbox", keyMsg, m.Key, keyErr, err)
	}
}

// deliveryFailed notes why a message is written again.
func (s *Sidecar) deliveryFailed(m delivery.Ref, err error) {
	s.problems.set(stageInject, err)
	s.metrics.retried.WithLabelValues(stageInject).Inc()
	if !s.botAway.Swap(true) { // once an outage
		s.log.Warn("the bot does not take messages; they wait for it", keyChat, m.Chat, keyMsg, m.Key, keyErr, err)
	}
}

// deliveriesAPI is the deliveries as the local API shows them.
type deliveriesAPI struct{ s *Sidecar }

func (a deliveriesAPI) InProgress() any { return a.s.deliveries.InProgress() }

// Settle notes what the bot says of a message that it was given, or of mail.
func (a deliveriesAPI) Settle(ctx context.Context, id relay.MessageID, state, reason string) error {
	s := a.s
	err := s.deliveries.Settle(ctx, id, delivery.State(state), reason)
	if errors.Is(err, delivery.ErrUnknown) {
		err = s.settleUnknown(ctx, id, state, reason)
	}
	if s.doors.stream != nil && err == nil {
		switch delivery.State(state) {
		case delivery.Delivered:
			s.doors.stream.Acknowledge(id)
		case delivery.Refused:
			s.doors.stream.Withdraw(id)
		}
	}
	if conflict, ok := errors.AsType[*delivery.ConflictError](err); ok {
		return &relay.Error{Code: relay.CodeSettled, Message: conflict.Error()}
	}
	if errors.Is(err, delivery.ErrUnknown) {
		return relay.Errorf(relay.CodeUnknownMessage,
			"this bot was not given a message %.200q; GET /v1/deliveries lists what is in progress", id)
	}
	return err
}

// settleUnknown settles what is not a delivery known since the start: mail that
// waits in the inbox, or a message that was handled before a restart.
func (s *Sidecar) settleUnknown(ctx context.Context, id relay.MessageID, state, reason string) error {
	if s.mail != nil && s.mail.Waits(string(id)) {
		switch delivery.State(state) {
		case delivery.Delivered:
			return s.mail.Ack(ctx, string(id))
		case delivery.Refused:
			return s.mail.Nack(ctx, string(id), mailbox.InvalidMessage, reason)
		}
		return nil // it waits, and is handed over again
	}
	if s.given.has(givenAs(id)) || s.mail != nil && s.mail.Handled(string(id)) {
		if delivery.State(state) != delivery.Delivered {
			return &delivery.ConflictError{State: delivery.Delivered}
		}
		return nil
	}
	return delivery.ErrUnknown
}
