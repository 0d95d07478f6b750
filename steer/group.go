package steer

import (
	"feishu-relay/relay"
)

// Group is a group as GET /v1/groups/{chat} shows it.
type Group struct {
	Channel  string            `json:"channel"`
	ChatID   relay.ChatID      `json:"chat_id"`
	Name     string            `json:"name,omitempty"`
	Locked   bool              `json:"locked"` // nothing can be changed
	Version  string            `json:"version"`
	Settings Settings          `json:"settings"`
	Sources  map[string]string `json:"sources"` // of each key of the settings: record, file or env
	Bots     []Bot             `json:"bots"`
	Depth    int               `json:"depth"` // of the newest message, as it is counted now
	LastStop *LastStop         `json:"last_stop,omitempty"`
	Stopped  bool              `json:"-"` // by a person, and no person has spoken since
	MaxDepth int               `json:"-"` // the highest limit that can be set
	Operator int               `json:"-"` // the operator's budget, which none can exceed; 0: none
}

// LastStop is the newest message that stopped at a bot.
type LastStop struct {
	MessageID relay.MessageID   `json:"message_id"`
	Sender    relay.AgentName   `json:"sender"`
	Bots      []relay.AgentName `json:"bots"` // at which it stopped
	Reason    relay.Reason      `json:"reason"`
	At        relay.Millis      `json:"at"`
}

// Fate is what became of a message at a bot.
type Fate struct {
	Agent     relay.AgentName
	Delivered relay.Millis // 0: it was not
	Stopped   relay.Reason // "": it was not
	At        relay.Millis // when it was stopped; 0: not known
	Detail    string
	Depth     int
}
