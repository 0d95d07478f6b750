package sidecar

import (
	"context"
	"errors"
	"fmt"

	"feishu-relay/feishu"
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

func (s *Sidecar) openSpeaker() error {
	if !s.cfg.Connector {
		return nil
	}
	events := &link.Events{Logger: s.log, Counter: s.metrics.gatewayEvent}
	gateway.Hear(events, s.app.book, host{Sidecar: s})
	conn := link.NewConnector(s.cfg.BaseURL, s.cfg.AppID, string(s.cfg.AppSecret), events,
		func(err error) { s.problems.set("connector", err) })
	s.speak = &speaker{Sidecar: s, out: send.New(s.app.api, s.app.book, s.metrics.gatewayEvent), connector: conn}
	return nil
}

func (s *speaker) say(ctx context.Context, what httpapi.Saying) (answer httpapi.Said, err error) {
	s.app.selfSoon()
	kind, err := s.app.chatKind(ctx, what.ChatID)
	if err != nil {
		return answer, &relay.Error{Code: relay.CodeFeishuUnavailable,
			Message: "Feishu did not say what kind of chat this is; send it again later: " + err.Error()}
	}
	err = s.out.Send(ctx, send.Message{ChatID: what.ChatID, Content: what.Content,
		ReplyTo:  s.app.answerable(what.ChatID, what.ReplyTo),
		InThread: what.InThread, IdempotencyKey: what.IdempotencyKey, Mentions: what.Mentions}, func(m feishu.Message) error {
		answer.MessageIDs = append(answer.MessageIDs, m.ID)
		if kind != feishu.ChatGroup {
			return nil
		}
		answer.Relayed = true
		s.app.selfNow()
		return s.sent(ctx, gateway.Sent{Message: m, Doc: m.Doc(), Text: m.Text()}, answer.MessageIDs[0])
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
