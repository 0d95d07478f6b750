package feishu

import (
	"cmp"

	"feishu-relay/relay"
)

// Chat returns what is known of a chat; of an unknown one only its id.
func (b *Book) Chat(id relay.ChatID) Chat {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, _ := b.chats.Peek(id)
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
	old, _ := b.chats.Peek(id)
	now := old
	now.ID = id
	change(&now)
	b.chats.Add(id, now)
	if now != old {
		b.changed()
	}
}
