package relay

import "time"

// Inbound is a message as a bot gets it through the local API.
type Inbound struct {
	Channel            string         `json:"channel"`
	SenderID           string         `json:"sender_id"`
	ChatID             ChatID         `json:"chat_id"`
	Content            string         `json:"content"`
	Timestamp          string         `json:"timestamp"` // RFC 3339, UTC, milliseconds
	SessionKeyOverride string         `json:"session_key_override"`
	Metadata           map[string]any `json:"metadata"`

	// The following fields are for delivery channels that convert the message.
	// They are not part of the API.
	Source    *Message  `json:"-"` // the message it was made from; nil: mail
	Mentioned bool      `json:"-"` // the message addresses the bot
	Final     Millis    `json:"-"` // when its text was final
	ShownAs   MessageID `json:"-"` // the message_id of its event behind the gateway
	Plain     string    `json:"-"` // mail's text with its other parts, for channels that show only text
}

// ContextEnd ends the lines of other messages that precede a message's own text.
const ContextEnd = "[end of context]\n"

// Timestamp formats t as the API does.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
