package sidecar

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/gateway"
	"feishu-relay/relay"
)

// host is the sidecar as its gateway sees it.
type host struct {
	*Sidecar
	door *gatewayDoor
}

var _ gateway.Host = host{}

// selfWait is how long the first message of a bot that never asked who it is
// waits for Feishu to say it: the others know it by its name.
const selfWait = time.Second

// finalAfter is how many ms after its ts a message that becomes final says so.
const finalAfter = 5000

// Sent relays what Feishu has accepted from the bot in a group.
func (h host) Sent(ctx context.Context, m gateway.Sent) error {
	asking, cancel := context.WithTimeout(ctx, selfWait)
	h.selfAsked(asking)
	cancel()
	return h.sent(m, m.ID)
}

// sent relays a message of the bot. first is the first one of the same send.
func (s *Sidecar) sent(m gateway.Sent, first relay.MessageID) error {
	meta := relay.Metadata{"chat_type": quote("group")}
	if first != m.ID {
		meta[metaPartOf] = quote(string(first))
	}
	if len(m.Keys) > 0 {
		list, err := json.Marshal(m.Keys)
		if err != nil {
			return err
		}
		meta["media_keys"] = list
	}
	if now := relay.MillisOf(time.Now()); m.CreateTime > 0 && now-m.CreateTime > finalAfter {
		meta[relay.MetaFinal] = fmt.Appendf(nil, "%d", now)
	}
	if m.EditOf != "" {
		meta[metaEditOf] = quote(string(m.EditOf))
	}
	_, err := s.accept(relay.Outbound{ChatID: m.ChatID, Content: m.Text, MessageID: m.ID, TS: m.CreateTime,
		ParentID: m.ParentID, RootID: m.RootID, ThreadID: m.ThreadID, MsgType: m.Type, Mentions: s.mentionsOf(m.Mentions), Metadata: meta}, s.recordLater)
	return err
}

// recordLater notes the bot's own message while the bot already has Feishu's
// answer: what has to be on disk by then is the outbox. A crash in between is
// mended by stopOwn, when the message comes back from the queue.
func (s *Sidecar) recordLater(m *relay.Message) {
	own := *m
	s.recording.Go(func() { s.recordOwn(&own) })
}

// mentionsOf is what a message's mentions say, in the relay's words: an id of
// this app's is the agent that it is known to be.
func (s *Sidecar) mentionsOf(mentions []feishu.Mention) []relay.Mention {
	var out []relay.Mention
	for _, m := range mentions {
		r := relay.Mention{Key: m.Key, Name: m.Name, OpenID: m.OpenID}
		for _, id := range m.IDs() {
			who, _ := s.book.Name(id)
			r.AgentName, r.Name = cmp.Or(r.AgentName, who.Agent), cmp.Or(r.Name, who.Name)
		}
		out = append(out, r)
	}
	return out
}

// Hearing notes when a person spoke, so that an answer which comes before the
// message stands in the transcript is counted from it.
func (h host) Hearing(m feishu.Message) {
	key := topicKey(relay.DefaultChannel, m.ChatID, m.ThreadID)
	if known, ok := h.hearing.Get(key); !ok || known < int64(m.CreateTime) {
		h.hearing.Add(key, int64(m.CreateTime))
	}
}

// Heard records a person's message in a group. It went to the bot already.
func (h host) Heard(ctx context.Context, m feishu.Message) error {
	m.Sender.Name = h.person(ctx, &m)
	return h.heard(ctx, m)
}

func (s *Sidecar) heard(ctx context.Context, m feishu.Message) error {
	s.talks.note(talk{Channel: relay.DefaultChannel, ChatID: m.ChatID, ChatType: m.ChatType, MessageID: m.ID, At: m.CreateTime})
	if m.ChatType != feishu.ChatGroup {
		return nil // a private chat never leaves its bot
	}
	_, err := s.Hear(ctx, relay.Heard{ChatID: m.ChatID, ChatType: m.ChatType, Content: m.Text(), Sender: string(m.Sender.OpenID),
		SenderID: m.Sender.OpenID, SenderName: m.Sender.Name, MessageID: m.ID, TS: m.CreateTime,
		ParentID: m.ParentID, RootID: m.RootID, ThreadID: m.ThreadID})
	return err
}

// Native stores what Feishu delivered of another bot; on disk when it returns.
func (h host) Native(ctx context.Context, m feishu.Message, streaming bool) error {
	return h.spool(ctx, m, nativeKind(m, streaming))
}

// Passed notes a message that the bot has from Feishu.
func (h host) Passed(id relay.MessageID) { h.native.passed.Add(string(id), struct{}{}) }

// Joined notes that the bot is in a chat.
func (h host) Joined(chat relay.ChatID, at relay.Millis) {
	h.members.saw(relay.DefaultChannel, chat, at)
}

// Left notes that it is no longer.
func (h host) Left(chat relay.ChatID, at relay.Millis) {
	h.members.left(relay.DefaultChannel, chat, at)
}

// Injected is a message that the bot was given by the gateway.
func (h host) Injected(id relay.MessageID) (feishu.Message, bool) { return h.door.shown.Get(id) }

// Peer returns the bot that this one was shown under an id.
func (h host) Peer(id relay.OpenID) (feishu.Bot, bool) {
	who, _ := h.book.Name(string(id))
	_, isBot := h.book.Bot(id)
	return feishu.Bot{OpenID: id, Agent: who.Agent, Name: who.Name}, isBot || who.Agent != ""
}

// spool keeps an event's message on disk until the pipeline has dealt with it:
// Feishu forgets it with our acknowledgement.
func (s *Sidecar) spool(ctx context.Context, m feishu.Message, kind string) error {
	chatType := m.ChatType
	if chatType == "" {
		chatType = feishu.ChatGroup
	}
	r := relay.Message{RelayMsgID: m.ID, Channel: relay.DefaultChannel, ChatID: m.ChatID, Content: m.Text(),
		SenderBotOpenID: m.Sender.OpenID, SenderAppID: m.Sender.AppID, SenderName: m.Sender.Name, MessageID: m.ID, TS: m.CreateTime,
		MsgType: m.Type, ParentID: m.ParentID, RootID: m.RootID, ThreadID: m.ThreadID, Mentions: s.mentionsOf(m.Mentions),
		Metadata: relay.Metadata{"chat_type": quote(chatType), metaNative: quote(kind)}}
	if kind == nativePerson {
		r.Role, r.SenderID, r.SenderBotOpenID = relay.RoleUser, m.Sender.OpenID, ""
	}
	line, err := r.Encode()
	if err != nil {
		return err
	}
	if _, err := s.native.queue.Publish(ctx, [][]byte{line}, ""); err != nil {
		return fmt.Errorf("store an event: %w", err)
	}
	return nil
}
