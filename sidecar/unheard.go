package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/link"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/wait"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// Bounds of what is read of a message that came without its text.
const (
	readWithin       = 2 * time.Second
	maxForwarded     = 100      // messages of a merged forward
	maxForwardedText = 16 << 10 // bytes of all of them
)

// read returns what m says. Of a merged forward, whose event has no lines, and of an empty text Feishu is asked once.
func (a *app) read(ctx context.Context, m *feishu.Message) content.Doc {
	doc, forward := m.Doc(), m.Type == content.TypeForward
	if !forward && (!content.IsText(m.Type) || doc.Text() != "") || !a.api.Ready() {
		return doc
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	now, forwarded, err := a.api.Message(ctx, m.ID)
	if err != nil {
		a.problems.set("content", err)
	} else if m.Content, m.Mentions = now.Content, now.Mentions; forward {
		m.Content = feishu.TextContent(a.lines(ctx, forwarded))
	}
	return m.Doc()
}

// lines are the messages of a merged forward, each behind its sender's name.
func (a *app) lines(ctx context.Context, forwarded []feishu.Message) string {
	var lines []string
	for _, m := range forwarded[:min(len(forwarded), maxForwarded)] {
		m.ChatType = feishu.ChatGroup // whose people are asked for
		bot, _ := a.book.Name(m.Sender.AppID)
		if self := a.self(); m.Sender.AppID == self.AppID {
			bot.Name = self.Name
		}
		who := runes.OneLine(cmp.Or(a.person(ctx, &m), bot.Name, string(m.Sender.OpenID), m.Sender.AppID))
		lines = append(lines, who+": "+strings.ReplaceAll(m.Text(), "\n", "\n  "))
	}
	return runes.Short(strings.Join(lines, "\n"), maxForwardedText)
}

// missedAfter is how long after another sidecar heard a person's message Feishu's event of it may come; half of
// RELAY_MAX_AGE, where that is less.
const missedAfter = 30 * time.Second

// missed waits for Feishu's event of a person's message that names this bot, and that another sidecar has heard. If
// it does not come, the message is read from Feishu, and goes on as if its event had come.
func (s *Sidecar) missed(m *relay.Message) {
	id, within := m.ID(), min(missedAfter, s.cfg.MaxAge/2)
	if s.front == nil && s.speak == nil || !isFeishus(id) || !s.app.addressed(m.Content, m.MsgType, m.Mentions) {
		return
	}
	of := feishuChat(m.ChatID)
	time.AfterFunc(within, func() {
		door, key := s.channels.gateway, link.Key(s.app.self().AppID, id)
		came := true
		s.core.View(func(c *loop.Core) { came = c.Group(of) == nil || c.Group(of).Heard(id) })
		if came || door != nil && (door.Conn() == 0 || door.answered.Claim(key) != dedup.New) {
			return
		}
		s.log.Warn("Feishu delivered no event of a message that names the bot; it is read from Feishu", keyMsg, id)
		err := s.makeUp(context.Background(), id, door)
		if door != nil {
			_ = door.answered.Settle(key, err == nil) // in memory at least
		}
		s.problems.set("events", errors.Join(fmt.Errorf("the bot missed message %s: within %v Feishu delivered no event "+
			"of it. Does another program hold a connection of the app? Has the app subscribed %s?", id, within,
			feishu.MessageReceived), err))
	})
}

// makeUp gives the bot a message that is read from Feishu, or keeps it from it, as if its event came now.
func (s *Sidecar) makeUp(ctx context.Context, id relay.MessageID, door *gatewayDoor) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(s.cfg.DeliveryTimeout, 15*time.Minute))
	defer cancel()
	m, _, err := s.app.api.Message(ctx, id)
	if err != nil || m.Deleted {
		return err
	}
	m.ChatType = feishu.ChatGroup
	event := m.Event("missed-"+string(id), string(s.cfg.VerificationToken), s.app.selfAsked(ctx))
	p, err := host{Sidecar: s}.Heard(ctx, m, event)
	if err != nil || door == nil || p.Verdict != feishu.Pass {
		return err
	}
	if with, failed := feishu.WithBefore(event, p.Before); failed == nil && p.Before != "" {
		event = with
	}
	return door.gateway.Inject(ctx, feishu.Injection{Event: event})
}

// The pauses between looks at the app's connections.
const (
	connectionsFirst = time.Second / 2
	connectionsMost  = 10 * time.Minute
)

// countConnections reports where the app has more connections than this sidecar knows of, at two looks, until ctx is
// done: Feishu delivers each event to one of them.
func (a *app) countConnections(ctx context.Context, own func() int) {
	pauses, before := wait.NewBackoff(connectionsFirst, connectionsMost), false
	for pauses.Sleep(ctx) == nil {
		n, err := a.api.Connections(ctx) // which fails while there are no credentials
		more := err == nil && n > max(own(), 1)
		switch {
		case more && !before:
			pauses.Reset() // the second look is soon
		case more:
			a.problems.set("connections", fmt.Errorf("the app has %d connections to Feishu, and %d are of this sidecar: "+
				"another program takes a part of the bot's events; stop it", n, own()))
		}
		before = more
	}
}
