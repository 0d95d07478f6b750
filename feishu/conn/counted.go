package conn

import "feishu-relay/feishu"

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
