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

// What is counted of a tap, and of events of ours.
const (
	TapSlow feishu.Counted = "tap_slow" // the tap took more than feishu.AckHold: the event passed
	// an event passed unseen: too many calls of the tap are slow, or pieces are missing
	TapSkipped   feishu.Counted = "untapped"
	TapPanicked  feishu.Counted = "panic"         // the tap or what it wanted done panicked
	AfterDropped feishu.Counted = "after_dropped" // what was to be done after an event was not: too much waits
	Injected     feishu.Counted = "injected"      // an event of ours went to the bot
	Redelivered  feishu.Counted = "redelivered"   // an event of ours went to the bot again
	Delivered    feishu.Counted = "delivered"     // an event of ours was acknowledged with 200
	AckError     feishu.Counted = "ack_error"     // an event of ours was acknowledged with another code
	// an event of ours was acknowledged when nobody waited for that any more
	LateAck feishu.Counted = "late_ack"
)

// Counted is what both the long connection and the webhook count.
var Counted = []feishu.Counted{
	TapSlow, TapSkipped, TapPanicked, AfterDropped, Injected, Redelivered, Delivered, AckError,
}
