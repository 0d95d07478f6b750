package relay

import (
	"context"
	"errors"
	"time"
)

// ErrForgotten says that a backend no longer holds what it accepted earlier: it
// came back emptier than it was. What was handed to the failed Publish was not
// taken either.
var ErrForgotten = errors.New("the backend has lost messages it had accepted")

// Receipt is a backend's proof of the last line it accepted; opaque outside of
// it, storable, empty when there is none.
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
	// after is the receipt of the publisher's previous call, "" if there is none.
	// Where the backend can lose what it accepted, it verifies in the same
	// step that it still holds it, and else takes nothing and returns an error
	// that wraps ErrForgotten; the caller then publishes again, with after
	// empty, all it still keeps. Without lines only this is verified.
	//
	// ctx bounds the call, and so does a time-out of the backend's own.
	Publish(ctx context.Context, lines [][]byte, after Receipt) (Receipt, error)
}

// Delivery is one line as a subscriber read it.
type Delivery struct {
	// Line is the encoded message without its newline; the handler owns it. It may
	// be anything, since other programs write to the queue too.
	Line []byte
	// History marks a line that was in the queue before this sidecar's first
	// start: it is for the transcript only.
	History bool
	// Settle says that the line is dealt with and need not be read again after a
	// restart. It is called from any goroutine and does not block on I/O; calling it
	// again does nothing.
	Settle func()
}

// Handler takes a delivery. It may block: that is the backpressure.
type Handler func(ctx context.Context, d Delivery)

// Subscriber reads the queue for one agent.
type Subscriber interface {
	// Subscribe calls h for each line, in the order of the queue and one at a
	// time, until ctx is done, and then returns nil after it stored its
	// position, the oldest unsettled line. It reads at most MaxUnsettled lines
	// (or MaxUnsettledBytes) beyond it. Faults of the backend are waited out and shown in
	// Status; an error is returned only where waiting cannot fix it.
	//
	// A line handed over but not settled when the process ends is handed over
	// again after the next start. It is called at most once at a time.
	Subscribe(ctx context.Context, h Handler) error
}

// Follower reads the queue without a position of its own.
type Follower interface {
	// Follow hands over all lines, first those that are kept, the oldest first, then
	// each new one, until ctx is done, and then returns nil. take is called by one
	// goroutine at a time and must not keep line; it may be anything, and may come
	// again. caughtUp is called once, by the same goroutine, when what was there has been
	// handed over; whole says that this was all that was ever published, as far as the
	// backend can tell: of what left it without a trace nobody knows. Faults are
	// waited out. It may be called several times at once, and beside Subscribe.
	Follow(ctx context.Context, take func(line []byte), caughtUp func(whole bool)) error
}

// Claimer lets one of several processes do what must be done once.
type Claimer interface {
	// Claim claims key for owner, a text of this process's choice, and returns who holds it:
	// owner, where nobody else claimed the key before, of all processes that use the same
	// backend. Who claims a key again that it holds gets itself. The claim is forgotten after
	// life, which is at least a second: then the key can be claimed again. All who claim a key
	// give the same life. After an error nobody knows who holds the key.
	//
	// On Redis a claim may be given twice: after a failover to a replica that had not got
	// it, a flush, or an eviction.
	Claim(ctx context.Context, key, owner string, life time.Duration) (holder string, err error)
}

// Backend is a queue that connects the sidecars: a folder of JSONL files or a
// Redis. Close may be called more than once and ends what waits.
type Backend interface {
	Publisher
	Subscriber
	Follower
	Claimer
	Status() Status
	Close() error
}

// Status is how a backend's reading side is.
type Status struct {
	Connected bool   `json:"connected"` // the backend answers
	Reading   bool   `json:"reading"`   // Subscribe is caught up or catching up
	Unsettled int    `json:"unsettled"` // lines handed over and not settled
	Lag       int64  `json:"lag"`       // still to be read: bytes of a file, entries of a stream
	Error     string `json:"error,omitempty"`
}
