package feishu

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Bounds of a directory; beyond them the entry that was unused for longest is removed, and learned again when it
// occurs.
const (
	maxBots  = 1_000
	maxChats = 10_000
	maxNames = 10_000
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

	Tenant string `json:"-"` // its tenant_key, in Feishu's answer
}

// Directory is what this app knows: itself, the bots beside it, the names behind ids, and its chats. What it does not
// know it asks Feishu for ([Directory.Ask]). It is safe for concurrent use. Make one with [NewDirectory].
type Directory struct {
	api       *API
	store     *Store
	log       *slog.Logger
	questions singleflight.Group
	asked     *lru.Cache[string, reply] // by the key of a question
	asking    *semaphore.Weighted       // of questions that are under way
	members   *rate.Limiter             // of questions about memberships: they count against the bot's own limits
	ctx       context.Context           // of questions
	cancel    context.CancelFunc

	mu      sync.Mutex
	self    Self                               // guarded by mu
	bots    []Bot                              // guarded by mu; oldest first
	chats   *simplelru.LRU[relay.ChatID, Chat] // guarded by mu
	names   *simplelru.LRU[string, Who]        // by open_id, union_id, user_id or app_id; guarded by mu
	version uint64                             // guarded by mu
	trouble rate.Sometimes                     // logs that the disk refuses changes; guarded by mu
}

// NewDirectory returns the directory that is kept in a store; nil: in memory only. What cannot be read is learned again.
// Close it.
func NewDirectory(store *Store, api *API, log *slog.Logger) *Directory {
	d := &Directory{api: api, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		asking: semaphore.NewWeighted(maxAsking), members: rate.NewLimiter(2, 10),
		trouble: rate.Sometimes{Interval: time.Minute}}
	d.asked, _ = lru.New[string, reply](maxAsked) // these fail only for a size below 1
	d.chats, _ = simplelru.NewLRU(maxChats, func(id relay.ChatID, _ Chat) { d.changed(kindChat, string(id), nil) })
	d.names, _ = simplelru.NewLRU(maxNames, func(id string, _ Who) { d.changed(kindName, id, nil) })
	d.ctx, d.cancel = context.WithCancel(context.Background())
	err := store.Each(func(kind, key string, value json.RawMessage) {
		switch kind {
		case kindSelf:
			load(value, d.LearnSelf)
		case kindBots:
			load(value, func(bots []Bot) {
				for _, bot := range bots {
					d.LearnBot(bot)
				}
			})
		case kindChat:
			load(value, d.SetChat)
		case kindName:
			load(value, func(who Who) { d.LearnName(key, who) })
		}
	})
	if err != nil {
		d.log.Warn("the stored ids of bots and chats cannot be read; they are learned again", "err", err)
	}
	d.store = store // from now on what is learned is kept
	return d
}

// Store returns the store of the directory.
func (d *Directory) Store() *Store { return d.store }

// load passes a record to learn. One that cannot be read is left out: it is learned again.
func load[T any](value json.RawMessage, learn func(T)) {
	var v T
	if json.Unmarshal(value, &v) == nil {
		learn(v)
	}
}

// Forget forgets everything, as where the app is another one.
func (d *Directory) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chats.Purge() // which deletes the records
	d.names.Purge()
	d.self, d.bots = Self{}, nil
	d.changed(kindSelf, "", nil)
	d.changed(kindBots, "", nil)
}

// Self returns what is known of the own bot.
func (d *Directory) Self() Self {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.self
}

// IsApp reports whether app is the own one.
func (d *Directory) IsApp(app string) bool { return app != "" && app == d.Self().AppID }

// LearnSelf sets the fields that s has. Another app than the known one is ignored.
func (d *Directory) LearnSelf(s Self) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if checkIDs("", s.AppID, "", string(s.OpenID), "", s.Tenant) != nil || differ(s.AppID, d.self.AppID) {
		return
	}
	now := Self{AppID: cmp.Or(s.AppID, d.self.AppID), Name: cmp.Or(bounded(s.Name), d.self.Name),
		OpenID: cmp.Or(s.OpenID, d.self.OpenID), Tenant: cmp.Or(s.Tenant, d.self.Tenant)}
	if now != d.self {
		d.self = now
		d.bots = slices.DeleteFunc(d.bots, d.isSelf)
		d.changed(kindSelf, "", now)
	}
}

// isSelf reports whether bot is the own one. The caller holds mu.
func (d *Directory) isSelf(bot Bot) bool {
	return bot.OpenID != "" && bot.OpenID == d.self.OpenID || bot.AppID != "" && bot.AppID == d.self.AppID
}

// LearnBot sets the fields that bot has on the bot with its open_id, app id or agent name, or adds it. An id belongs to
// one bot, so that others with one of the ids are the same bot, or outdated. The app's own bot, and one without any id,
// is ignored.
func (d *Directory) LearnBot(bot Bot) {
	bot.Name = bounded(bot.Name)
	if checkIDs("", string(bot.OpenID), "", bot.AppID, "", string(bot.Agent)) != nil || bot.unknown() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isSelf(bot) {
		return
	}
	now, merged, rest := bot, []Bot(nil), make([]Bot, 0, len(d.bots)+1)
	for _, other := range slices.Backward(d.bots) { // what was learned last counts
		sameAgent := same(other.Agent, bot.Agent)
		switch {
		case same(other.OpenID, bot.OpenID), same(other.AppID, bot.AppID), sameAgent && agree(other, bot):
			merged, now = append(merged, other), overlay(other, now)
			continue
		case sameAgent: // it moved to another app
			other.Agent = ""
		}
		if !other.unknown() {
			rest = append(rest, other)
		}
	}
	slices.Reverse(rest)
	rest = append(rest, now)
	d.bots = rest[max(0, len(rest)-maxBots):]
	if len(merged) != 1 || merged[0] != now {
		d.changed(kindBots, "", slices.Clone(d.bots))
	}
}

func (b *Bot) unknown() bool { return b.OpenID == "" && b.AppID == "" && b.Agent == "" }

func same[T ~string](a, b T) bool   { return a != "" && a == b }
func differ[T ~string](a, b T) bool { return a != "" && b != "" && a != b }

// agree reports whether a and b can be one bot: no id of theirs differs.
func agree(a, b Bot) bool {
	return !differ(a.OpenID, b.OpenID) && !differ(a.AppID, b.AppID) && !differ(a.Agent, b.Agent)
}

// overlay returns old with the fields that bot has.
func overlay(old, bot Bot) Bot {
	return Bot{OpenID: cmp.Or(bot.OpenID, old.OpenID), AppID: cmp.Or(bot.AppID, old.AppID),
		Name: cmp.Or(bot.Name, old.Name), Agent: cmp.Or(bot.Agent, old.Agent)}
}

// Bot returns the bot with that open_id as this app sees it, or with that app id.
func (d *Directory) Bot(id relay.OpenID) (Bot, bool) {
	return d.find(func(o Bot) bool { return same(o.OpenID, id) }, func(o Bot) bool { return same(o.AppID, string(id)) })
}

// find returns the first bot that matches the first of two conditions that any bot matches.
func (d *Directory) find(conditions ...func(Bot) bool) (bot Bot, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, matches := range conditions {
		if i := slices.IndexFunc(d.bots, matches); i >= 0 {
			return d.bots[i], true
		}
	}
	return Bot{}, false
}

// Agent returns the bot of an agent on the relay: the one with that name, else the one with the app id, else the only
// known bot with the bot's name. A bot without an open_id is not found.
func (d *Directory) Agent(name relay.AgentName, appID, botName string) (Bot, bool) {
	bot, ok := d.find(
		func(o Bot) bool { return o.OpenID != "" && same(o.Agent, name) },
		func(o Bot) bool { return o.OpenID != "" && same(o.AppID, appID) })
	if ok {
		return bot, true
	}
	found := slices.DeleteFunc(d.Bots(), func(o Bot) bool {
		itself := o.OpenID == "" && (same(o.Agent, name) || same(o.AppID, appID)) // whose open_id is unknown
		return itself || !same(strings.TrimSpace(o.Name), strings.TrimSpace(botName))
	})
	if len(found) != 1 || found[0].OpenID == "" || !agree(found[0], Bot{AppID: appID, Agent: name}) {
		return Bot{}, false
	}
	return found[0], true
}

// LearnChatBots learns the bots of a chat. An id of another bot with the name of one of them is forgotten: a bot that
// was removed and added has a new one.
func (d *Directory) LearnChatBots(bots []Bot) {
	d.forget(func(o Bot) bool {
		return slices.ContainsFunc(bots, func(n Bot) bool { return same(bounded(n.Name), o.Name) }) &&
			!slices.ContainsFunc(bots, func(n Bot) bool { return n.OpenID == o.OpenID })
	})
	for _, bot := range bots {
		d.LearnBot(bot)
	}
}

// Added learns that the app of an agent, whose bot has a name, sees its own bot under own. Where that has changed the
// app was removed and added: the bot's id is forgotten, and what Feishu said of the chat's bots no longer counts.
func (d *Directory) Added(chat relay.ChatID, agent relay.AgentName, name string, own relay.OpenID) {
	key := "own/" + string(agent) // among the names, since it is no id of this app's
	was, _ := d.Name(key)
	if own == "" || was.Name == string(own) {
		return
	}
	d.LearnName(key, Who{Name: string(own)})
	if was.Name != "" {
		d.asked.Remove(botsOf(chat))
		d.forget(func(o Bot) bool { return o.Agent == agent || o.Agent == "" && same(o.Name, bounded(name)) })
	}
}

// forget forgets the open_ids of the bots that match.
func (d *Directory) forget(matches func(Bot) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range d.bots {
		if o.OpenID != "" && matches(o) {
			d.bots[i].OpenID = ""
			d.changed(kindBots, "", slices.Clone(d.bots))
		}
	}
	d.bots = slices.DeleteFunc(d.bots, func(o Bot) bool { return o.unknown() })
}

// Bots returns all known bots, the last seen at the end.
func (d *Directory) Bots() []Bot {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.bots)
}

// Version grows with every change except those of names alone.
func (d *Directory) Version() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.version
}

// changed records a change of a record; nil: it is gone. The caller holds mu.
func (d *Directory) changed(kind, key string, value any) {
	if kind != kindName {
		d.version++
	}
	if err := d.store.Put(kind, key, value); err != nil {
		d.trouble.Do(func() {
			d.log.Error("what is known of Feishu cannot be written; it is kept in memory, or learned again", "err", err)
		})
	}
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
func (d *Directory) LearnName(id string, w Who) {
	w.Name = bounded(w.Name)
	if id == "" || w == (Who{}) || checkIDs("", id, "", string(w.Agent)) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old, _ := d.names.Get(id)
	now := Who{Name: cmp.Or(w.Name, old.Name), Agent: cmp.Or(w.Agent, old.Agent)}
	d.names.Add(id, now)
	if now != old {
		d.changed(kindName, id, now)
	}
}

// Name returns the person or bot of an id; false if it is unknown.
func (d *Directory) Name(id string) (Who, bool) {
	bot, _ := d.Bot(relay.OpenID(id))
	d.mu.Lock()
	defer d.mu.Unlock()
	w, _ := d.names.Peek(id)
	w = Who{Name: cmp.Or(bot.Name, w.Name), Agent: cmp.Or(bot.Agent, w.Agent)}
	return w, w != Who{}
}

// LearnMentions learns the names of those that a message mentions, and the bots
// among them.
func (d *Directory) LearnMentions(mentions []Mention) {
	for _, m := range mentions {
		if self := d.Self(); same(m.OpenID, self.OpenID) {
			d.LearnSelf(Self{Name: m.Name})
		}
		_, known := d.Bot(m.OpenID)
		if m.Type == SenderBot || m.AppID != "" || known {
			d.LearnBot(Bot{OpenID: m.OpenID, AppID: m.AppID, Name: m.Name})
		}
		for _, id := range m.IDs() {
			d.LearnName(id, Who{Name: m.Name})
		}
	}
}

// Chat returns what is known of a chat; for an unknown one only its id is set.
func (d *Directory) Chat(id relay.ChatID) Chat {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, _ := d.chats.Peek(id)
	c.ID = id
	return c
}

// SawChat records that the bot is in a chat: an event came from it, or Feishu accepted
// a message for it. kind is group or p2p; other values are ignored.
func (d *Directory) SawChat(id relay.ChatID, kind string) {
	d.update(id, func(c *Chat) {
		c.In = Yes
		if kind == ChatGroup || kind == ChatP2P {
			c.Kind = kind
		}
	})
}

// LeftChat records that the bot is no longer in a chat.
func (d *Directory) LeftChat(id relay.ChatID) {
	d.update(id, func(c *Chat) { c.In = No })
}

// SetChat sets the fields that chat has.
func (d *Directory) SetChat(chat Chat) {
	d.update(chat.ID, func(c *Chat) {
		if chat.Kind != "" {
			c.Kind, c.Topic = chat.Kind, chat.Topic
		}
		c.Name = cmp.Or(bounded(chat.Name), c.Name)
		c.In = cmp.Or(chat.In, c.In)
	})
}

func (d *Directory) update(id relay.ChatID, change func(*Chat)) {
	if id == "" || relay.CheckID(string(id)) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	old, _ := d.chats.Peek(id)
	now := old
	now.ID = id
	change(&now)
	d.chats.Add(id, now)
	if now != old {
		d.changed(kindChat, string(id), now)
	}
}

// Close ends the questions to Feishu. It may be called more than once.
func (d *Directory) Close() error {
	d.cancel()
	return nil
}
