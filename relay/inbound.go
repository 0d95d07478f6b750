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

	// For doors that make something else of it; not part of the API.
	Source    *Message `json:"-"` // what it was made from
	Mentioned bool     `json:"-"` // it addresses the bot
	Final     Millis   `json:"-"` // when its text was final
}

// Timestamp writes t as the API does.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
