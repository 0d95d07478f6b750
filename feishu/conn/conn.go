// Package conn is shared by the three packages that bring Feishu's events to a bot: longconn
// (the bot's own long connection), webhook (posts), and connector (a long connection that the
// sidecar opens for a bot without one).
//
//   - [Frame] is a message of the long connection, [Pieces] joins events that arrive in several
//     frames, [Endpoint] is the address that Feishu returns for the connection.
//   - [Tap] asks the sidecar about an event and runs what the sidecar wants done afterwards. A
//     slow or failing sidecar does not delay the bot's events.
//   - [Injections] are the injected events that were written to a bot, and its acknowledgements.
package conn

import (
	"feishu-relay/feishu"
)

// What is counted of a tap, and of injected events.
const (
	TapSlow feishu.Counted = "tap_slow" // the tap took more than feishu.AckHold: the event passed
	// an event passed without a decision: too many calls of the tap are slow, or pieces are missing
	TapSkipped   feishu.Counted = "untapped"
	TapPanicked  feishu.Counted = "panic"         // the tap or one of its follow-ups panicked
	AfterDropped feishu.Counted = "after_dropped" // a follow-up of an event was dropped: too many wait
	Injected     feishu.Counted = "injected"      // an injected event went to the bot
	Redelivered  feishu.Counted = "redelivered"   // an injected event went to the bot again
	Delivered    feishu.Counted = "delivered"     // an injected event was acknowledged with 200
	AckError     feishu.Counted = "ack_error"     // an injected event was acknowledged with another code
	// an injected event was acknowledged when its caller no longer waited
	LateAck feishu.Counted = "late_ack"
)

// Counted is what both the long connection and the webhook count.
var Counted = []feishu.Counted{
	TapSlow, TapSkipped, TapPanicked, AfterDropped, Injected, Redelivered, Delivered, AckError,
}
