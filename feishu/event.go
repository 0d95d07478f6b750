package feishu

import (
	"cmp"
	"errors"
	"fmt"

	"feishu-relay/relay"
)

// MessageReceived is the type of the event that carries a message.
const MessageReceived = "im.message.receive_v1"

// ErrNotEvent is wrapped by every error of [ParseEvent].
var ErrNotEvent = errors.New("not a Feishu event")

// Event is what the sidecar reads of an event (docs/feishu.md 2.2, 3.1).
type Event struct {
	ID, Type                string // event_id, event_type
	AppID, TenantKey, Token string // the receiver's; Token is the verification token
	CreateTime              relay.Millis
	Message                 *Message     // of im.message.receive_v1, else nil
	ChatID                  relay.ChatID // of messages and of events about a chat
	Streaming               bool         // the message is a card that says streaming_mode: its text is not yet final
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
	AppID string          // of that bot
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
		AppID        string        `json:"app_id"`
		ReactionType struct {
			Emoji string `json:"emoji_type"`
		} `json:"reaction_type"`
		Message *wireMessage `json:"message"`
		Sender  struct {
			SenderID   wireIDs `json:"sender_id"`
			SenderType string  `json:"sender_type"`
		} `json:"sender"`
	} `json:"event"`
	Type string `json:"type"` // of the 1.0 schema and of url_verification
}

// ParseEvent reads an event of the 2.0 schema, of any type and at most 4 MiB;
// of one in the 1.0 schema it tells the type only. What is no event, and a
// message without usable ids, is an error that wraps [ErrNotEvent] and quotes
// nothing.
func ParseEvent(data []byte) (Event, error) {
	var w wireEvent
	if err := lenient(data, &w); err != nil {
		return Event{}, fmt.Errorf("%w: it %w", ErrNotEvent, err)
	}
	if w.Type == "event_callback" && w.Header.EventType == "" {
		return Event{Type: w.Event.Type}, nil
	}
	if w.Header.EventType == "" {
		return Event{}, fmt.Errorf("%w: it has no event_type", ErrNotEvent)
	}
	e := Event{
		ID: w.Header.EventID, Type: w.Header.EventType, AppID: w.Header.AppID, TenantKey: w.Header.TenantKey,
		Token: w.Header.Token, CreateTime: relay.Millis(w.Header.CreateTime), ChatID: relay.ChatID(w.Event.ChatID),
	}
	err := checkIDs("event_id", e.ID, "event_type", e.Type, "app_id", e.AppID, "chat_id", w.Event.ChatID,
		"message_id", w.Event.MessageID)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrNotEvent, err)
	}
	switch id := relay.MessageID(w.Event.MessageID); e.Type {
	case MessageReceived:
	case EventRecalled:
		if id != "" {
			e.Recall = &Recall{ID: id, At: cmp.Or(relay.Millis(w.Event.RecallTime), e.CreateTime)}
		}
		return e, nil
	case EventReacted, EventReactionEnded:
		if id != "" {
			e.Reaction = &Reaction{ID: id, Emoji: w.Event.ReactionType.Emoji, ByApp: w.Event.OperatorType == SenderApp,
				AppID: w.Event.AppID}
		}
		return e, nil
	default:
		return e, nil
	}
	if w.Event.Message == nil {
		return Event{}, fmt.Errorf("%w: it has no message", ErrNotEvent)
	}
	m, err := w.Event.Message.message()
	ids := w.Event.Sender.SenderID
	m.Sender = Sender{Type: w.Event.Sender.SenderType, OpenID: ids.open(), UnionID: ids.UnionID, UserID: ids.UserID,
		AppID: ids.AppID}
	switch {
	case err != nil:
	case m.ID == "":
		err = errors.New("message_id is missing")
	case m.ChatID == "":
		err = errors.New("chat_id is missing")
	default:
		err = checkIDs("sender open_id", ids.OpenID, "sender union_id", ids.UnionID, "sender user_id", ids.UserID)
	}
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrNotEvent, err)
	}
	e.Message, e.ChatID = &m, m.ChatID
	if m.Type == "interactive" {
		card, err := NewCard([]byte(m.Content))
		e.Streaming = err == nil && card.Streaming()
	}
	return e, nil
}

// checkIDs takes names and values in turn and tells what is wrong with one.
func checkIDs(namesAndValues ...string) error {
	for i := 0; i < len(namesAndValues); i += 2 {
		if err := relay.CheckID(namesAndValues[i+1]); err != nil {
			return fmt.Errorf("%s %w", namesAndValues[i], err)
		}
	}
	return nil
}
