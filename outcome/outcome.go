// Package outcome is what became of a message at a bot, as the API and the commands show it, and what people can do about
// each reason.
package outcome

import (
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Outcome is what became of one message at one bot, as far as is known. It holds no
// message text.
type Outcome struct {
	Agent      relay.AgentName `json:"agent"` // whose sidecar noted it
	Channel    string          `json:"channel"`
	ChatID     relay.ChatID    `json:"chat_id"`
	RelayMsgID relay.MessageID `json:"relay_msg_id"`
	Sender     relay.AgentName `json:"sender,omitempty"`    // author of the message
	ThreadID   string          `json:"thread_id,omitempty"` // topic of the message

	At           relay.Millis     `json:"at"`                 // of the newest change
	Decision     *policy.Decision `json:"decision,omitempty"` // nil: not made, or not yet. Immutable
	Stopped      relay.Reason     `json:"stopped,omitempty"`  // why it will not be delivered
	Detail       string           `json:"detail,omitempty"`   // the error behind Stopped
	Delivered    relay.Millis     `json:"delivered_at,omitempty"`
	Door         string           `json:"door,omitempty"`            // delivery channel: gateway, webhook or stream
	Acknowledged relay.Millis     `json:"acknowledged_at,omitempty"` // by a bot that acknowledges on the stream
}
