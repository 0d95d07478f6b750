package gateway

import (
	"context"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
	"feishu-relay/relay"
)

// tapTime is how long the host may take to decide on an event: a little less than [feishu.AckHold], after which the
// event passes.
const tapTime = feishu.AckHold - 200*time.Millisecond

// Hearer is the sidecar that is told what Feishu tells the bot. Its methods are called from many goroutines.
type Hearer interface {
	// Said reports whether a message is the bot's own, which its open_id does not show yet.
	Said(m *feishu.Message) bool
	// Steers reports, at once, whether a person's message is a command by its text: it never reaches the bot.
	Steers(m *feishu.Message) bool
	// Heard commits a person's message in a chat of the bot (any chat type), with the JSON of its event, which is
	// not kept, and returns how the message goes on to the bot. The bot waits for it, up to [feishu.AckHold]: then
	// the event passes as it came, unless it Steers. After an error only the passage's Verdict counts. Of an event
	// that Feishu delivers again it is called again. Private chats pass.
	Heard(ctx context.Context, m feishu.Message, event []byte) (feishu.Passage, error)
	// Native stores another bot's message that Feishu delivered itself; on disk
	// when it returns nil. streaming: its card is still being written.
	Native(ctx context.Context, m feishu.Message, streaming bool) error
	// Passed reports a message that the bot got from Feishu before Native or Heard returned:
	// it must not be injected.
	Passed(id relay.MessageID)
	// Left reports that the bot was no longer in a chat at a time. Events are repeated and come
	// in any order: the newest time counts, of Left and Joined.
	Left(chat relay.ChatID, at relay.Millis)
	// Joined reports that the bot was in a chat: it was added to it, or has sent what is not final yet. Messages show it
	// by themselves.
	Joined(chat relay.ChatID, at relay.Millis)
	// Recalled reports that a message was recalled, by the bot or as an event shows. chat is
	// "" where it is not known. Events are repeated.
	Recalled(chat relay.ChatID, id relay.MessageID, at relay.Millis)
	// OwnReaction reports whether a reaction of an app on a message is a sidecar's, this one's or
	// another's, rather than a bot's: then the bot does not get the event. It returns at once.
	OwnReaction(id relay.MessageID, emoji string) bool
}

// Hear makes the host decide on the events of the directory's own app, of the gateway's bot or of a connector.
func Hear(e *link.Events, book *feishu.Directory, host Hearer) {
	h := hearing{e, book, host}
	e.Tap, e.Passed, e.Own, e.Undecided = h.event, h.passed, book.IsApp, h.undecided
}

// hearing is what Feishu tells a bot.
type hearing struct {
	*link.Events
	book *feishu.Directory
	host Hearer
}

// event decides on an event before the bot gets it ([feishu.EventTap]).
func (h hearing) event(data []byte) (v feishu.Verdict, instead []byte) {
	ev, err := feishu.ParseEvent(data)
	if err != nil || !h.book.IsApp(ev.AppID) {
		return feishu.Pass, nil
	}
	h.book.LearnSelf(feishu.Self{Tenant: ev.TenantKey})
	switch m := ev.Message; {
	case m != nil:
		return h.message(m, ev.Streaming, data)
	case ev.Recall != nil:
		h.host.Recalled(ev.ChatID, ev.Recall.ID, ev.Recall.At)
	case ev.Reaction != nil:
		if r := ev.Reaction; r.ByApp && h.host.OwnReaction(r.ID, r.Emoji) {
			return feishu.Keep, nil
		}
	case ev.ChatID == "":
	case ev.Type == feishu.EventBotAdded:
		h.book.SawChat(ev.ChatID, feishu.ChatGroup)
		h.host.Joined(ev.ChatID, ev.CreateTime)
	case ev.Type == feishu.EventBotDeleted || ev.Type == feishu.EventDisbanded:
		h.book.LeftChat(ev.ChatID)
		h.host.Left(ev.ChatID, ev.CreateTime)
	}
	return feishu.Pass, nil
}

// message takes a message that Feishu delivered. The host commits it; if it fails, a person's message goes to the bot
// as it came.
func (h hearing) message(m *feishu.Message, streaming bool, event []byte) (feishu.Verdict, []byte) {
	self := h.book.Self().OpenID
	if m.Sender.OpenID != "" && m.Sender.OpenID == self || h.book.IsApp(m.Sender.AppID) || h.host.Said(m) {
		return feishu.Pass, nil
	}
	h.book.SawChat(m.ChatID, m.ChatType)
	h.book.LearnMentions(m.Mentions)
	ctx, cancel := context.WithTimeout(context.Background(), tapTime)
	defer cancel()
	if m.Sender.IsBot() {
		h.book.LearnBot(feishu.Bot{OpenID: m.Sender.OpenID, AppID: m.Sender.AppID, Name: m.Sender.Name})
		if m.ChatType == feishu.ChatP2P {
			return feishu.Pass, nil
		}
		if err := h.host.Native(ctx, *m, streaming); err != nil {
			h.Counter("native_refused")
			h.Logger.Warn("another bot's message cannot be stored; Feishu will deliver it again", "chat", m.ChatID,
				"message_id", m.ID, "err", err)
			return feishu.Refuse, nil
		}
		h.Counter("native")
		return feishu.Keep, nil
	}
	p, err := h.host.Heard(ctx, *m, event)
	switch {
	case err != nil:
		h.Counter("heard_error")
		h.Logger.Warn("a person's message cannot be recorded", "chat", m.ChatID, "message_id", m.ID, "err", err)
		return p.Verdict, nil
	case m.ChatType != feishu.ChatGroup:
		return feishu.Pass, nil
	case p.Verdict != feishu.Pass:
		h.Counter("withheld")
		return p.Verdict, nil
	case p.Before == "":
		return feishu.Pass, nil
	}
	instead, _ := feishu.WithBefore(event, p.Before) // what is no text has no room for its context, and passes as it is
	return feishu.Pass, instead
}

// undecided has Feishu deliver a command again.
func (h hearing) undecided(data []byte) (feishu.Verdict, []byte) {
	ev, err := feishu.ParseEvent(data)
	if err == nil && ev.Message != nil && !ev.Message.Sender.IsBot() && h.host.Steers(ev.Message) {
		return feishu.Refuse, nil
	}
	return feishu.Pass, nil
}

// passed reports to the host a message that the bot got before it was decided on.
func (h hearing) passed(data []byte) {
	ev, err := feishu.ParseEvent(data)
	if err == nil && h.book.IsApp(ev.AppID) && ev.Message != nil {
		h.host.Passed(ev.Message.ID)
	}
}
