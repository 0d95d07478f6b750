package feishu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"feishu-relay/internal/jsontree"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// Bounds of a book; beyond them the entry that was unused for longest is
// removed, and learned again when it occurs.
const (
	maxBookBots  = 1_000
	maxBookChats = 10_000
	maxBookNames = 10_000
)

// Self is the app's own bot.
type Self struct {
	AppID  string       `json:"app_id,omitempty"`
	Name   string       `json:"name,omitempty"`
	OpenID relay.OpenID `json:"open_id,omitempty"`
	Tenant string       `json:"tenant_key,omitempty"`
}

// Membership is whether the bot is in a chat.
type Membership int

// The values of a Membership.
const (
	Unknown Membership = iota
	Yes
	No
)

// Chat is what is known of a chat. The zero value of a field means unknown.
type Chat struct {
	ID    relay.ChatID `json:"id"`
	Kind  string       `json:"kind,omitempty"`  // group, p2p
	Topic bool         `json:"topic,omitempty"` // a group of topics; known where Kind came from Feishu's answer
	Name  string       `json:"name,omitempty"`
	In    Membership   `json:"in,omitempty"`
	Asked time.Time    `json:"asked,omitzero"` // when Feishu was last asked

	Tenant string `json:"-"` // its tenant_key, in Feishu's answer
}

// Book is the directory of what this app knows: itself, the bots beside it, the names behind
// ids, and its chats. It is kept in one file over restarts, and is safe for concurrent use. Make one with
// [OpenBook].
type Book struct {
	root *os.Root // nil: in memory only
	name string   // of the file
	log  *slog.Logger

	disk   sync.Mutex // held while the file is written; taken before mu
	failed bool       // the last write failed, which was logged; guarded by disk

	mu      sync.Mutex
	self    Self                         // guarded by mu
	bots    []Bot                        // guarded by mu; oldest first
	chats   *lru.LRU[relay.ChatID, Chat] // guarded by mu
	names   *lru.LRU[string, Who]        // by open_id, union_id, user_id or app_id; guarded by mu
	version uint64                       // guarded by mu
	renamed uint64                       // guarded by mu
	unsaved bool                         // guarded by mu
	saver   *time.Timer                  // saves the book; nil: in memory only, or closed; guarded by mu
}

// OpenBook opens the book in the file name below root. It never fails: an unreadable or
// invalid file is renamed to name.broken, which is logged, and what was in it is learned
// again. Without a root the book is kept in memory only.
func OpenBook(root *os.Root, name string, log *slog.Logger) *Book {
	b := &Book{root: root, name: name, log: cmp.Or(log, slog.New(slog.DiscardHandler))}
	b.chats, _ = lru.NewLRU[relay.ChatID, Chat](maxBookChats, nil) // fails only for a size below 1
	b.names, _ = lru.NewLRU[string, Who](maxBookNames, nil)
	if root == nil {
		return b
	}
	if err := b.load(); err != nil {
		kept := name + ".broken"
		if root.Rename(name, kept) != nil {
			kept = ""
		}
		b.log.Warn("the stored ids of bots and chats are invalid; they are learned again", "file", name, "error", err,
			"kept", kept)
	}
	b.unsaved = false
	b.saver = time.AfterFunc(bookDelay, func() { _ = b.Flush() }) // Flush logs its error
	b.saver.Stop()
	return b
}

// Self returns what is known of the own bot.
func (b *Book) Self() Self {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.self
}

// LearnSelf sets the fields that s has. It reports whether anything changed;
// another app than the known one is ignored.
func (b *Book) LearnSelf(s Self) (changed bool) {
	if checkIDs("", s.AppID, "", string(s.OpenID), "", s.Tenant) != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.AppID != "" && b.self.AppID != "" && s.AppID != b.self.AppID {
		return false
	}
	now := Self{AppID: cmp.Or(s.AppID, b.self.AppID), Name: cmp.Or(bounded(s.Name), b.self.Name),
		OpenID: cmp.Or(s.OpenID, b.self.OpenID), Tenant: cmp.Or(s.Tenant, b.self.Tenant)}
	if now == b.self {
		return false
	}
	b.self = now
	b.bots = slices.DeleteFunc(b.bots, b.isSelf)
	b.changed()
	return true
}

// isSelf reports whether bot is the own one. The caller holds mu.
func (b *Book) isSelf(bot Bot) bool {
	return bot.OpenID != "" && bot.OpenID == b.self.OpenID || bot.AppID != "" && bot.AppID == b.self.AppID
}

// LearnBot sets the fields that bot has on the bot with its open_id, else
// its app id, else its agent name, or adds it. The app's own
// bot, and one without any of these, is ignored.
func (b *Book) LearnBot(bot Bot) {
	bot.Name = bounded(bot.Name)
	if checkIDs("", string(bot.OpenID), "", bot.AppID, "", string(bot.Agent)) != nil ||
		bot.OpenID == "" && bot.AppID == "" && bot.Agent == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isSelf(bot) {
		return
	}
	now := bot
	old, ok := b.find(
		func(o Bot) bool { return same(o.OpenID, bot.OpenID) },
		func(o Bot) bool { return same(o.AppID, bot.AppID) },
		func(o Bot) bool { return same(o.Agent, bot.Agent) && agree(o, bot) })
	if ok {
		now = overlay(old, bot)
		b.bots = slices.DeleteFunc(b.bots, func(o Bot) bool { return o == old })
		if now == old {
			b.bots = append(b.bots, now) // seen again
			return
		}
		if old.Name != "" && now.Name != old.Name || old.OpenID != "" && now.OpenID != old.OpenID {
			b.renamed++
		}
	}
	// An id belongs to one bot: another entry with the id is the same bot, or
	// outdated.
	rest := b.bots[:0]
	for _, other := range b.bots {
		if same(other.OpenID, now.OpenID) || same(other.AppID, now.AppID) || same(other.Agent, now.Agent) {
			if agree(other, now) {
				now = overlay(other, now)
				continue
			}
			other = without(other, now)
			if other.OpenID == "" && other.AppID == "" && other.Agent == "" {
				continue
			}
		}
		rest = append(rest, other)
	}
	clear(b.bots[len(rest):])
	b.bots = append(rest, now)
	if over := len(b.bots) - maxBookBots; over > 0 {
		b.bots = slices.Delete(b.bots, 0, over)
	}
	b.changed()
}

// find returns the first bot that matches the first of some conditions that any bot matches. The caller holds mu.
func (b *Book) find(conditions ...func(Bot) bool) (bot Bot, ok bool) {
	for _, matches := range conditions {
		if i := slices.IndexFunc(b.bots, matches); i >= 0 {
			return b.bots[i], true
		}
	}
	return Bot{}, false
}

func same[T ~string](a, b T) bool { return a != "" && a == b }

// agree reports whether a and b can be one bot: no id of theirs differs.
func agree(a, b Bot) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return !differ(string(a.OpenID), string(b.OpenID)) && !differ(a.AppID, b.AppID) &&
		!differ(string(a.Agent), string(b.Agent))
}

// overlay returns old with the fields that bot has.
func overlay(old, bot Bot) Bot {
	return Bot{OpenID: cmp.Or(bot.OpenID, old.OpenID), AppID: cmp.Or(bot.AppID, old.AppID),
		Name: cmp.Or(bot.Name, old.Name), Agent: cmp.Or(bot.Agent, old.Agent)}
}

// without returns bot without the ids of other.
func without(bot, other Bot) Bot {
	if bot.OpenID == other.OpenID {
		bot.OpenID = ""
	}
	if bot.AppID == other.AppID {
		bot.AppID = ""
	}
	if bot.Agent == other.Agent {
		bot.Agent = ""
	}
	return bot
}

// Bot returns the bot with that open_id as this app sees it, or with that app id.
func (b *Book) Bot(id relay.OpenID) (Bot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.find(func(o Bot) bool { return same(o.OpenID, id) }, func(o Bot) bool { return same(o.AppID, string(id)) })
}

// Agent returns the bot of an agent on the relay: the one with
// that name, else the one with the app id, else the only known bot with
// the bot's name. A bot without an open_id is not found.
func (b *Book) Agent(name relay.AgentName, appID, botName string) (Bot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bot, ok := b.find(
		func(o Bot) bool { return o.OpenID != "" && same(o.Agent, name) },
		func(o Bot) bool { return o.OpenID != "" && same(o.AppID, appID) })
	if ok {
		return bot, true
	}
	botName = strings.TrimSpace(botName)
	var found []Bot
	for _, o := range b.bots {
		if botName == "" || strings.TrimSpace(o.Name) != botName {
			continue
		}
		if o.OpenID == "" && (same(o.Agent, name) || same(o.AppID, appID)) {
			continue // the agent itself, whose open_id is unknown
		}
		found = append(found, o)
	}
	if len(found) != 1 || found[0].OpenID == "" || !agree(found[0], Bot{AppID: appID, Agent: name}) {
		return Bot{}, false
	}
	return found[0], true
}

// LearnChatBots learns the bots of a chat. An id of another bot with the name of one of them is forgotten: a bot that
// was removed and added has a new one.
func (b *Book) LearnChatBots(bots []Bot) {
	b.forget(func(o Bot) bool {
		return slices.ContainsFunc(bots, func(n Bot) bool { return same(bounded(n.Name), o.Name) }) &&
			!slices.ContainsFunc(bots, func(n Bot) bool { return n.OpenID == o.OpenID })
	})
	for _, bot := range bots {
		b.LearnBot(bot)
	}
}

// Added learns that the app of an agent, whose bot has a name, sees its own bot under own. It reports whether that has
// changed: then the app was removed and added, and the bot's id is forgotten.
func (b *Book) Added(agent relay.AgentName, name string, own relay.OpenID) bool {
	key := "own/" + string(agent) // among the names, since it is no id of this app's
	was, _ := b.Name(key)
	if own == "" || was.Name == string(own) {
		return false
	}
	b.LearnName(key, Who{Name: string(own)})
	if was.Name == "" {
		return false
	}
	b.forget(func(o Bot) bool { return o.Agent == agent || o.Agent == "" && same(o.Name, bounded(name)) })
	return true
}

// forget forgets the open_ids of the bots that match.
func (b *Book) forget(matches func(Bot) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.bots {
		if o.OpenID != "" && matches(o) {
			b.bots[i].OpenID = ""
			b.renamed++
			b.changed()
		}
	}
	b.bots = slices.DeleteFunc(b.bots, func(o Bot) bool { return o.OpenID == "" && o.AppID == "" && o.Agent == "" })
}

// Bots returns all known bots, the last seen at the end.
func (b *Book) Bots() []Bot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.bots)
}

// Version grows with every change except those of names alone.
func (b *Book) Version() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// Renamed grows when a known bot has another name or open_id.
func (b *Book) Renamed() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.renamed
}

// changed records a change other than one of a name alone. The caller holds mu.
func (b *Book) changed() {
	b.version++
	b.save()
}

// save saves the book after bookDelay. The caller holds mu.
func (b *Book) save() {
	if !b.unsaved && b.saver != nil {
		b.saver.Reset(bookDelay)
	}
	b.unsaved = true
}

// bounded returns name in one line, cut to the length of an identifier.
func bounded(name string) string {
	return strings.ToValidUTF8(runes.Cut(strings.TrimSpace(runes.OneLine(name)), relay.MaxID), "")
}

// Who is the person or bot of an id. Either field may be empty.
type Who struct {
	Name  string          `json:"name,omitempty"`
	Agent relay.AgentName `json:"agent_name,omitempty"` // of a bot that this app saw under the id
}

// LearnName sets the fields that w has for an id: an open_id, union_id, user_id
// or app_id, of a person or a bot, or a [StandIn].
func (b *Book) LearnName(id string, w Who) {
	w.Name = bounded(w.Name)
	if id == "" || w == (Who{}) || checkIDs("", id, "", string(w.Agent)) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, _ := b.names.Get(id)
	now := Who{Name: cmp.Or(w.Name, old.Name), Agent: cmp.Or(w.Agent, old.Agent)}
	b.names.Add(id, now)
	if now != old {
		b.save()
	}
}

// Name returns the person or bot of an id; false if it is unknown.
func (b *Book) Name(id string) (Who, bool) {
	bot, _ := b.Bot(relay.OpenID(id))
	b.mu.Lock()
	defer b.mu.Unlock()
	w, _ := b.names.Peek(id)
	w = Who{Name: cmp.Or(bot.Name, w.Name), Agent: cmp.Or(bot.Agent, w.Agent)}
	return w, w != Who{}
}

// LearnMentions learns the names of those that a message mentions, and the bots
// among them.
func (b *Book) LearnMentions(mentions []Mention) {
	for _, m := range mentions {
		if self := b.Self(); same(m.OpenID, self.OpenID) {
			b.LearnSelf(Self{Name: m.Name})
		}
		_, known := b.Bot(m.OpenID)
		if m.Type == SenderBot || m.AppID != "" || known {
			b.LearnBot(Bot{OpenID: m.OpenID, AppID: m.AppID, Name: m.Name})
		}
		for _, id := range m.IDs() {
			b.LearnName(id, Who{Name: m.Name})
		}
	}
}

// Chat returns what is known of a chat; for an unknown one only its id is set.
func (b *Book) Chat(id relay.ChatID) Chat {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, _ := b.chats.Peek(id)
	c.ID = id
	return c
}

// SawChat records that the bot is in a chat: an event came from it, or Feishu accepted
// a message for it. kind is group or p2p; other values are ignored.
func (b *Book) SawChat(id relay.ChatID, kind string) {
	b.update(id, func(c *Chat) {
		c.In = Yes
		if kind == ChatGroup || kind == ChatP2P {
			c.Kind = kind
		}
	})
}

// LeftChat records that the bot is no longer in a chat.
func (b *Book) LeftChat(id relay.ChatID) {
	b.update(id, func(c *Chat) { c.In = No })
}

// SetChat sets the fields that chat has.
func (b *Book) SetChat(chat Chat) {
	b.update(chat.ID, func(c *Chat) {
		if chat.Kind != "" {
			c.Kind, c.Topic = chat.Kind, chat.Topic
		}
		c.Name = cmp.Or(bounded(chat.Name), c.Name)
		c.In = cmp.Or(chat.In, c.In)
		if !chat.Asked.IsZero() {
			c.Asked = chat.Asked.UTC().Round(0)
		}
	})
}

func (b *Book) update(id relay.ChatID, change func(*Chat)) {
	if id == "" || relay.CheckID(string(id)) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, _ := b.chats.Peek(id)
	now := old
	now.ID = id
	change(&now)
	b.chats.Add(id, now)
	if now != old {
		b.changed()
	}
}

const (
	// bookDelay is how long changes are gathered before they are written.
	bookDelay = 200 * time.Millisecond
	// bookRetry is the pause after a failed write.
	bookRetry = 10 * time.Second
)

// storedBook is the file's content.
type storedBook struct {
	Self  Self         `json:"self"`
	Bots  []Bot        `json:"bots"`
	Chats []Chat       `json:"chats"`
	Names []storedName `json:"names,omitempty"` // the newest last
}

type storedName struct {
	ID string `json:"id"`
	Who
}

// load reads the file, if there is one.
func (b *Book) load() error {
	data, err := safefile.ReadFile(b.root, b.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var stored storedBook
	if err := json.Unmarshal(data, &stored); err != nil {
		return jsontree.WithoutText(err)
	}
	b.LearnSelf(stored.Self)
	for _, bot := range stored.Bots {
		b.LearnBot(bot)
	}
	for _, chat := range stored.Chats {
		b.SetChat(chat)
	}
	for _, n := range stored.Names {
		b.LearnName(n.ID, n.Who)
	}
	return nil
}

// Flush writes the book if it changed since it was last written.
func (b *Book) Flush() error {
	b.disk.Lock()
	defer b.disk.Unlock()
	data, err := b.changes()
	if data == nil && err == nil {
		return nil
	}
	if err == nil {
		err = safefile.ReplaceFast(b.root, b.name, data)
	}
	if err == nil {
		b.failed = false
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsaved = true
	if b.saver != nil {
		b.saver.Reset(bookRetry)
	}
	if !b.failed {
		b.failed = true
		b.log.Warn("ids of bots and chats cannot be stored; kept in memory for now", "file", b.name, "error", err)
	}
	return fmt.Errorf("write %s: %w", b.name, err)
}

// changes returns the book to be written; nil if nothing changed.
func (b *Book) changes() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.root == nil || !b.unsaved {
		return nil, nil
	}
	b.unsaved = false
	names := make([]storedName, 0, b.names.Len())
	for _, id := range b.names.Keys() {
		who, _ := b.names.Peek(id)
		names = append(names, storedName{id, who})
	}
	return json.Marshal(storedBook{Self: b.self, Bots: b.bots, Chats: b.chats.Values(), Names: names})
}

// Close is [Book.Flush]. What changes later is only written by another Flush.
// It may be called more than once.
func (b *Book) Close() error {
	b.mu.Lock()
	if b.saver != nil {
		b.saver.Stop()
		b.saver = nil
	}
	b.mu.Unlock()
	return b.Flush()
}
