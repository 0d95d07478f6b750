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
// hexadecimal. They are derived with a random key of this folder, and a chat exists only after
// its first mail, so that no bot reaches an agent by guessing.
//
// # On disk
//
// Each message is one file, written before its call is answered, so it survives a crash. The
// newest messages are kept: [maxInChat] per chat, [maxMessages] and [maxBytes] in all. The bot's
// messages are dropped before mail while they are half of the messages or more, and mail that
// is still to be answered ([Options.Needed]) last of all.
package peerchat

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/safefile"
	"feishu-relay/internal/spool"
	"feishu-relay/relay"
)

// Bounds. Beyond them messages are dropped, as the package comment describes.
const (
	maxInChat    = 200
	maxMessages  = 2000
	maxBytes     = 32 << 20
	maxFile      = 2 << 20 // of one message: Feishu takes 150 KB of text, and JSON may need six bytes for one
	maxReactions = 50      // on a message
	// maxMail bounds the text of mail in a chat, in bytes: JSON within JSON makes at most 7 of one.
	maxMail = 128 << 10
	maxTail = 4 << 10 // of the last paragraph of mail, which is kept when the mail is cut
)

const (
	filePrefix = "peer-"
	keyFile    = "peer.key"
	keyBytes   = 32
)

// Message is a message of such a chat.
type Message struct {
	ID        relay.MessageID `json:"id"`
	Chat      relay.ChatID    `json:"chat"`
	Peer      relay.AgentName `json:"peer"` // the other member of the chat
	Own       bool            `json:"own"`  // the bot said it
	Type      string          `json:"type"`
	Content   string          `json:"content"`
	Parent    relay.MessageID `json:"parent,omitempty"`
	Root      relay.MessageID `json:"root,omitempty"`
	Card      string          `json:"card,omitempty"` // of CardKit
	UUID      string          `json:"uuid,omitempty"` // of the send
	Created   relay.Millis    `json:"created"`
	Updated   relay.Millis    `json:"updated"`
	Deleted   bool            `json:"deleted,omitempty"`
	Reactions []Reaction      `json:"reactions,omitempty"`
	// Mail is what the sidecar keeps with it; it is not looked at here.
	Mail json.RawMessage `json:"mail,omitempty"`
}

// Reaction is an emoji that the bot put below a message.
type Reaction struct {
	ID    string       `json:"id"`
	Emoji string       `json:"emoji"`
	At    relay.Millis `json:"at"`
}

// Options of the chats. Self is required.
type Options struct {
	Root *os.Root // for files with the prefix "peer"; nil: in memory only
	Self func() feishu.Self
	// SenderType is the type of the other member: user, bot or app.
	SenderType string
	// Busy is called when the bot shows in a chat that it works: by a reaction, a placeholder, a card, an edit.
	// about is the message that it reacted to, or that it wrote. It returns at once. May be nil.
	Busy func(about Message)
	// Needed reports whether mail is still to be answered: it is not dropped for newer messages. It is called with a
	// lock held. May be nil.
	Needed func(mail Message) bool
	Closed bool              // the chats cannot be used yet: each call is answered with [TooMany]
	Trace  func(step string) // a crash behind a step matters; nil: not called
	Logger *slog.Logger      // nil: discard
}

// Chats are the chats of one bot. The methods are safe for concurrent use.
type Chats struct {
	opts  Options
	key   []byte
	files *spool.Spool[Message]

	// disk is held for a change, from the look at what is known to the end of its files, and locked before mu. What is
	// below is changed with both held and read with one: who only reads does not wait for the disk.
	disk sync.Mutex

	mu    sync.Mutex
	last  relay.Millis // the newest Created
	bytes int
	all   map[relay.MessageID]*Message
	chats map[relay.ChatID][]*Message // the oldest first
	cards map[string]relay.MessageID
}

// Open reads what an earlier run left.
func Open(o Options) (*Chats, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Busy == nil {
		o.Busy = func(Message) {}
	}
	if o.Needed == nil {
		o.Needed = func(Message) bool { return false }
	}
	if o.Trace == nil {
		o.Trace = func(string) {}
	}
	c := &Chats{opts: o, all: map[relay.MessageID]*Message{}, chats: map[relay.ChatID][]*Message{},
		cards: map[string]relay.MessageID{}}
	c.files = spool.New[Message](o.Root, spool.Options{Prefix: filePrefix, Suffix: ".json",
		MaxFile: maxFile, Logger: o.Logger})
	var err error
	if c.key, err = readKey(o.Root, o.Logger); err != nil {
		return nil, fmt.Errorf("the key of the chats with agents: %w", err)
	}
	var left []*Message
	others := 0 // messages of another key
	err = c.files.Load(func(name string, m Message) error {
		if string(m.ID) != name {
			return errors.New("its name is not that of its message")
		}
		if m.Chat != c.Chat(m.Peer) {
			others++
			return errors.New("it was made with another " + keyFile)
		}
		left = append(left, &m)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("the chats with agents: %w", err)
	}
	if others > 0 {
		o.Logger.Warn("the key of the chats with agents is another than before; their old messages are quarantined: put the "+
			"key back, remove .broken from the files' names and restart, or delete the files",
			"folder", o.Root.Name(), "file", keyFile, "messages", others)
	}
	slices.SortFunc(left, func(a, b *Message) int { return cmp.Compare(a.Created, b.Created) })
	for _, m := range left {
		c.enter(m)
	}
	return c, nil
}

// readKey returns the key that ids are derived with: a new one at first, and where the file holds none.
func readKey(root *os.Root, log *slog.Logger) ([]byte, error) {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	if root == nil {
		return key, nil
	}
	data, err := safefile.ReadFile(root, keyFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		known, err := hex.DecodeString(strings.TrimSpace(string(data)))
		if err == nil && len(known) == keyBytes {
			return known, nil
		}
		log.Warn("the key of the chats with agents cannot be read; a new key gives the chats new ids",
			"folder", root.Name(), "file", keyFile)
	}
	return key, safefile.Replace(root, keyFile, []byte(hex.EncodeToString(key)+"\n"))
}

// Chat is the id of the chat with an agent.
func (c *Chats) Chat(peer relay.AgentName) relay.ChatID {
	return relay.ChatID("oc_" + c.id("chat", string(peer)))
}

// User is the open_id of an agent in its chat.
func (c *Chats) User(peer relay.AgentName) relay.OpenID {
	return relay.OpenID("ou_" + c.id("user", string(peer)))
}

// Mail is the id of a message of an agent: the same for the same name.
func (c *Chats) Mail(peer relay.AgentName, name string) relay.MessageID {
	return relay.MessageID("om_" + c.id("letter", string(peer), name))
}

func (c *Chats) id(of ...string) string {
	mac := hmac.New(sha256.New, c.key)
	for _, part := range of {
		fmt.Fprintf(mac, "%d:%s", len(part), part)
	}
	return mark + hex.EncodeToString(mac.Sum(nil)[:idBytes])
}

// Receive keeps what an agent wrote, under a name of its own, and returns it; a repeat changes nothing. It is on
// disk when it returns. A text that is too long is cut, with a note; its last paragraph stays.
func (c *Chats) Receive(peer relay.AgentName, name, text string, mail json.RawMessage) (Message, error) {
	content, err := relay.Marshal(map[string]string{"text": cutMail(text)})
	if err != nil {
		return Message{}, err
	}
	c.disk.Lock()
	defer c.disk.Unlock()
	id := c.Mail(peer, name)
	if known := c.all[id]; known != nil {
		return *known, nil
	}
	now := c.now()
	m := Message{ID: id, Chat: c.Chat(peer), Peer: peer, Type: "text", Content: string(content), Created: now,
		Updated: now, Mail: mail}
	return m, c.keep(&m)
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

// now is the time of a new message, later than that of any other: their order is the same after a restart.
// disk is held.
func (c *Chats) now() relay.Millis {
	return max(relay.MillisOf(time.Now()), c.last+1)
}

// Keep keeps what the sidecar knows of a message. It is on disk when it returns.
func (c *Chats) Keep(id relay.MessageID, mail json.RawMessage) error {
	c.disk.Lock()
	defer c.disk.Unlock()
	m := c.all[id]
	if m == nil {
		return fmt.Errorf("message %s: %w", id, fs.ErrNotExist)
	}
	changed := *m
	changed.Mail = mail
	return c.replace(m, changed)
}

// Message finds a message.
func (c *Chats) Message(id relay.MessageID) (m Message, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.all[id]; found != nil {
		return *found, true
	}
	return m, false
}

// Messages are those of a chat, the oldest first.
func (c *Chats) Messages(chat relay.ChatID) []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Message, 0, len(c.chats[chat]))
	for _, m := range c.chats[chat] {
		out = append(out, *m)
	}
	return out
}

// List are the ids of all chats, in order.
func (c *Chats) List() []relay.ChatID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.chats))
}

// WithCard finds the message that shows a card of CardKit.
func (c *Chats) WithCard(card string) (Message, bool) {
	c.mu.Lock()
	id := c.cards[card]
	c.mu.Unlock()
	return c.Message(id)
}

// keep puts a new message on disk and in its chat. disk is held, here and in replace and enter, and mu is not.
func (c *Chats) keep(m *Message) error {
	err := c.files.Save(string(m.ID), *m)
	if err == nil {
		c.enter(m)
	}
	return err
}

// enter puts a message that is on disk in its chat, and forgets others where there are too many.
func (c *Chats) enter(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, m.Created)
	c.all[m.ID] = m
	c.chats[m.Chat] = append(c.chats[m.Chat], m)
	c.bytes += m.size()
	if m.Card != "" {
		c.cards[m.Card] = m.ID
	}
	if len(c.chats[m.Chat]) > maxInChat {
		c.forget(c.least(slices.Values(c.chats[m.Chat]), m))
	}
	for len(c.all) > maxMessages || c.bytes > maxBytes && len(c.all) > 1 {
		c.forget(c.least(maps.Values(c.all), m))
	}
}

// least is the message that is forgotten first, of two or more: the oldest, and of those of the bot as long as they
// are half of all or more. newest is not it, nor is mail that is needed, unless all is.
func (c *Chats) least(all iter.Seq[*Message], newest *Message) *Message {
	messages := slices.DeleteFunc(slices.Collect(all), func(m *Message) bool { return m == newest })
	own := 0
	for _, m := range messages {
		if m.Own {
			own++
		}
	}
	rank := func(m *Message) int { // of the kinds
		switch {
		case m.Own == (2*own >= len(messages)) && (m.Own || !c.opts.Needed(*m)):
			return 0
		case m.Own || !c.opts.Needed(*m):
			return 1
		}
		return 2
	}
	return slices.MinFunc(messages, func(a, b *Message) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Created, b.Created))
	})
}

// replace makes changed what is known of m, once the disk has it.
func (c *Chats) replace(m *Message, changed Message) error {
	if err := c.files.Save(string(m.ID), changed); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += changed.size() - m.size()
	*m = changed
	if m.Card != "" {
		c.cards[m.Card] = m.ID
	}
	return nil
}

// forget drops m. mu is held.
func (c *Chats) forget(m *Message) {
	delete(c.all, m.ID)
	if c.cards[m.Card] == m.ID {
		delete(c.cards, m.Card)
	}
	c.bytes -= m.size()
	if rest := slices.DeleteFunc(c.chats[m.Chat], func(o *Message) bool { return o == m }); len(rest) > 0 {
		c.chats[m.Chat] = rest
	} else {
		delete(c.chats, m.Chat)
	}
	c.files.Remove(string(m.ID))
}

// size is about how many bytes m takes in memory.
func (m *Message) size() int {
	return 512 + len(m.Content) + len(m.Card) + len(m.Mail) + 100*len(m.Reactions)
}

// Text is what a person reads in it; "" of a card of CardKit.
func (m *Message) Text() string { return (&feishu.Message{Type: m.Type, Content: m.Content}).Text() }
