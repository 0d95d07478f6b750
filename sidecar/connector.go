package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/connector"
	"feishu-relay/feishu/gateway"
	"feishu-relay/httpapi"
	"feishu-relay/relay"
)

func (s *Sidecar) openConnector() error {
	if !s.cfg.Connector {
		return nil
	}
	var err error
	s.connector, err = connector.New(connector.Options{BaseURL: s.cfg.BaseURL.String(), AppID: s.cfg.AppID,
		AppSecret: string(s.cfg.AppSecret), Tap: s.connectorEvent, Book: s.book, Logger: s.log, Counter: s.metrics.gatewayEvent})
	if err != nil {
		return fmt.Errorf("connector: %w", err)
	}
	return nil
}

// runFeishu starts what listens to Feishu, and to the bot's SDK.
func (s *Sidecar) runFeishu(ctx context.Context, serving, reading *sync.WaitGroup, fail func(error)) {
	if s.native != nil {
		reading.Go(func() {
			s.keep(ctx, "reading "+nativeQueue, func(ctx context.Context) error {
				return s.native.queue.Subscribe(ctx, s.receiveNative)
			})
		})
	}
	if s.front != nil {
		s.log.Info("the gateway listens", "addr", s.Gateway().String(), "upstream", s.cfg.BaseURL.Host)
		serving.Go(func() { s.front.serve(fail) })
		reading.Go(func() { s.front.gateway.Run(ctx) })
	}
	if s.connector != nil {
		reading.Go(func() { s.keep(ctx, "connector", s.connector.Run) })
	}
	if s.api.Ready() { // with the app's own credentials
		reading.Go(func() { s.introduce(ctx) })
	}
}

// introduce asks Feishu until it says who the bot is.
func (s *Sidecar) introduce(ctx context.Context) {
	for pause := time.Second; s.askSelf(ctx).OpenID == ""; pause = min(2*pause, time.Minute) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// connectorEvent stores what Feishu tells the connector, before Feishu gets its
// acknowledgement.
func (s *Sidecar) connectorEvent(data []byte) feishu.Verdict {
	e, err := feishu.ParseEvent(data)
	if err != nil {
		s.log.Warn("an event cannot be read", keyErr, err)
		return feishu.Pass
	}
	switch e.Type {
	case feishu.EventBotAdded:
		s.book.SawChat(e.ChatID, feishu.ChatGroup)
		s.members.saw(relay.DefaultChannel, e.ChatID, e.CreateTime)
	case feishu.EventBotDeleted, feishu.EventDisbanded:
		s.book.LeftChat(e.ChatID)
		s.members.left(relay.DefaultChannel, e.ChatID, e.CreateTime)
	}
	m := e.Message
	if m == nil || m.Sender.OpenID != "" && m.Sender.OpenID == s.self().OpenID {
		return feishu.Pass
	}
	kind := nativePerson
	if m.Sender.IsBot() {
		kind = nativeKind(*m, e.Streaming)
	}
	s.book.SawChat(m.ChatID, m.ChatType)
	if m.ChatType == feishu.ChatGroup {
		s.members.saw(relay.DefaultChannel, m.ChatID, m.CreateTime)
	} else if kind != nativePerson {
		return feishu.Pass
	}
	if kind == nativePerson && m.ChatType == feishu.ChatGroup {
		m.Sender.Name = s.person(context.Background(), m)
	}
	if err := s.spool(context.Background(), *m, kind); err != nil {
		s.problems.set("spool", err)
		return feishu.Refuse
	}
	return feishu.Keep
}

// hearPerson records a person's message in a group, for this bot and for those
// that could not hear it.
func (s *Sidecar) hearPerson(ctx context.Context, p *passage) (relay.Reason, error) {
	m := &p.msg
	if !ofGroup(m.Metadata) {
		s.talks.note(talk{Channel: m.Channel, ChatID: m.ChatID, ChatType: feishu.ChatP2P, MessageID: m.MessageID, At: m.TS})
		return relay.Pass, nil
	}
	_, err := s.Hear(ctx, relay.Heard{ChatID: m.ChatID, Content: m.Content, Sender: string(m.SenderID), SenderID: m.SenderID,
		SenderName: m.SenderName, MessageID: m.MessageID, TS: m.TS, ParentID: m.ParentID, RootID: m.RootID, ThreadID: m.ThreadID})
	return relay.Pass, err
}

// noteMentions finds out whether a person addresses this bot; it gets the
// message either way.
func (s *Sidecar) noteMentions(ctx context.Context, p *passage) (relay.Reason, error) {
	s.selfAsked(ctx)
	p.mentioned = s.addressed(p.msg.Content, p.msg.MsgType, p.msg.Mentions)
	return relay.Pass, nil
}

// sayer is what POST /v1/send does; nil without a connector.
func (s *Sidecar) sayer() func(context.Context, httpapi.Saying) (any, error) {
	if s.connector == nil {
		return nil
	}
	return s.say
}

// said is the answer to POST /v1/send: a message for each piece of a long text.
type said struct {
	MessageIDs []relay.MessageID `json:"message_ids"`
	Relayed    bool              `json:"relayed"`
}

func (s *Sidecar) say(ctx context.Context, what httpapi.Saying) (any, error) {
	answer := said{MessageIDs: []relay.MessageID{}}
	kind, err := s.chatKind(ctx, what.ChatID)
	if err != nil {
		return nil, &relay.Error{Code: relay.CodeFeishuUnavailable,
			Message: "Feishu did not say what kind of chat this is; send it again later: " + err.Error()}
	}
	_, err = s.connector.Send(ctx, connector.Send{ChatID: what.ChatID, Content: what.Content, ReplyTo: s.answerable(what.ChatID, what.ReplyTo),
		InThread: what.InThread, IdempotencyKey: what.IdempotencyKey, Mentions: what.Mentions}, func(m feishu.Message) error {
		answer.MessageIDs = append(answer.MessageIDs, m.ID)
		if kind != feishu.ChatGroup {
			return nil
		}
		answer.Relayed = true
		return s.sent(gateway.Sent{Message: m, Text: m.Text()}, answer.MessageIDs[0])
	})
	if e, ok := errors.AsType[*feishu.CodeError](err); ok {
		if e.Code == feishu.CodeNotInChat {
			s.members.left(relay.DefaultChannel, what.ChatID, relay.MillisOf(time.Now()))
		}
		return nil, relay.Errorf(relay.CodeFeishuRefused, "%v (%d pieces were sent before)", e, len(answer.MessageIDs))
	}
	if err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	return answer, nil
}

// answerable is the message that a reply is meant for. Another agent's result is
// no message of Feishu's: the reply goes to the person's newest one in that chat,
// or where there is none, to no message.
func (s *Sidecar) answerable(chat relay.ChatID, to relay.MessageID) relay.MessageID {
	if to == "" || strings.HasPrefix(string(to), "om_") {
		return to
	}
	known, _ := s.talks.get(relay.DefaultChannel, chat)
	return known.MessageID
}

// chatKind is what kind of chat it is: as remembered, else as Feishu says.
func (s *Sidecar) chatKind(ctx context.Context, chat relay.ChatID) (string, error) {
	if known := s.book.Chat(chat); known.Kind != "" {
		return known.Kind, nil
	}
	ctx, cancel := context.WithTimeout(ctx, feishuAsked)
	defer cancel()
	answer, err := s.api.Chat(ctx, chat)
	if err != nil {
		return "", err
	}
	s.book.SetChat(answer)
	return answer.Kind, nil
}
