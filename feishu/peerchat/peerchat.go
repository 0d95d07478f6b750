// Package peerchat simulates private chats in Feishu in which a bot that knows only Feishu gets
// the mail of other agents and answers it. There is one chat for each agent that has written.
//
// # What it answers
//
// The gateway passes a call to [Chats.Answer] if it names such a chat, a message in it, its
// other member ([Named]) or a card that was sent there. The call is answered in Feishu's format
// (docs/feishu.md 5) and never reaches Feishu: a read from memory; of the others, what has a
// content is a message of the bot, and everything else is accepted. This package does not decide
// what an answer means for the other agent: the gateway reads it like Feishu's.
//
// # Ids
//
// The ids have Feishu's prefixes followed by "relaypeer", which no id of Feishu has: those are
// hexadecimal. They are derived with a random key, and a chat exists only after its first mail,
// so that no bot reaches an agent by guessing.
//
// # On disk
//
// Each message is one record of the store, written before its call is answered, so it survives a
// crash. The newest messages are kept: [maxInChat] per chat, [maxBytes] in all.
// Mail that is still to be answered ([Options.Needed]) is dropped last.
package peerchat

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Bounds. Beyond them messages are dropped, as the package comment describes.
const (
	maxInChat = 200
	maxBytes  = 16 << 20
	// maxMail bounds the text of mail in a chat, in bytes: JSON within JSON makes at most 7 of one.
	maxMail = 128 << 10
	maxTail = 4 << 10 // of the last paragraph of mail, which is kept when the mail is cut
)

// keyRecord is the key of the record with the key that ids are derived with.
const keyRecord = "key"

// Message is a message of such a chat.
type Message struct {
	ID      relay.MessageID `json:"id"`
	Chat    relay.ChatID    `json:"chat"`
	Peer    relay.AgentName `json:"peer"` // the other member of the chat
	Own     bool            `json:"own"`  // the bot said it
	Type    string          `json:"type"`
	Content string          `json:"content"`
	Parent  relay.MessageID `json:"parent,omitempty"`
	Root    relay.MessageID `json:"root,omitempty"`
	Card    string          `json:"card,omitempty"` // of CardKit
	UUID    string          `json:"uuid,omitempty"` // of the send
	Created relay.Millis    `json:"created"`        // of no two messages the same
	Updated relay.Millis    `json:"updated"`
	Deleted bool            `json:"deleted,omitempty"`
	// Mail is what the sidecar keeps with it; it is not looked at here.
	Mail json.RawMessage `json:"mail,omitempty"`
}

// Options of the chats. All but the store are required.
type Options struct {
	Store *feishu.Store // nil: in memory only
	Self  func() feishu.Self
	// SenderType is the type of the other member: user, bot or app.
	SenderType string
	// Needed reports whether mail is still to be answered: it is not dropped for newer messages. It is called with a
	// lock held.
	Needed func(mail Message) bool
	Trace  func(step string) // a crash behind a step matters
	Logger *slog.Logger
}

// Chats are the chats of one bot. The methods are safe for concurrent use.
type Chats struct {
	opts Options
	key  []byte

	mu   sync.Mutex
	last relay.Millis // the newest Created
	all  []*Message   // the oldest first
}

// Open reads what an earlier run left.
func Open(o Options) (*Chats, error) {
	c := &Chats{opts: o}
	err := o.Store.Each(func(kind, key string, value json.RawMessage) {
		var m Message
		switch {
		case kind != feishu.KindPeer:
		case key == keyRecord:
			_ = json.Unmarshal(value, &c.key) // without it there is a new one
		case json.Unmarshal(value, &m) == nil:
			c.all = append(c.all, &m)
		}
	})
	if err == nil && len(c.key) == 0 {
		c.key = []byte(rand.Text())
		err = o.Store.Put(feishu.KindPeer, keyRecord, c.key)
	}
	if err != nil {
		return nil, fmt.Errorf("the chats with agents: %w", err)
	}
	slices.SortFunc(c.all, func(a, b *Message) int { return cmp.Compare(a.Created, b.Created) })
	for _, m := range c.all {
		c.last = m.Created
	}
	return c, nil
}

// Chat is the id of the chat with an agent.
func (c *Chats) Chat(peer relay.AgentName) relay.ChatID {
	return relay.ChatID("oc_" + c.id("chat", string(peer)))
}

// User is the open_id of an agent in its chat.
func (c *Chats) User(peer relay.AgentName) relay.OpenID {
	return relay.OpenID("ou_" + c.id("user", string(peer)))
}

// id derives the part of an id that is behind Feishu's prefix.
func (c *Chats) id(of ...string) string {
	mac := hmac.New(sha256.New, c.key)
	for _, part := range of {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	return mark + hex.EncodeToString(mac.Sum(nil)[:16])
}

// Receive keeps what an agent wrote, under a name of its own, and returns it; a repeat changes nothing. It is on
// disk when it returns. A text that is too long is cut, with a note; its last paragraph stays.
func (c *Chats) Receive(peer relay.AgentName, name, text string, mail json.RawMessage) (Message, error) {
	m := Message{ID: relay.MessageID("om_" + c.id("letter", string(peer), name)), Chat: c.Chat(peer), Peer: peer,
		Type: "text", Content: feishu.TextContent(cutMail(text)), Mail: mail}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.find(m.ID); known != nil {
		return *known, nil
	}
	return m, c.add(&m)
}

// cutMail shortens a text to maxMail.
func cutMail(text string) string {
	if len(text) <= maxMail {
		return text
	}
	last := ""
	if at := strings.LastIndex(text, "\n\n"); at >= 0 && len(text)-at <= maxTail {
		text, last = text[:at], text[at:]
	}
	note := fmt.Sprintf("\n[… cut here: it has %d bytes]", len(text)+len(last))
	return runes.Cut(text, maxMail-len(note)-len(last)) + note + last
}

// Keep keeps what the sidecar knows of a message. It is on disk when it returns.
func (c *Chats) Keep(id relay.MessageID, mail json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.find(id)
	if m == nil {
		return fmt.Errorf("message %s: %w", id, fs.ErrNotExist)
	}
	changed := *m
	changed.Mail = mail
	return c.replace(m, changed)
}

// Message finds a message.
func (c *Chats) Message(id relay.MessageID) (m Message, ok bool) {
	return c.first(func(m *Message) bool { return m.ID == id })
}

// WithCard finds the message that shows a card of CardKit.
func (c *Chats) WithCard(card string) (Message, bool) {
	return c.first(func(m *Message) bool { return card != "" && m.Card == card })
}

func (c *Chats) first(matches func(*Message) bool) (m Message, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.all, matches); i >= 0 {
		return *c.all[i], true
	}
	return m, false
}

// find is the message with an id; nil if there is none. mu is held, here and in what follows up to replace.
func (c *Chats) find(id relay.MessageID) *Message {
	i := slices.IndexFunc(c.all, func(m *Message) bool { return m.ID == id })
	if i < 0 {
		return nil
	}
	return c.all[i]
}

// in are the messages of a chat, the oldest first.
func (c *Chats) in(chat relay.ChatID) (list []*Message) {
	for _, m := range c.all {
		if m.Chat == chat {
			list = append(list, m)
		}
	}
	return list
}

// add puts a new message on disk and in its chat, and drops others where there are too many. It sets its time, which is
// later than that of any other.
func (c *Chats) add(m *Message) error {
	m.Created = max(relay.MillisOf(time.Now()), c.last+1)
	m.Updated = m.Created
	if err := c.opts.Store.Put(feishu.KindPeer, string(m.ID), m); err != nil {
		return err
	}
	c.last, c.all = m.Created, append(c.all, m)
	bytes := 0
	for _, m := range c.all {
		bytes += m.size()
	}
	for bytes > maxBytes && len(c.all) > 1 {
		bytes -= c.drop(c.all)
	}
	if all := c.in(m.Chat); len(all) > maxInChat {
		c.drop(all)
	}
	return nil
}

// drop forgets the oldest of some messages that is not needed, but never the newest, and returns its size.
func (c *Chats) drop(list []*Message) int {
	older := list[:len(list)-1]
	m := older[max(0, slices.IndexFunc(older, func(m *Message) bool { return m.Own || !c.opts.Needed(*m) }))]
	c.all = slices.DeleteFunc(c.all, func(o *Message) bool { return o == m })
	_ = c.opts.Store.Put(feishu.KindPeer, string(m.ID), nil) // or it comes back with the next start, and is dropped then
	return m.size()
}

// replace makes changed what is known of m, once the disk has it.
func (c *Chats) replace(m *Message, changed Message) error {
	err := c.opts.Store.Put(feishu.KindPeer, string(m.ID), &changed)
	if err == nil {
		*m = changed
	}
	return err
}

// Messages are those of a chat, the oldest first.
func (c *Chats) Messages(chat relay.ChatID) []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Message{}
	for _, m := range c.in(chat) {
		out = append(out, *m)
	}
	return out
}

// Undecided are the messages of the bot with which the sidecar keeps nothing yet, the oldest first.
func (c *Chats) Undecided() (list []Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.all {
		if m.Own && m.Mail == nil && !m.Deleted {
			list = append(list, *m)
		}
	}
	return list
}

// size is about how many bytes m takes in memory.
func (m *Message) size() int { return 512 + len(m.Content) + len(m.Card) + len(m.Mail) }

// Text is what a person reads in it; "" of a card of CardKit.
func (m *Message) Text() string { return (&feishu.Message{Type: m.Type, Content: m.Content}).Text() }
