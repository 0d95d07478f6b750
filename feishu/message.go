package feishu

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"feishu-relay/feishu/content"
	"feishu-relay/internal/runes"
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

// Message is a message as one app receives it: in an event, in the
// answer to a send, in a chat's history (docs/feishu.md 3.1 and 5). As JSON it is part of
// the gateway's drafts on disk.
type Message struct {
	ID         relay.MessageID `json:"message_id"`
	RootID     relay.MessageID `json:"root_id"`
	ParentID   relay.MessageID `json:"parent_id"`
	ThreadID   string          `json:"thread_id"` // omt_…
	ChatID     relay.ChatID    `json:"chat_id"`
	ChatType   string          `json:"chat_type"` // of events: group, p2p; "" in REST answers
	Type       string          `json:"msg_type"`  // text, post, interactive, image, …
	Content    string          `json:"content"`   // the JSON text that Feishu puts there
	Mentions   []Mention       `json:"mentions"`
	Sender     Sender          `json:"sender"`
	CreateTime relay.Millis    `json:"create_time"`
	Deleted    bool            `json:"deleted"`
}

// Sender is the sender of a message. Open ids are those of the app that received it.
type Sender struct {
	Type    string       `json:"sender_type"` // user, bot, app; "" unknown
	OpenID  relay.OpenID `json:"open_id"`
	UnionID string       `json:"union_id"`
	UserID  string       `json:"user_id"`
	AppID   string       `json:"app_id"`      // of a bot, in REST answers only
	Name    string       `json:"sender_name"` // where Feishu says it
	Tenant  string       `json:"tenant_key"`
}

// IsBot reports whether the sender is an app's bot.
func (s Sender) IsBot() bool { return s.Type == SenderBot || s.Type == SenderApp }

// Mention is one entry of a message's mentions: an object as id in events, a
// string in REST answers.
type Mention = content.Mention

// Doc reads m's content.
func (m *Message) Doc() content.Doc { return content.Parse(m.Type, m.Content, m.Mentions) }

// Text returns the readable text of m.
func (m *Message) Text() string { return m.Doc().Text() }

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
	// Keep keeps the event from the bot, since it is stored. Feishu gets its acknowledgement.
	Keep
	// Refuse does not either: the event could not be stored, and Feishu is to deliver it again.
	Refuse
)

// EventTap commits an event and decides whether the bot gets it, before it does. event is the JSON of its 2.0 envelope.
// instead, if it is not nil, replaces an event that passes. EventTap is called from many goroutines and does not keep
// event.
type EventTap func(event []byte) (v Verdict, instead []byte)

// Passage is how a person's message goes on to the bot. The zero Passage passes it byte
// for byte.
type Passage struct {
	Verdict Verdict // of a group's message; private ones pass
	// Before is put in front of a text, and becomes the first paragraph of a post;
	// mentions in it are disarmed. Other messages pass unchanged.
	Before string
}

// MessageReceived is the type of the event that carries a message.
const MessageReceived = "im.message.receive_v1"

// ErrNotEvent is wrapped by every error of [ParseEvent].
var ErrNotEvent = errors.New("not a Feishu event")

// Event is the part of an event that the sidecar reads (docs/feishu.md 2.2, 3.1).
type Event struct {
	ID, Type                string // event_id, event_type
	AppID, TenantKey, Token string // the receiver's; Token is the verification token
	CreateTime              relay.Millis
	Message                 *Message     // of im.message.receive_v1, else nil
	ChatID                  relay.ChatID // of messages and of events about a chat
	Streaming               bool         // the message is a card with streaming_mode: its text is not final yet
	Recall                  *Recall      // of im.message.recalled_v1
	Reaction                *Reaction    // of im.message.reaction.created_v1 and deleted_v1
}

// Recall is the event of a recalled message; Event.ChatID is where.
type Recall struct {
	ID relay.MessageID
	At relay.Millis
}

// Reaction is the event of a reaction that was set or removed.
type Reaction struct {
	ID    relay.MessageID // of the message
	Emoji string          // such as "OK"
	ByApp bool            // by a bot
}

type wireEvent struct {
	Schema string `json:"schema"`
	Header struct {
		EventID    string        `json:"event_id"`
		EventType  string        `json:"event_type"`
		CreateTime lenientMillis `json:"create_time"`
		Token      string        `json:"token"`
		AppID      string        `json:"app_id"`
		TenantKey  string        `json:"tenant_key"`
	} `json:"header"`
	Event struct {
		Type         string        `json:"type"`
		ChatID       string        `json:"chat_id"`
		MessageID    string        `json:"message_id"`
		RecallTime   lenientMillis `json:"recall_time"`
		OperatorType string        `json:"operator_type"`
		ReactionType struct {
			Emoji string `json:"emoji_type"`
		} `json:"reaction_type"`
		Message *wireMessage `json:"message"`
		Sender  wireSender   `json:"sender"`
	} `json:"event"`
	Type string `json:"type"` // of the 1.0 schema and of url_verification
}

// ParseEvent reads an event of the 2.0 schema, of any type and at most 4 MiB;
// of one in the 1.0 schema it returns the type only. Errors wrap [ErrNotEvent] and quote
// nothing; a message without usable ids is one.
func ParseEvent(data []byte) (e Event, err error) {
	defer func() {
		if err != nil {
			e, err = Event{}, fmt.Errorf("%w: %w", ErrNotEvent, err)
		}
	}()
	var w wireEvent
	switch err := lenient(data, &w); {
	case err != nil:
		return e, fmt.Errorf("it %w", err)
	case w.Type == "event_callback" && w.Header.EventType == "":
		return Event{Type: w.Event.Type}, nil
	case w.Header.EventType == "":
		return e, errors.New("it has no event_type")
	}
	e = Event{
		ID: w.Header.EventID, Type: w.Header.EventType, AppID: w.Header.AppID, TenantKey: w.Header.TenantKey,
		Token: w.Header.Token, CreateTime: relay.Millis(w.Header.CreateTime), ChatID: relay.ChatID(w.Event.ChatID),
	}
	err = checkIDs("event_id", e.ID, "event_type", e.Type, "app_id", e.AppID, "chat_id", w.Event.ChatID,
		"message_id", w.Event.MessageID)
	switch id := relay.MessageID(w.Event.MessageID); {
	case err != nil:
	case e.Type == MessageReceived:
		e.Message, err = w.message()
		if err == nil {
			e.ChatID = e.Message.ChatID
			e.Streaming = e.Message.Type == "interactive" && e.Message.Doc().Streaming
		}
	case id == "":
	case e.Type == EventRecalled:
		e.Recall = &Recall{ID: id, At: cmp.Or(relay.Millis(w.Event.RecallTime), e.CreateTime)}
	case e.Type == EventReacted, e.Type == EventReactionEnded:
		e.Reaction = &Reaction{ID: id, Emoji: w.Event.ReactionType.Emoji, ByApp: w.Event.OperatorType == SenderApp}
	}
	return e, err
}

// message returns the message of an event.
func (w *wireEvent) message() (*Message, error) {
	if w.Event.Message == nil {
		return nil, errors.New("it has no message")
	}
	m, err := w.Event.Message.message()
	m.Sender = w.Event.Sender.sender()
	switch {
	case err != nil:
		return nil, err
	case m.ID == "":
		return nil, errors.New("message_id is missing")
	case m.ChatID == "":
		return nil, errors.New("chat_id is missing")
	}
	return &m, checkIDs("sender open_id", string(m.Sender.OpenID), "sender union_id", m.Sender.UnionID,
		"sender user_id", m.Sender.UserID)
}

// checkIDs takes names and values in turn and returns an error for the first invalid value.
func checkIDs(namesAndValues ...string) error {
	for i := 0; i < len(namesAndValues); i += 2 {
		if err := relay.CheckID(namesAndValues[i+1]); err != nil {
			return fmt.Errorf("%s %w", namesAndValues[i], err)
		}
	}
	return nil
}

// wireMessage is a message in both of its spellings: events say message_type
// and content, REST answers msg_type and body.content (docs/feishu.md 3.1, 5).
type wireMessage struct {
	Message
	MessageType string        `json:"message_type"`
	CreateTime  lenientMillis `json:"create_time"`
	Mentions    []wireMention `json:"mentions"`
	Body        struct {
		Content string `json:"content"`
	} `json:"body"`
	Sender wireSender `json:"sender"`
}

// message converts, with its errors about identifiers.
func (w *wireMessage) message() (Message, error) {
	m := w.Message
	m.Type, m.Content = cmp.Or(w.MessageType, m.Type), cmp.Or(m.Content, w.Body.Content)
	m.CreateTime, m.Sender = relay.Millis(w.CreateTime), w.Sender.sender()
	for _, one := range w.Mentions {
		if mention, ok := one.mention(); ok {
			m.Mentions = append(m.Mentions, mention)
		}
	}
	return m, checkIDs("message_id", string(m.ID), "root_id", string(m.RootID), "parent_id", string(m.ParentID),
		"thread_id", m.ThreadID, "chat_id", string(m.ChatID), "message_type", m.Type)
}

// wireSender is the sender of a message: with sender_id in events, id and id_type in REST answers.
type wireSender struct {
	Sender
	ID       string  `json:"id"`
	IDType   string  `json:"id_type"`
	SenderID wireIDs `json:"sender_id"`
}

func (w wireSender) sender() Sender {
	w.SenderID.plain = cmp.Or(w.SenderID.plain, w.ID)
	s, m := w.Sender, w.SenderID.mention(w.IDType)
	s.OpenID, s.UnionID, s.UserID, s.AppID = m.OpenID, m.UnionID, m.UserID, m.AppID
	return s
}

// wireMention is one entry of a mentions list.
type wireMention struct {
	Key           string  `json:"key"`
	ID            wireIDs `json:"id"`
	IDType        string  `json:"id_type"`
	Name          string  `json:"name"`
	MentionedType string  `json:"mentioned_type"`
}

// mention is false for an entry with an invalid id.
func (w wireMention) mention() (Mention, bool) {
	m := w.ID.mention(w.IDType)
	m.Key, m.Name, m.Type = w.Key, runes.OneLine(w.Name), cmp.Or(w.MentionedType, m.Type)
	err := checkIDs("", m.Key, "", string(m.OpenID), "", m.UnionID, "", m.UserID, "", m.AppID)
	return m, err == nil
}

// wireIDs is an id: an object of ids in events, a string in REST answers.
type wireIDs struct {
	OpenID  relay.OpenID `json:"open_id"`
	UnionID string       `json:"union_id"`
	UserID  string       `json:"user_id"`
	AppID   string       `json:"app_id"`
	plain   string
}

func (w *wireIDs) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &w.plain)
	}
	type object wireIDs
	_ = lenient(data, (*object)(w)) // in another form it is no id, and the message is still valid
	return nil
}

// mention has the ids.
func (w wireIDs) mention(idType string) Mention {
	m := Mention{OpenID: w.OpenID, UnionID: w.UnionID, UserID: w.UserID, AppID: w.AppID}
	if w.plain != "" {
		m.SetID(w.plain, idType)
	}
	if m.AppID != "" {
		m.Type = SenderBot
	}
	return m
}

// lenientMillis is a time; an invalid one is ignored and does not invalidate the message.
type lenientMillis relay.Millis

func (ms *lenientMillis) UnmarshalJSON(data []byte) error {
	_ = (*relay.Millis)(ms).UnmarshalJSON(data)
	return nil
}
