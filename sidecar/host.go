package sidecar

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/core"
	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/gateway"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/group"
	"feishu-relay/loop"
	"feishu-relay/relay"
)

// host is the sidecar as its gateway sees it.
type host struct{ *Sidecar }

var _ gateway.Host = host{}

// selfWait is how long the first message of a bot that never asked who it is waits for Feishu to say it: the others
// know it by its name.
const selfWait = time.Second

// finalAfter is how many ms after its ts a message that becomes final says so.
const finalAfter = 5000

// feishuChat is a chat of Feishu.
func feishuChat(chat relay.ChatID) loop.Chat { return core.ChatOf(relay.DefaultChannel, chat) }

// Sent relays what Feishu has accepted from the bot in a group, and sends what it said in a chat with an agent.
func (h host) Sent(ctx context.Context, m gateway.Sent) error {
	if h.peers != nil && peerchat.IsID(m.ChatID) {
		return h.peers.sent(ctx, m)
	}
	h.app.selfNow()
	return h.sent(ctx, m, m.ID)
}

// sent relays a message of the bot. first is the first one of the same send.
func (s *Sidecar) sent(ctx context.Context, m gateway.Sent, first relay.MessageID) error {
	if m.Type == content.TypeForward {
		m.Text = s.app.read(ctx, &m.Message).Text()
	}
	out := s.outbound(&m)
	out.ParentID, out.RootID = m.ParentID, m.RootID
	if first != m.ID {
		out.Metadata[group.MetaPartOf] = quote(string(first))
	}
	if now := relay.MillisOf(time.Now()); m.CreateTime > 0 && now-m.CreateTime > finalAfter {
		out.Metadata[relay.MetaFinal] = fmt.Appendf(nil, "%d", now)
	}
	if m.EditOf != "" {
		out.Metadata[group.MetaEditOf] = quote(string(m.EditOf))
	}
	_, err := s.Send(ctx, out)
	return err
}

// outbound is a message of the bot in the relay's words.
func (s *Sidecar) outbound(m *gateway.Sent) relay.Outbound {
	return relay.Outbound{ChatID: m.ChatID, Content: m.Text, MessageID: m.ID, TS: m.CreateTime, ThreadID: m.ThreadID,
		MsgType: m.Type, Mentions: s.app.mentionsOf(m.Mentions), Metadata: s.metadata(feishu.ChatGroup, m.Doc)}
}

// Edited tells all sidecars what a message of the bot says now: bots that have it are not given that.
func (h host) Edited(m gateway.Sent) {
	out := h.outbound(&m)
	out.Metadata[group.MetaEditOf], out.Metadata[group.MetaNotify] = quote(string(m.ID)), []byte("false")
	out.MessageID = relay.MessageID("edit:" + short(fmt.Sprint(m.ID, time.Now().UnixNano())))
	if _, err := h.Send(context.Background(), out); err != nil {
		h.problems.set("outbox", err)
	}
}

// metadata notes of what kind a chat is, and what images and files a message has.
func (s *Sidecar) metadata(chatType string, doc content.Doc) relay.Metadata {
	meta := relay.Metadata{"chat_type": quote(chatType)}
	keys := doc.Keys()
	list, err := json.Marshal(keys)
	if len(keys) > 0 {
		meta["media_keys"] = list
	}
	if err = errors.Join(err, meta.SetFiles(doc.Files())); err != nil {
		s.problems.set("files", err) // the message goes on without them
	}
	return meta
}

// quote makes a JSON string.
func quote(text string) json.RawMessage {
	data, _ := json.Marshal(text) // never fails for a string
	return data
}

// short is a text's hash, 32 characters: Feishu takes a uuid of at most 50.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// message is an event's message in the relay's words.
func (s *Sidecar) message(m *feishu.Message, doc content.Doc) *relay.Message {
	return &relay.Message{RelayMsgID: m.ID, Channel: relay.DefaultChannel, ChatID: m.ChatID, Content: doc.Text(),
		SenderName: m.Sender.Name, MessageID: m.ID, TS: m.CreateTime, MsgType: m.Type, ParentID: m.ParentID,
		RootID: m.RootID, ThreadID: m.ThreadID, Mentions: s.app.mentionsOf(m.Mentions),
		Metadata: s.metadata(cmp.Or(m.ChatType, feishu.ChatGroup), doc)}
}

// person is a person's message in an event.
func (s *Sidecar) person(m *feishu.Message) core.Hearing {
	r := s.message(m, m.Doc())
	who, _ := s.app.book.Name(string(m.Sender.OpenID)) // Feishu is asked once the bot has the message
	r.Role, r.SenderID, r.SenderName = relay.RoleUser, m.Sender.OpenID, cmp.Or(m.Sender.Name, who.Name)
	r.SenderAgentName, r.SenderBotOpenID = s.cfg.Agent, s.app.self().OpenID
	return core.Hearing{Msg: r, Type: m.Sender.Type, Union: m.Sender.UnionID}
}

// Steers implements [gateway.Hearer].
func (h host) Steers(m *feishu.Message) bool {
	why := h.core.Steers(noWait, feishuChat(m.ChatID), h.person(m).Msg)
	return m.ChatType == feishu.ChatGroup && why != relay.Pass
}

// Said implements [gateway.Hearer]: only a gateway sees what the bot says.
func (host) Said(*feishu.Message) bool { return false }

// Heard commits a person's message, and decides how it goes on to the bot. Where the disk refuses that, the bot has it
// all the same, but for what steers the group: Feishu delivers it again.
func (h host) Heard(ctx context.Context, m feishu.Message, event []byte) (p feishu.Passage, err error) {
	h.app.book.LearnMentions(m.Mentions)
	h.chats.noteTalk(talk{Channel: relay.DefaultChannel, ChatID: m.ChatID, ChatType: m.ChatType, MessageID: m.ID,
		At: m.CreateTime})
	group := m.ChatType == feishu.ChatGroup
	if h.cfg.Connector { // the bot gets its messages from here
		ctx = context.WithoutCancel(ctx) // Feishu delivers an event again that was not committed in time
		if m.Sender.Name = h.app.person(ctx, &m); group {
			h.app.read(ctx, &m)
		}
		if group && content.IsText(m.Type) && m.Text() == "" {
			return p, nil
		}
	}
	heard := h.person(&m)
	switch {
	case !group && h.cfg.Connector:
		err = h.core.GivePrivate(ctx, heard.Msg)
	case !group: // a private chat never leaves its bot
		return p, nil
	case heard.Msg.SenderName == "" && h.oneAnswers(m.ChatID): // who they last spoke to is known by their name
		heard.Msg.SenderName = h.app.person(ctx, &m)
	}
	var way core.Passage
	if group {
		way, err = h.core.HearEvent(ctx, heard, event)
	}
	switch {
	case err != nil && (h.cfg.Connector || h.core.Steers(ctx, feishuChat(m.ChatID), heard.Msg) != relay.Pass):
		p.Verdict = feishu.Refuse
	case err != nil:
	case way.Held, way.Reason != relay.Pass:
		p.Verdict = feishu.Keep
	default:
		p.Before = way.Before
	}
	return p, err
}

// oneAnswers reports whether one bot of a group answers.
func (s *Sidecar) oneAnswers(chat relay.ChatID) (is bool) {
	s.core.Group(feishuChat(chat), func(g *group.State) { is = g.Mode() == group.ModeOne })
	return is
}

// Native stores what Feishu delivered of another bot; on disk when it returns.
func (h host) Native(ctx context.Context, m feishu.Message, streaming bool) error {
	if h.cfg.Connector {
		ctx = context.WithoutCancel(ctx)
	}
	doc := h.app.read(ctx, &m)
	if content.IsText(m.Type) && doc.Text() == "" {
		h.log.Debug("an empty message is left out", keyMsg, m.ID)
		return nil
	}
	r := h.message(&m, doc)
	r.SenderBotOpenID, r.SenderAppID = m.Sender.OpenID, m.Sender.AppID
	if agent := h.copies.native(m.ID, m.Sender.OpenID); agent != "" {
		h.app.matched(m.Sender.OpenID, agent)
	}
	h.app.named(r)
	h.app.book.LearnBot(feishu.Bot{OpenID: r.SenderBotOpenID, Agent: r.SenderAgentName, AppID: r.SenderAppID,
		Name: r.SenderName})
	wait, there := waitText, h.sidecarOf(r) != ""
	switch {
	case there && streaming:
		wait = waitStreaming
	case there:
		wait = waitHeard
	case streaming || m.Type == "interactive":
		wait = waitCard
	}
	wait = min(wait, h.cfg.MaxAge/2) // beyond MaxAge it would be too old for the bot
	return h.core.HearNative(ctx, r, time.Now().Add(wait))
}

// How long a bot's message that Feishu delivered itself waits for the relay's copy of it, which has the final text
// where the native event may hold a placeholder or a card's first draft (docs/feishu.md 3.4).
const (
	waitHeard     = time.Minute      // from a bot whose sidecar is there
	waitStreaming = 10 * time.Minute // its card is still being written; Feishu ends that after as long
	waitText      = 3 * time.Second  // texts and posts of other bots
	waitCard      = time.Minute      // their cards
)

// sidecarOf is the agent whose sidecar is expected to relay m; "": none, as where it is offline, or has relayed nothing
// and given no sign of life since a message whose copy did not come.
func (s *Sidecar) sidecarOf(m *relay.Message) relay.AgentName {
	bot, _ := s.app.book.Bot(m.SenderBotOpenID)
	online, known := s.presence.online()[bot.Agent]
	since, silent := s.copies.silent.Get(bot.Agent)
	if known && !online || silent && !s.presence.seen.Load().beats[bot.Agent].After(since) {
		return ""
	}
	return bot.Agent
}

// maxCopies is how many messages are remembered that came in both ways, or in one of them.
const maxCopies = 1000

// copies matches what other bots' sidecars relay with what Feishu itself delivers.
type copies struct {
	mu     sync.Mutex
	seen   *lru.Cache[relay.MessageID, copied]    // used with mu held
	silent *lru.Cache[relay.AgentName, time.Time] // by agent: when a message came whose copy did not
}

// copied is whose a message is, as far as is known: to the relay, and to this app.
type copied struct {
	agent relay.AgentName
	bot   relay.OpenID
}

func newCopies() *copies {
	c := &copies{}
	c.seen, _ = lru.New[relay.MessageID, copied](maxCopies) // fails only for a size below 1
	c.silent, _ = lru.New[relay.AgentName, time.Time](maxCopies)
	return c
}

// came notes that a message was relayed, and returns its sender in Feishu if that is known.
func (c *copies) came(id relay.MessageID, agent relay.AgentName) relay.OpenID {
	c.silent.Remove(agent)
	return c.note(id, copied{agent: agent}).bot
}

// native notes that Feishu delivered a message, and returns its agent if that is known.
func (c *copies) native(id relay.MessageID, bot relay.OpenID) relay.AgentName {
	return c.note(id, copied{bot: bot}).agent
}

func (c *copies) note(id relay.MessageID, is copied) copied {
	c.mu.Lock()
	defer c.mu.Unlock()
	was, _ := c.seen.Get(id)
	is = copied{cmp.Or(is.agent, was.agent), cmp.Or(is.bot, was.bot)}
	c.seen.Add(id, is)
	return is
}

// Passed notes a message that the bot has from Feishu.
func (h host) Passed(id relay.MessageID) { h.passed.Add(id, struct{}{}) }

// Recalled notes that a message of a group was recalled: what is said in a private chat is nobody else's.
func (h host) Recalled(chat relay.ChatID, id relay.MessageID, _ relay.Millis) {
	of := feishuChat(chat)
	if kind := h.app.talkIn(of.Channel, chat).ChatType; chat == "" || kind == feishu.ChatP2P || !h.core.In(of) {
		return
	}
	if err := h.core.Recall(context.Background(), of, id); err != nil {
		h.problems.set("steer", err)
	}
}

// OwnReaction reports whether a reaction of the app is a sidecar's.
func (h host) OwnReaction(id relay.MessageID, emoji string) bool {
	return emoji == stopEmoji && h.core.Reacted(id)
}

// Joined notes that the bot is in a chat.
func (h host) Joined(chat relay.ChatID, at relay.Millis) { h.core.Joined(feishuChat(chat), at) }

// Left notes that it is no longer.
func (h host) Left(chat relay.ChatID, at relay.Millis) { h.core.Left(feishuChat(chat), at) }

// nameChat has Feishu asked what a group is called, once a day: groups are renamed. Nobody waits for the answer.
func (s *Sidecar) nameChat(chat relay.ChatID) { s.askChatName(noWait, chat) }

func (s *Sidecar) askChatName(ctx context.Context, chat relay.ChatID) {
	_ = s.app.book.Ask(ctx, "group "+string(chat), personDay, func(ctx context.Context) error {
		err := s.app.book.AskChat(ctx, chat, feishuAsked)
		if err == nil && s.app.book.Chat(chat).In == feishu.No {
			s.core.Left(feishuChat(chat), 0)
		}
		return err // the bot has no scope for it, most often
	})
}

// chatLives reports whether a chat is not known to be dissolved, or to be one that the bot is not in. Feishu is asked
// once a day and at the first message after the start.
func (s *Sidecar) chatLives(ctx context.Context, chat relay.ChatID) bool {
	s.askChatName(ctx, chat)
	return s.app.book.Chat(chat).In != feishu.No
}

// Injected is a message that the bot was given by the gateway, and that was not recalled.
func (h host) Injected(id relay.MessageID) (feishu.Message, bool) {
	m, ok := h.channels.gateway.shown.Get(id)
	return m, ok && !h.gone(feishuChat(m.ChatID), id)
}

// gone reports whether a message was recalled.
func (s *Sidecar) gone(of loop.Chat, id relay.MessageID) (is bool) {
	s.core.Group(of, func(g *group.State) { is = g.Gone(id) })
	return is
}

// Peer returns the bot that this one was shown under an id.
func (h host) Peer(id relay.OpenID) (feishu.Bot, bool) {
	who, _ := h.app.book.Name(string(id))
	_, isBot := h.app.book.Bot(id)
	return feishu.Bot{OpenID: id, Agent: who.Agent, Name: who.Name}, isBot || who.Agent != ""
}
