package gateway

import (
	"context"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// tapTime is how long the host may take to decide on an event: a little less than [feishu.AckHold], after which the
// event passes.
const tapTime = feishu.AckHold - 200*time.Millisecond

// tapEvent decides on an event before the bot gets it ([feishu.EventTap]).
func (g *Gateway) tapEvent(data []byte) (v feishu.Verdict, instead []byte) {
	defer g.caught("event") // which leaves Pass: the bot comes first
	ev, err := feishu.ParseEvent(data)
	if err != nil || !g.own.is(ev.AppID) {
		return feishu.Pass, nil
	}
	g.opts.Book.LearnSelf(feishu.Self{Tenant: ev.TenantKey})
	switch ev.Type {
	case feishu.EventBotAdded:
		g.sawChat(ev.ChatID, feishu.ChatGroup)
		g.joined(ev.ChatID, ev.CreateTime)
	case feishu.EventBotDeleted, feishu.EventDisbanded:
		g.left(ev.ChatID, ev.CreateTime)
	case feishu.EventRecalled:
		if ev.Recall != nil {
			g.Forget(ev.Recall.ID)
			g.recalled(ev.ChatID, ev.Recall.ID, ev.Recall.At)
		}
	case feishu.EventReacted, feishu.EventReactionEnded:
		if r := ev.Reaction; r != nil && r.ByApp && g.opts.Host.OwnReaction(r.ID, r.Emoji) {
			return feishu.Keep, nil
		}
	}
	if ev.Message == nil || ev.Message.ID == "" || ev.Message.ChatID == "" {
		return feishu.Pass, nil
	}
	return g.heard(ev, data)
}

func (g *Gateway) heard(ev feishu.Event, data []byte) (feishu.Verdict, []byte) {
	m := *ev.Message
	if g.ownMessage(&m) {
		return feishu.Pass, nil
	}
	g.sawChat(m.ChatID, m.ChatType)
	if m.ChatType == feishu.ChatGroup {
		g.joined(m.ChatID, m.CreateTime)
	}
	g.recent.chats.Add(m.ID, m.ChatID)
	g.opts.Book.LearnMentions(m.Mentions)
	if !m.Sender.IsBot() {
		return g.hear(m, data)
	}
	g.opts.Book.LearnBot(feishu.Bot{OpenID: m.Sender.OpenID, AppID: m.Sender.AppID, Name: m.Sender.Name})
	if m.ChatType == feishu.ChatP2P {
		return feishu.Pass, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), tapTime)
	defer cancel()
	if err := g.opts.Host.Native(ctx, m, ev.Streaming); err != nil {
		g.count("native_refused")
		g.log.Warn("another bot's message cannot be stored; Feishu will deliver it again", "chat", m.ChatID,
			"message_id", m.ID, "err", err)
		return feishu.Refuse, nil
	}
	g.count("native")
	return feishu.Keep, nil
}

// passedUnseen reports to the host a message that the bot got before [Gateway.tapEvent] decided on it.
func (g *Gateway) passedUnseen(data []byte) {
	ev, err := feishu.ParseEvent(data)
	if err == nil && g.own.is(ev.AppID) && ev.Message != nil {
		g.opts.Host.Passed(ev.Message.ID)
	}
}

// ownMessage reports whether m is the bot's own, also while its open_id is not
// known yet.
func (g *Gateway) ownMessage(m *feishu.Message) bool {
	self := g.opts.Book.Self()
	if m.Sender.OpenID != "" && m.Sender.OpenID == self.OpenID || g.own.is(m.Sender.AppID) {
		return true
	}
	out := g.recent.sent.Contains(m.ID)
	return out || g.drafts.holds(m.ID)
}

// hear has the host commit a person's message. Without an answer the message passes.
func (g *Gateway) hear(m feishu.Message, event []byte) (v feishu.Verdict, instead []byte) {
	group := m.ChatType == feishu.ChatGroup
	ctx, cancel := context.WithTimeout(context.Background(), tapTime)
	defer cancel()
	p, err := g.opts.Host.Heard(ctx, m, event)
	switch {
	case err != nil:
		g.heardError(&m, err)
		return p.Verdict, nil
	case !group:
	case p.Verdict != feishu.Pass:
		g.count("withheld")
		return p.Verdict, nil
	case p.Before != "":
		if instead, err = feishu.WithBefore(event, p.Before); err != nil {
			g.log.Debug("a person's message passes without its context", "chat", m.ChatID,
				"message_id", m.ID, "err", err)
		}
	}
	return feishu.Pass, instead
}

func (g *Gateway) heardError(m *feishu.Message, err error) {
	g.count("heard_error")
	g.log.Warn("a person's message cannot be recorded", "chat", m.ChatID, "message_id", m.ID, "err", err)
}

func (g *Gateway) sawChat(id relay.ChatID, kind string) {
	if id == "" {
		return
	}
	was := g.opts.Book.Chat(id).Kind
	g.opts.Book.SawChat(id, kind)
	if was == "" && kind != "" {
		g.drafts.retry(id)
	}
}

func (g *Gateway) joined(id relay.ChatID, at relay.Millis) {
	defer g.caught("joined")
	if id != "" {
		g.opts.Host.Joined(id, at)
	}
}

// Forget drops the draft of a recalled message. The message is not published later.
func (g *Gateway) Forget(id relay.MessageID) {
	g.recent.gone.Add(id, struct{}{})
	if g.drafts.drop(id) {
		g.count("draft_recalled")
	}
}

func (g *Gateway) recalled(chat relay.ChatID, id relay.MessageID, at relay.Millis) {
	defer g.caught("recalled")
	g.opts.Host.Recalled(chat, id, at)
}

// left records that the bot is no longer in a chat.
func (g *Gateway) left(id relay.ChatID, at relay.Millis) {
	defer g.caught("left")
	if id == "" {
		return
	}
	g.opts.Book.LeftChat(id)
	g.opts.Host.Left(id, at)
}
