package gateway

import (
	"context"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// nativeWait bounds the storing of another bot's message, so that a refusal is
// still in time: after [feishu.AckHold] the event passes to the bot.
const nativeWait = feishu.AckHold - 200*time.Millisecond

// tapEvent sees every event on its way to the bot ([feishu.EventTap]).
func (g *Gateway) tapEvent(data []byte) (v feishu.Verdict, after func()) {
	defer g.caught("event") // which leaves Pass: the bot comes first
	ev, err := feishu.ParseEvent(data)
	if err != nil || !g.own.is(ev.AppID) {
		return feishu.Pass, nil
	}
	switch ev.Type {
	case feishu.EventBotAdded:
		g.sawChat(ev.ChatID, feishu.ChatGroup)
		g.joined(ev.ChatID, ev.CreateTime)
	case feishu.EventBotDeleted, feishu.EventDisbanded:
		g.left(ev.ChatID, ev.CreateTime)
	}
	if ev.Message == nil || ev.Message.ID == "" || ev.Message.ChatID == "" {
		return feishu.Pass, nil
	}
	return g.heard(ev)
}

func (g *Gateway) heard(ev feishu.Event) (feishu.Verdict, func()) {
	m := *ev.Message
	if g.ownMessage(&m) {
		return feishu.Pass, nil
	}
	g.sawChat(m.ChatID, m.ChatType)
	if m.ChatType == feishu.ChatGroup {
		g.joined(m.ChatID, m.CreateTime)
	}
	g.recent.stands(m.ID, m.ChatID)
	g.opts.Book.LearnMentions(m.Mentions)
	if !m.Sender.IsBot() {
		if m.ChatType == feishu.ChatGroup {
			g.opts.Host.Hearing(m)
		}
		return feishu.Pass, func() { g.hear(m) }
	}
	g.opts.Book.LearnBot(feishu.Bot{OpenID: m.Sender.OpenID, AppID: m.Sender.AppID, Name: m.Sender.Name})
	if m.ChatType == feishu.ChatP2P {
		return feishu.Pass, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), nativeWait)
	defer cancel()
	if err := g.opts.Host.Native(ctx, m, ev.Streaming); err != nil {
		g.count("native_refused")
		g.log.Warn("another bot's message cannot be stored; Feishu is to deliver it again", "chat", m.ChatID,
			"message_id", m.ID, "err", err)
		return feishu.Refuse, nil
	}
	g.count("native")
	return feishu.Keep, nil
}

// passedUnseen notes an event that the bot was given though [Gateway.tapEvent] has
// not decided on it.
func (g *Gateway) passedUnseen(data []byte) {
	ev, err := feishu.ParseEvent(data)
	if err == nil && g.own.is(ev.AppID) && ev.Message != nil && ev.Message.Sender.IsBot() {
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
	_, out := g.recent.wasPublished(m.ID)
	return out || g.drafts.holds(m.ID)
}

func (g *Gateway) hear(m feishu.Message) {
	defer g.caught("heard")
	ctx, cancel := context.WithTimeout(context.Background(), hostWait)
	defer cancel()
	if err := g.opts.Host.Heard(ctx, m); err != nil {
		g.count("heard_error")
		g.log.Warn("a person's message cannot be recorded", "chat", m.ChatID, "message_id", m.ID, "err", err)
	}
}

func (g *Gateway) sawChat(id relay.ChatID, kind string) {
	if id == "" {
		return
	}
	was := g.opts.Book.Chat(id).Kind
	g.opts.Book.SawChat(id, kind)
	if was == "" && kind != "" {
		g.drafts.each(func(d *draft) bool { return d.Message.ChatID == id },
			func(d *draft) { d.tries, d.retryAt = 0, time.Time{} })
	}
}

func (g *Gateway) joined(id relay.ChatID, at relay.Millis) {
	defer g.caught("joined")
	if id != "" {
		g.opts.Host.Joined(id, at)
	}
}

// left notes that the bot is no longer in a chat.
func (g *Gateway) left(id relay.ChatID, at relay.Millis) {
	defer g.caught("left")
	if id == "" {
		return
	}
	g.opts.Book.LeftChat(id)
	g.opts.Host.Left(id, at)
}
