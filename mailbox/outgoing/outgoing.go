// Package outgoing keeps what an agent sent until it was acknowledged: it is
// sent again, and becomes a dead letter when that does not help (docs/protocol.md 6.8).
//
// # Promise
//
// What [Box.Send] accepted reaches the receiver's inbox, also when the store is
// away or the process is killed at any point, or it becomes a dead letter. It
// may come twice, with the same id.
//
// # The clock
//
// An acknowledgement is awaited for AckTimeout, and only while the receiver is
// online: mail for an agent that is away just waits. Then the message is sent
// again after a pause ([backoff]), a few times. A message that is in the inbox of an
// agent whose mailbox acknowledges is in progress: it is not sent again, and waits until
// its life ends, since a bot may think for minutes. The receiver may also refuse a
// message and be asked again. A message's life in seconds (metadata.ttl) runs always,
// and ends all that.
//
// A message without an acknowledgement is watched: when it expires in the
// receiver's inbox, it becomes a dead letter, too. At most [maxWatched] are.
//
// # Disk
//
// Two folders, both the box's own: one file for each message that is not
// acknowledged, and one for each dead letter, named <ms>_<to>_<random>.json and
// ….msg.json. A message that dies keeps its name, so that a crash in between is
// seen.
package outgoing

import (
	"time"

	"feishu-relay/mailbox"
)

// DeadLetter is a message that could not be delivered.
type DeadLetter struct {
	ID       string           `json:"id"` // the envelope's
	Code     mailbox.Code     `json:"code"`
	Reason   string           `json:"reason"`
	Attempts int              `json:"attempts"` // how often it was sent
	DeadAt   time.Time        `json:"dead_at"`
	Expired  bool             `json:"expired,omitempty"` // its life ended before it was taken
	Envelope mailbox.Envelope `json:"envelope"`
}
