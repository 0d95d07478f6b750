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
	switch m := ev.Message; {
	case m != nil:
		return g.heard(m, ev.Streaming, data)
	case ev.Recall != nil:
		g.Forget(ev.Recall.ID)
		g.opts.Host.Recalled(ev.ChatID, ev.Recall.ID, ev.Recall.At)
	case ev.Reaction != nil:
		if r := ev.Reaction; r.ByApp && g.opts.Host.OwnReaction(r.ID, r.Emoji) {
			return feishu.Keep, nil
		}
	case ev.ChatID == "":
	case ev.Type == feishu.EventBotAdded:
		g.opts.Book.SawChat(ev.ChatID, feishu.ChatGroup)
		g.opts.Host.Joined(ev.ChatID, ev.CreateTime)
	case ev.Type == feishu.EventBotDeleted || ev.Type == feishu.EventDisbanded:
		g.left(ev.ChatID, ev.CreateTime)
	}
	return feishu.Pass, nil
}

// heard takes a message that Feishu delivered. The host commits it; if it fails, a person's message goes to the bot as
// it came.
func (g *Gateway) heard(m *feishu.Message, streaming bool, event []byte) (feishu.Verdict, []byte) {
	self := g.opts.Book.Self().OpenID
	if m.Sender.OpenID != "" && m.Sender.OpenID == self || g.own.is(m.Sender.AppID) || g.recent.sent.Contains(m.ID) ||
		g.drafts.holds(m.ID) { // the bot's own, also while its open_id is not known yet
		return feishu.Pass, nil
	}
	group := m.ChatType == feishu.ChatGroup
	g.opts.Book.SawChat(m.ChatID, m.ChatType)
	if group {
		g.opts.Host.Joined(m.ChatID, m.CreateTime)
	}
	g.recent.chats.Add(m.ID, m.ChatID)
	g.opts.Book.LearnMentions(m.Mentions)
	ctx, cancel := context.WithTimeout(context.Background(), tapTime)
	defer cancel()
	if m.Sender.IsBot() {
		g.opts.Book.LearnBot(feishu.Bot{OpenID: m.Sender.OpenID, AppID: m.Sender.AppID, Name: m.Sender.Name})
		if m.ChatType == feishu.ChatP2P {
			return feishu.Pass, nil
		}
		if err := g.opts.Host.Native(ctx, *m, streaming); err != nil {
			g.count("native_refused")
			g.log.Warn("another bot's message cannot be stored; Feishu will deliver it again", "chat", m.ChatID,
				"message_id", m.ID, "err", err)
			return feishu.Refuse, nil
		}
		g.count("native")
		return feishu.Keep, nil
	}
	p, err := g.opts.Host.Heard(ctx, *m, event)
	switch {
	case err != nil:
		g.count("heard_error")
		g.log.Warn("a person's message cannot be recorded", "chat", m.ChatID, "message_id", m.ID, "err", err)
		return p.Verdict, nil
	case !group:
		return feishu.Pass, nil
	case p.Verdict != feishu.Pass:
		g.count("withheld")
		return p.Verdict, nil
	case p.Before == "":
		return feishu.Pass, nil
	}
	instead, err := feishu.WithBefore(event, p.Before)
	if err != nil {
		g.log.Debug("a person's message passes without its context", "chat", m.ChatID, "message_id", m.ID, "err", err)
	}
	return feishu.Pass, instead
}

// passedUnseen reports to the host a message that the bot got before [Gateway.tapEvent] decided on it.
func (g *Gateway) passedUnseen(data []byte) {
	ev, err := feishu.ParseEvent(data)
	if err == nil && g.own.is(ev.AppID) && ev.Message != nil {
		g.opts.Host.Passed(ev.Message.ID)
	}
}

// left records that the bot is no longer in a chat.
func (g *Gateway) left(id relay.ChatID, at relay.Millis) {
	if id != "" {
		g.opts.Book.LeftChat(id)
		g.opts.Host.Left(id, at)
	}
}

// Forget drops the draft of a recalled message. The message is not published later.
func (g *Gateway) Forget(id relay.MessageID) {
	g.recent.gone.Add(id, struct{}{})
	if g.drafts.drop(id) {
		g.count("draft_recalled")
	}
}
