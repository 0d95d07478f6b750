package feishu

import (
	"cmp"

	"feishu-relay/relay"
)

// Who is whom an id names, as this app was shown it. Either field may be empty.
type Who struct {
	Name  string          `json:"name,omitempty"`
	Agent relay.AgentName `json:"agent_name,omitempty"` // of a bot that was shown to ours under this id
}

// LearnName takes what w says of whom id names: an open_id, union_id, user_id
// or app_id, of a person or a bot, or a [StandIn]. Empty fields leave what is known.
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
		b.file.schedule()
	}
}

// Name returns whom id names, as a bot or by its name alone; false where
// nothing is known.
func (b *Book) Name(id string) (Who, bool) {
	bot, _ := b.Bot(relay.OpenID(id))
	b.mu.Lock()
	defer b.mu.Unlock()
	w, _ := b.names.Peek(id)
	w = Who{Name: cmp.Or(bot.Name, w.Name), Agent: cmp.Or(bot.Agent, w.Agent)}
	return w, w != Who{}
}

// LearnMentions takes the names of those that a message mentions, and the bots
// among them.
func (b *Book) LearnMentions(mentions []Mention) {
	for _, m := range mentions {
		_, known := b.Bot(m.OpenID)
		if m.Type == SenderBot || m.AppID != "" || known {
			b.LearnBot(Bot{OpenID: m.OpenID, AppID: m.AppID, Name: m.Name})
		}
		for _, id := range m.IDs() {
			b.LearnName(id, Who{Name: m.Name})
		}
	}
}
