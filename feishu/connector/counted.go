package connector

import "feishu-relay/feishu"

// What a connector counts.
const (
	countedConnected    feishu.Counted = "connected"     // a long connection was opened
	countedDisconnected feishu.Counted = "disconnected"  // a long connection ended
	countedRefused      feishu.Counted = "refused"       // Feishu refused the app, which somebody has to fix
	countedEvent        feishu.Counted = "event"         // an event was acknowledged
	countedEventRefused feishu.Counted = "event_refused" // an event was not stored; Feishu delivers it again
	countedEventLate    feishu.Counted = "event_late"    // the tap took too long, Feishu delivers it again
	// a frame or piece of an event that makes no sense, or an event of which pieces were missing
	countedBadFrame feishu.Counted = "bad_frame"
)

// Counted is all that Options.Counter gets.
var Counted = []feishu.Counted{
	countedConnected, countedDisconnected, countedRefused, countedEvent, countedEventRefused,
	countedEventLate, countedBadFrame,
}
