package sidecar

import (
	"context"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

// host is the sidecar as its gateway sees it.
type host struct {
	app     *app
	chats   *chats
	send    *sender
	native  *native
	deliver *deliverer
	door    *gatewayDoor
	peers   *peerMail // nil where mail does not come by the gateway
}

var _ gateway.Host = host{}

// selfWait is how long the first message of a bot that never asked who it is
// waits for Feishu to say it: the others know it by its name.
const selfWait = time.Second

// finalAfter is how many ms after its ts a message that becomes final says so.
const finalAfter = 5000

// Sent relays what Feishu has accepted from the bot in a group, and sends what it said in a chat with an agent.
func (h host) Sent(ctx context.Context, m gateway.Sent) error {
	if h.peers != nil && peerchat.IsID(m.ChatID) {
		return h.peers.sent(ctx, m)
	}
	h.app.selfNow()
	return h.send.sent(m, m.ID)
}

// Edited tells all sidecars what a message of the bot says now.
func (h host) Edited(m gateway.Sent) { h.send.steer.edit(m) }

// Heard commits a person's message, and decides how it goes on to the bot. An answer that comes before the message is
// in the transcript is counted from it, unless it is a command.
func (h host) Heard(ctx context.Context, m feishu.Message, event []byte) (feishu.Passage, error) {
	key := topicKey(relay.DefaultChannel, m.ChatID, m.ThreadID)
	if known, _ := h.chats.hearing.Get(key); m.ChatType == feishu.ChatGroup && known < int64(m.CreateTime) &&
		!h.send.steer.isCommand(&relay.Message{Channel: relay.DefaultChannel, ChatID: m.ChatID, Content: m.Text(),
			MsgType: m.Type, Mentions: h.app.mentionsOf(m.Mentions)}) {
		h.chats.hearing.Add(key, int64(m.CreateTime))
	}
	return h.send.heard(ctx, m, event)
}

// Native stores what Feishu delivered of another bot; on disk when it returns.
func (h host) Native(ctx context.Context, m feishu.Message, streaming bool) error {
	return h.native.spool(ctx, m, nativeKind(m, streaming))
}

// Passed notes a message that the bot has from Feishu.
func (h host) Passed(id relay.MessageID) { h.deliver.passed.Add(string(id), struct{}{}) }

// Recalled notes that a message was recalled.
func (h host) Recalled(chat relay.ChatID, id relay.MessageID, at relay.Millis) {
	h.send.steer.wasRecalled(chat, id, at)
}

// OwnReaction reports whether a reaction of the app is a sidecar's.
func (h host) OwnReaction(id relay.MessageID, emoji string) bool {
	return h.send.steer.reacted(id, emoji)
}

// Joined notes that the bot is in a chat.
func (h host) Joined(chat relay.ChatID, at relay.Millis) {
	h.chats.saw(relay.DefaultChannel, chat, at)
	h.send.steer.announce(relay.DefaultChannel, chat)
}

// Left notes that it is no longer.
func (h host) Left(chat relay.ChatID, at relay.Millis) {
	h.chats.left(relay.DefaultChannel, chat, at)
	h.send.steer.left(relay.DefaultChannel, chat)
}

// Injected is a message that the bot was given by the gateway, and that was not recalled.
func (h host) Injected(id relay.MessageID) (feishu.Message, bool) {
	m, ok := h.door.shown.Get(id)
	return m, ok && !h.chats.recalls.has(relay.DefaultChannel, m.ChatID, id)
}

// Peer returns the bot that this one was shown under an id.
func (h host) Peer(id relay.OpenID) (feishu.Bot, bool) {
	who, _ := h.app.book.Name(string(id))
	_, isBot := h.app.book.Bot(id)
	return feishu.Bot{OpenID: id, Agent: who.Agent, Name: who.Name}, isBot || who.Agent != ""
}
