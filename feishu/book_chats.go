package feishu

import (
	"cmp"
	"container/list"

	"feishu-relay/relay"
)

// Chat returns what is known of a chat; of an unknown one only its id.
func (b *Book) Chat(id relay.ChatID) Chat {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.chats.get(id)
	c.ID = id
	return c
}

// SawChat notes that the bot is in a chat: an event came from it, or Feishu took
// a message for it. kind is group or p2p; anything else leaves what is known.
func (b *Book) SawChat(id relay.ChatID, kind string) {
	b.update(id, func(c *Chat) {
		c.In = Yes
		if kind == ChatGroup || kind == ChatP2P {
			c.Kind = kind
		}
	})
}

// LeftChat notes that the bot is no longer in a chat.
func (b *Book) LeftChat(id relay.ChatID) {
	b.update(id, func(c *Chat) { c.In = No })
}

// SetChat takes what Feishu answered about a chat; its zero fields leave what is
// known.
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
	old := b.chats.get(id)
	now := old
	now.ID = id
	change(&now)
	b.chats.put(now)
	if now != old {
		b.changed()
	}
}

// recentChats holds chats in the order in which they were last put.
type recentChats struct {
	at    map[relay.ChatID]*list.Element // of Chat
	order *list.List                     // oldest first
}

func newRecentChats() recentChats {
	return recentChats{at: map[relay.ChatID]*list.Element{}, order: list.New()}
}

func (r *recentChats) get(id relay.ChatID) Chat {
	if e := r.at[id]; e != nil {
		return e.Value.(Chat)
	}
	return Chat{}
}

// put forgets the oldest chat beyond the bound.
func (r *recentChats) put(c Chat) {
	if e := r.at[c.ID]; e != nil {
		e.Value = c
		r.order.MoveToBack(e)
		return
	}
	r.at[c.ID] = r.order.PushBack(c)
	if r.order.Len() > maxBookChats {
		oldest := r.order.Remove(r.order.Front()).(Chat)
		delete(r.at, oldest.ID)
	}
}

func (r *recentChats) all() []Chat {
	all := make([]Chat, 0, r.order.Len())
	for e := r.order.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(Chat))
	}
	return all
}
