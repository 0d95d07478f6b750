package relay

import (
	"context"
	"errors"
	"time"
)

// ErrForgotten means that a backend has lost lines it had accepted. It has not accepted the lines
// of the failed Publish either.
var ErrForgotten = errors.New("the backend has lost messages it had accepted")

// Receipt is a backend's proof of the last line it accepted. It can be stored; only the backend
// reads it. It is empty before the first line.
type Receipt string

// Publisher hands encoded messages to every sidecar, this one included.
//
// It is safe for concurrent use, though order is promised only among the calls
// of one goroutine. It does not keep lines after it returned.
type Publisher interface {
	// Publish appends lines (without newlines) in order. A nil error means
	// that every running and every returning subscriber will get them. After an error
	// some of them may have been accepted: the caller publishes all of them
	// again, and readers drop the repeats.
	//
	// after is the receipt of the publisher's previous call, "" before the first.
	// A backend that can lose lines verifies in the same step that it still holds
	// that line. If not, it accepts nothing and returns an error that wraps
	// ErrForgotten; the caller then publishes again all lines behind an earlier receipt that
	// the backend still has, or all it keeps, with an empty after. Without lines only this
	// check is made.
	//
	// The call is bounded by ctx and by the backend's own timeout.
	Publish(ctx context.Context, lines [][]byte, after Receipt) (Receipt, error)
}

// Delivery is one line as a subscriber read it.
type Delivery struct {
	// Line is the encoded message without its newline; the handler owns it. It
	// need not be valid, since other programs write to the queue too.
	Line []byte
	// History marks a line that was in the queue before this sidecar's first
	// start: it is for the transcript only.
	History bool
	// Settle marks the line as settled: it need not be read again after a restart.
	// Any goroutine may call it. It does not block on I/O; further calls do nothing.
	Settle func()
}

// Handler takes a delivery. It may block: that is the backpressure.
type Handler func(ctx context.Context, d Delivery)

// Subscriber reads the queue for one agent.
type Subscriber interface {
	// Subscribe calls h for each line, in the order of the queue and one at a time, until
	// ctx is done, and then returns nil after it stored its position, the oldest
	// unsettled line. It holds at most MaxUnsettled lines (or MaxUnsettledBytes)
	// unsettled. Faults of the backend are retried and shown in Status; an error is returned
	// only if a retry cannot help.
	//
	// A line handed over but not settled when the process ends is handed over
	// again after the next start. Only one call may run at a time.
	Subscribe(ctx context.Context, h Handler) error
}

// Claimer lets one of several processes do what must be done once.
type Claimer interface {
	// Claim claims key for owner, a text of this process's choice, and returns who holds it:
	// owner, if no other process that uses the same backend claimed the key before. Repeating
	// one's own claim returns owner too. The claim expires after life, which is at least a
	// second: then the key can be claimed again. All claims of a key give the same life. After
	// an error the holder is unknown.
	//
	// On Redis a key may be claimed twice: after a failover to a replica that lacks the
	// claim, a flush, or an eviction.
	Claim(ctx context.Context, key, owner string, life time.Duration) (holder string, err error)
}

// Backend is a queue that connects the sidecars: a folder of JSONL files or a
// Redis. Close may be called more than once and ends calls that wait.
type Backend interface {
	Publisher
	Subscriber
	Claimer
	Status() Status
	Close() error
}

// Status is the state of a backend's reader.
type Status struct {
	Connected bool   `json:"connected"` // the backend answers
	Reading   bool   `json:"reading"`   // Subscribe has caught up or is catching up
	Unsettled int    `json:"unsettled"` // lines handed over and not settled
	Lag       int64  `json:"lag"`       // still to be read: bytes of a file, entries of a stream
	Error     string `json:"error,omitempty"`
}
