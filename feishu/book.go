package feishu

import (
	"cmp"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"feishu-relay/relay"
)

// Bounds of a book; beyond them the entry that was not seen for longest is
// forgotten, and learned again when it is seen.
const (
	maxBookBots  = 1_000
	maxBookChats = 10_000
	maxBookNames = 10_000
)

// Self is what the app knows of its own bot.
type Self struct {
	AppID  string       `json:"app_id,omitempty"`
	Name   string       `json:"name,omitempty"`
	OpenID relay.OpenID `json:"open_id,omitempty"`
}

// Membership is whether the bot is in a chat.
type Membership int

// What is known of a membership.
const (
	Unknown Membership = iota // neither seen nor asked
	Yes
	No
)

// Chat is what is known of a chat. The zero value of a field is "unknown".
type Chat struct {
	ID    relay.ChatID `json:"id"`
	Kind  string       `json:"kind,omitempty"`  // group, p2p
	Topic bool         `json:"topic,omitempty"` // a group of topics; known where Kind came from Feishu's answer
	Name  string       `json:"name,omitempty"`
	In    Membership   `json:"in,omitempty"`
	Asked time.Time    `json:"asked,omitzero"` // when Feishu was last asked
}

// Book is what this app knows of itself, of the bots beside it, of the names behind
// ids, and of its chats, kept in one file over restarts. It is safe for concurrent use. Make one with
// [OpenBook].
type Book struct {
	file bookFile

	mu      sync.Mutex
	self    Self                         // guarded by mu
	bots    []Bot                        // guarded by mu; oldest first
	chats   *lru.LRU[relay.ChatID, Chat] // guarded by mu
	names   *lru.LRU[string, Who]        // by open_id, union_id, user_id or app_id; guarded by mu
	version uint64                       // guarded by mu
}

// OpenBook opens the book in the file name below root. It never fails: a file
// that is unreadable or broken is kept aside as name.broken and said, and what
// was in it is learned again. Without a root the book is kept in memory only.
func OpenBook(root *os.Root, name string, log *slog.Logger) *Book {
	b := &Book{file: bookFile{root: root, name: name, log: log}}
	b.chats, _ = lru.NewLRU[relay.ChatID, Chat](maxBookChats, nil) // fails only for a size below 1
	b.names, _ = lru.NewLRU[string, Who](maxBookNames, nil)
	if log == nil {
		b.file.log = slog.New(slog.DiscardHandler)
	}
	b.file.snapshot = b.snapshot
	b.load()
	return b
}

// Self returns what is known of the own bot.
func (b *Book) Self() Self {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.self
}

// LearnSelf takes what s says and keeps the rest. It reports whether anything is
// new; another app than the known one is refused.
func (b *Book) LearnSelf(s Self) (changed bool) {
	if checkIDs("", s.AppID, "", string(s.OpenID)) != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.AppID != "" && b.self.AppID != "" && s.AppID != b.self.AppID {
		return false
	}
	now := Self{AppID: cmp.Or(s.AppID, b.self.AppID), Name: cmp.Or(bounded(s.Name), b.self.Name),
		OpenID: cmp.Or(s.OpenID, b.self.OpenID)}
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

// LearnBot takes what bot says of the bot that is known under its open_id, else
// its app id, else its agent name; its empty fields leave what is known. The own
// bot, and one without any of these, is not learned.
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
	at := b.findBot(bot)
	if at >= 0 {
		now = overlay(b.bots[at], bot)
		if now == b.bots[at] {
			b.bots = append(slices.Delete(b.bots, at, at+1), now) // seen again
			return
		}
		b.bots = slices.Delete(b.bots, at, at+1)
	}
	// An id belongs to one bot: what else was known under it is the same bot, or
	// no longer true.
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

// findBot returns where bot is known. The caller holds mu.
func (b *Book) findBot(bot Bot) int {
	at := slices.IndexFunc(b.bots, func(o Bot) bool { return same(o.OpenID, bot.OpenID) })
	if at < 0 {
		at = slices.IndexFunc(b.bots, func(o Bot) bool { return same(o.AppID, bot.AppID) })
	}
	if at < 0 {
		at = slices.IndexFunc(b.bots, func(o Bot) bool { return same(o.Agent, bot.Agent) && agree(o, bot) })
	}
	return at
}

func same[T ~string](a, b T) bool { return a != "" && a == b }

// agree reports whether a and b can be one bot: no id of theirs differs.
func agree(a, b Bot) bool {
	differ := func(a, b string) bool { return a != "" && b != "" && a != b }
	return !differ(string(a.OpenID), string(b.OpenID)) && !differ(a.AppID, b.AppID) &&
		!differ(string(a.Agent), string(b.Agent))
}

// overlay is old with what bot says.
func overlay(old, bot Bot) Bot {
	return Bot{OpenID: cmp.Or(bot.OpenID, old.OpenID), AppID: cmp.Or(bot.AppID, old.AppID),
		Name: cmp.Or(bot.Name, old.Name), Agent: cmp.Or(bot.Agent, old.Agent)}
}

// without is bot less the ids that are other's.
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
	i := slices.IndexFunc(b.bots, func(o Bot) bool { return same(o.OpenID, id) })
	if i < 0 {
		i = slices.IndexFunc(b.bots, func(o Bot) bool { return same(o.AppID, string(id)) })
	}
	if i < 0 {
		return Bot{}, false
	}
	return b.bots[i], true
}

// Agent returns the bot that this app sees under a relay name: the one learned
// with that name, else the one with the app id, else the only known bot with
// the bot's name. A bot whose open_id is not known is not found.
func (b *Book) Agent(name relay.AgentName, appID, botName string) (Bot, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	find := func(is func(Bot) bool) (Bot, bool) {
		i := slices.IndexFunc(b.bots, func(o Bot) bool { return o.OpenID != "" && is(o) })
		if i < 0 {
			return Bot{}, false
		}
		return b.bots[i], true
	}
	if bot, ok := find(func(o Bot) bool { return same(o.Agent, name) }); ok {
		return bot, true
	}
	if bot, ok := find(func(o Bot) bool { return same(o.AppID, appID) }); ok {
		return bot, true
	}
	botName = strings.TrimSpace(botName)
	var found []Bot
	for _, o := range b.bots {
		if botName == "" || strings.TrimSpace(o.Name) != botName {
			continue
		}
		if o.OpenID == "" && (same(o.Agent, name) || same(o.AppID, appID)) {
			continue // the bot that is looked for, as the relay knows it
		}
		found = append(found, o)
	}
	if len(found) != 1 || found[0].OpenID == "" || !agree(found[0], Bot{AppID: appID, Agent: name}) {
		return Bot{}, false
	}
	return found[0], true
}

// Bots returns all known bots, those seen last at the end.
func (b *Book) Bots() []Bot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.bots)
}

// Version grows with every change but those of names alone.
func (b *Book) Version() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// changed notes a change. The caller holds mu.
func (b *Book) changed() {
	b.version++
	b.file.schedule()
}

// bounded is name in one line, cut to what an identifier may have.
func bounded(name string) string {
	name = strings.TrimSpace(oneLine(name))
	if len(name) > relay.MaxID {
		name = strings.ToValidUTF8(name[:relay.MaxID], "")
	}
	return name
}
