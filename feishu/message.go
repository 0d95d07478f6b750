package feishu

import (
	"context"
	"slices"

	"feishu-relay/relay"
)

// Sender types. Events say "bot" where the REST API says "app".
const (
	SenderUser = "user"
	SenderBot  = "bot"
	SenderApp  = "app"
)

// Chat types of events; topic groups are "group" too.
const (
	ChatGroup = "group"
	ChatP2P   = "p2p"
)

// Message is a message as Feishu shows it to one app: in an event, in the
// answer to a send, in a chat's history (docs/feishu.md 3.1 and 5). As JSON it is part of
// the gateway's drafts on disk.
type Message struct {
	ID         relay.MessageID `json:"ID"`
	RootID     relay.MessageID `json:"RootID"`
	ParentID   relay.MessageID `json:"ParentID"`
	ThreadID   string          `json:"ThreadID"` // omt_…
	ChatID     relay.ChatID    `json:"ChatID"`
	ChatType   string          `json:"ChatType"` // of events: group, p2p; "" in REST answers
	Type       string          `json:"Type"`     // msg_type: text, post, interactive, image, …
	Content    string          `json:"Content"`  // the JSON text that Feishu puts there
	Mentions   []Mention       `json:"Mentions"`
	Sender     Sender          `json:"Sender"`
	CreateTime relay.Millis    `json:"CreateTime"`
	Deleted    bool            `json:"Deleted"`
}

// Sender is who a message is from. Open ids are those that the looking app sees.
type Sender struct {
	Type    string       `json:"Type"` // user, bot, app; "" unknown
	OpenID  relay.OpenID `json:"OpenID"`
	UnionID string       `json:"UnionID"`
	UserID  string       `json:"UserID"`
	AppID   string       `json:"AppID"` // of a bot, in REST answers only
	Name    string       `json:"Name"`  // where Feishu says it
}

// IsBot reports whether the sender is an app's bot.
func (s Sender) IsBot() bool { return s.Type == SenderBot || s.Type == SenderApp }

// Mention is one entry of a message's mentions: an object as id in events, a
// string in REST answers.
type Mention struct {
	Key     string       `json:"Key"` // "@_user_1", as it is in the text
	OpenID  relay.OpenID `json:"OpenID"`
	UnionID string       `json:"UnionID"`
	UserID  string       `json:"UserID"`
	AppID   string       `json:"AppID"` // where the REST API names a bot by it
	Name    string       `json:"Name"`
	Type    string       `json:"Type"` // user, bot; "" on older tenants
}

// IDs returns the ids that m names its bot or person by.
func (m *Mention) IDs() []string {
	return slices.DeleteFunc([]string{string(m.OpenID), m.UnionID, m.UserID, m.AppID},
		func(id string) bool { return id == "" })
}

// Same reports whether m and other share an id.
func (m *Mention) Same(other *Mention) bool {
	ids := other.IDs()
	return slices.ContainsFunc(m.IDs(), func(id string) bool { return slices.Contains(ids, id) })
}

// Bot is another app's bot as this app sees it. Any field but one of the ids
// may be empty.
type Bot struct {
	OpenID relay.OpenID    `json:"open_id,omitempty"` // in this app's name space
	AppID  string          `json:"app_id,omitempty"`
	Name   string          `json:"name,omitempty"`
	Agent  relay.AgentName `json:"agent_name,omitempty"` // on the relay, once known
}

// Verdict is what happens to an event on its way to the bot.
type Verdict int

const (
	// Pass hands the event to the bot, byte for byte.
	Pass Verdict = iota
	// Keep does not: it is ours and on disk. Feishu gets its acknowledgement.
	Keep
	// Refuse does not either, and Feishu gets none: it could not be stored, and
	// is to be delivered again.
	Refuse
)

// EventTap sees every event on its way to the bot, as the JSON of its 2.0
// envelope. instead, where it is not nil, is what the bot is given in the place of an
// event that passes. after, where it is not nil, is run once the event was written to the
// bot, or was kept; the acknowledgement to Feishu waits for it, but not longer than
// [AckHold]. EventTap is called from many goroutines and does not keep event.
type EventTap func(event []byte) (v Verdict, instead []byte, after func())

// Passage is how a person's message goes on to the bot. The zero Passage passes it byte
// for byte.
type Passage struct {
	// Withhold acknowledges the event to Feishu and does not pass it to the bot.
	Withhold bool
	// Before is put in front of a text as it is, and becomes the first paragraph of a post;
	// what would be a mention in it is written so that it is none. Other messages pass
	// unchanged.
	Before string
	// After is called once the event was written to the bot or is withheld; the
	// acknowledgement to Feishu waits for it, but not longer than [AckHold]. It is for what
	// the bot need not wait for. May be nil.
	After func(context.Context) error
}
