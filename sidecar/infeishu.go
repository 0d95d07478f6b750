package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/relay"
)

// inFeishu is what the core asks Feishu, and the bot's gateway, to do.
type inFeishu struct{ *Sidecar }

// stopEmoji is the emoji_type of the reaction that shows a stop.
const stopEmoji = "CrossMark"

// actTime bounds one call to Feishu.
const actTime = 10 * time.Second

// Member asks Feishu whether the bot is in a chat.
func (f inFeishu) Member(ctx context.Context, chat relay.ChatID) (bool, error) {
	return f.app.askMembership(ctx, chat)
}

// Fetch reads a bot's message again that was a placeholder. Feishu does not return the text of a streamed card.
func (f inFeishu) Fetch(ctx context.Context, m *relay.Message) (*relay.Message, relay.Reason) {
	now := *m
	f.app.named(&now)
	if !content.Placeholder(now.Content) {
		return &now, relay.Pass
	}
	if now.MsgType != "interactive" && f.app.api.Ready() {
		ctx, cancel := context.WithTimeout(ctx, feishuAsked)
		defer cancel()
		if is, _, err := f.app.api.Message(ctx, m.MessageID); err != nil {
			f.problems.set("native message", err)
		} else {
			now.Content = is.Text()
		}
	}
	if content.Placeholder(now.Content) {
		return &now, relay.Expired
	}
	return &now, relay.Pass
}

// Complete adds the name of who sent m, and reads what its event did not have.
func (f inFeishu) Complete(ctx context.Context, m *relay.Message) *relay.Message {
	forward := m.MsgType == content.TypeForward
	if m.Channel != relay.DefaultChannel || !isFeishus(m.ID()) ||
		m.SenderName != "" && !forward && (m.Content != "" || !content.IsText(m.MsgType)) {
		return m
	}
	out := *m
	is := feishu.Message{ID: m.ID(), ChatID: m.ChatID, ChatType: feishu.ChatGroup, Type: m.MsgType,
		Sender: feishu.Sender{OpenID: m.SenderID}}
	out.SenderName = cmp.Or(m.SenderName, f.app.person(ctx, &is))
	if forward || m.Content == "" && content.IsText(m.MsgType) {
		if out.Content = cmp.Or(f.app.read(ctx, &is).Text(), m.Content); out.Content == "" {
			f.log.Debug("an empty message is left out", keyMsg, m.ID())
			return nil
		}
	}
	return &out
}

// React shows a stop.
func (f inFeishu) React(ctx context.Context, to relay.MessageID) error {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	return f.app.api.React(ctx, to, stopEmoji)
}

// Reply shows a text.
func (f inFeishu) Reply(ctx context.Context, to relay.MessageID, text, key string) (relay.MessageID, error) {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	return f.app.api.Reply(ctx, to, text, short(key))
}

// Give gives the bot the event of a person's message, and returns when it is written whole, or an error if it is not
// until then: from then on another bot may get it.
func (f inFeishu) Give(ctx context.Context, event json.RawMessage, before string, until time.Time) error {
	if before != "" {
		with, err := feishu.WithBefore(event, before)
		if err != nil { // it goes on as it came
			f.problems.set("context", err)
			with = event
		}
		event = with
	}
	return handOver(ctx, until, f.cfg.DeliveryTimeout, func(ctx context.Context, written func()) error {
		return f.channels.gateway.gateway.Inject(ctx, feishu.Injection{Event: event,
			Written: written})
	})
}

// handOver gives the bot an event by inject and returns when the event is written whole, or an error if it is not until
// then. The bot's answer is waited for in the background, for limit at most.
func handOver(ctx context.Context, until time.Time, limit time.Duration,
	inject func(ctx context.Context, written func()) error) error {
	giving, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	written, ended := make(chan struct{}), make(chan error, 1)
	injecting, stop := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(limit, 15*time.Minute))
	go func() {
		defer stop()
		ended <- inject(injecting, sync.OnceFunc(func() { close(written) }))
	}()
	select {
	case <-written:
		return nil
	case err := <-ended:
		return err
	case <-giving.Done():
		stop()
		err := <-ended
		select {
		case <-written:
			return nil
		default:
			return err
		}
	}
}

// mayEdit reports whether the person who sent m may change the group's settings.
func (s *Sidecar) mayEdit(ctx context.Context, m *relay.Message, union string) bool {
	switch by := cmp.Or(s.chats.group(m.ChatID).SteerBy, s.cfg.Steer.By); by {
	case "", "members":
		return true
	case "admins":
		ctx, cancel := context.WithTimeout(ctx, personWait)
		defer cancel()
		return m.SenderID != "" && slices.Contains(s.managers(ctx, m.ChatID), m.SenderID)
	default:
		for id := range strings.SplitSeq(by, ",") {
			if id = strings.TrimSpace(id); id != "" && (id == string(m.SenderID) || id == union) {
				return true
			}
		}
		return false
	}
}

// managersFresh is how long Feishu's answer is believed who a group's owner and managers are.
const managersFresh = time.Minute

// managers are a group's owner and managers as this bot's app sees them; none: Feishu does not say.
func (s *Sidecar) managers(ctx context.Context, chat relay.ChatID) []relay.OpenID {
	managers, err := feishu.Known(ctx, s.app.book, "managers "+string(chat), managersFresh,
		func(ctx context.Context) ([]relay.OpenID, error) {
			owner, managers, err := s.app.api.Managers(ctx, chat)
			return append(managers, owner), err
		})
	if err != nil && !errors.Is(err, feishu.ErrNoToken) {
		s.problems.set("steer", err)
		return nil
	}
	return managers
}
