package sidecar

import (
	"context"
	"errors"
	"fmt"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/link"
	"feishu-relay/feishu/send"
	"feishu-relay/httpapi"
	"feishu-relay/relay"
)

// speaker says things in Feishu for a bot that cannot, over the connector.
type speaker struct {
	*Sidecar
	out       *send.Sender
	connector *link.Connector
}

// newSpeaker returns nil without a connector.
func newSpeaker(s *Sidecar) *speaker {
	if !s.cfg.Connector {
		return nil
	}
	conn := link.NewConnector(s.cfg.BaseURL, s.cfg.AppID, string(s.cfg.AppSecret), &link.Events{
		Tap: s.connectorEvent, Logger: s.log, Counter: s.metrics.gatewayEvent,
	}, func(err error) { s.problems.set("connector", err) })
	return &speaker{Sidecar: s, out: send.New(s.app.api, s.app.book, s.metrics.gatewayEvent), connector: conn}
}

// connectorEvent commits what Feishu tells the connector, before Feishu gets its acknowledgement.
func (s *Sidecar) connectorEvent(data []byte) (v feishu.Verdict, instead []byte) {
	e, err := feishu.ParseEvent(data)
	if err != nil {
		s.log.Warn("an event cannot be read", keyErr, err)
		return feishu.Pass, nil
	}
	switch e.Type {
	case feishu.EventBotAdded:
		s.app.book.SawChat(e.ChatID, feishu.ChatGroup)
		s.core.Joined(feishuChat(e.ChatID), e.CreateTime)
	case feishu.EventBotDeleted, feishu.EventDisbanded:
		s.app.book.LeftChat(e.ChatID)
		s.core.Left(feishuChat(e.ChatID), e.CreateTime)
	case feishu.EventRecalled:
		if e.Recall != nil {
			s.wasRecalled(e.ChatID, e.Recall.ID)
		}
	}
	m := e.Message
	if m == nil || m.Sender.OpenID != "" && m.Sender.OpenID == s.app.self().OpenID {
		return feishu.Pass, nil
	}
	ctx := context.Background()
	s.app.book.SawChat(m.ChatID, m.ChatType)
	if !m.Sender.IsBot() {
		s.chats.noteTalk(talk{Channel: relay.DefaultChannel, ChatID: m.ChatID, ChatType: m.ChatType, MessageID: m.ID,
			At: m.CreateTime})
	}
	switch {
	case m.ChatType != feishu.ChatGroup && m.Sender.IsBot():
		return feishu.Pass, nil
	case m.ChatType != feishu.ChatGroup:
		err = s.core.GivePrivate(ctx, s.person(m).Msg)
	case m.Sender.IsBot():
		err = s.hearNative(ctx, *m, e.Streaming)
	default:
		m.Sender.Name = s.app.person(ctx, m)
		s.app.read(ctx, m)
		if content.IsText(m.Type) && m.Text() == "" {
			return feishu.Keep, nil
		}
		_, err = s.core.HearEvent(ctx, s.person(m), nil)
	}
	if err != nil {
		s.problems.set("events", err)
		return feishu.Refuse, nil
	}
	return feishu.Keep, nil
}

func (s *speaker) say(ctx context.Context, what httpapi.Saying) (answer httpapi.Said, err error) {
	s.app.selfSoon()
	kind, err := s.app.chatKind(ctx, what.ChatID)
	if err != nil {
		return answer, &relay.Error{Code: relay.CodeFeishuUnavailable,
			Message: "Feishu did not say what kind of chat this is; send it again later: " + err.Error()}
	}
	_, err = s.out.Send(ctx, send.Message{ChatID: what.ChatID, Content: what.Content,
		ReplyTo:  s.app.answerable(what.ChatID, what.ReplyTo),
		InThread: what.InThread, IdempotencyKey: what.IdempotencyKey, Mentions: what.Mentions}, func(m feishu.Message) error {
		answer.MessageIDs = append(answer.MessageIDs, m.ID)
		if kind != feishu.ChatGroup {
			return nil
		}
		answer.Relayed = true
		s.app.selfNow()
		return s.sent(ctx, gateway.Sent{Message: m, Text: m.Text()}, answer.MessageIDs[0])
	})
	if e, ok := errors.AsType[*feishu.CodeError](err); ok {
		if e.Code == feishu.CodeNotInChat {
			s.core.Left(feishuChat(what.ChatID), 0)
		}
		return answer, relay.Errorf(relay.CodeFeishuRefused, "%v (%d pieces were sent before)", e, len(answer.MessageIDs))
	}
	if err != nil {
		return answer, fmt.Errorf("send: %w", err)
	}
	return answer, nil
}
