package mailbox

import (
	"context"
	"errors"
)

// Item is a piece of mail as it is in an inbox.
type Item struct {
	Key string // the store's name for it; another program's may be any
	Raw []byte // the envelope, as it was written
}

// Where a piece of mail is, as its sender can see it.
type Place int

// The places.
const (
	Gone      Place = iota // not found
	Waiting                // in the receiver's inbox
	Processed              // the receiver has taken it
	Aside                  // the receiver has set it aside as malformed
)

// Outcome is what became of a piece of mail that leaves an inbox.
type Outcome int

// The outcomes.
const (
	Taken     Outcome = iota // dealt with: kept as processed
	Malformed                // no envelope: quarantined as it is, for a person to look at
)

// Errors of a store.
var (
	// ErrGone says that a piece of mail is no longer in the inbox.
	ErrGone = errors.New("the message is no longer in the inbox")
	// ErrFull says that an inbox holds [MaxInbox] messages.
	ErrFull = errors.New("the inbox is full")
)

// MaxInbox is the most messages that wait in one inbox; the next is refused
// with [ErrFull] until some were taken.
const MaxInbox = 10_000

// Store carries envelopes and keeps agents' cards. It may be used by any number
// of goroutines, and by any number of processes with a Store of their own at
// the same place. Agent ids are checked with [CheckAgent] by the caller.
type Store interface {
	// Put puts m into the inbox of m.To, as m.Raw, and returns its key there.
	// When it returns nil a killed process, of either side, does not lose it.
	// Two calls never overwrite each other, also with the same id.
	Put(ctx context.Context, m Sealed) (key string, err error)

	// Again puts m, which Put stored under key, into the inbox again, in
	// the place of the earlier copy where that still waits.
	Again(ctx context.Context, key string, m Sealed) (newKey string, err error)

	// Where returns where the mail is that Put stored in to's inbox under key.
	Where(ctx context.Context, to AgentID, key string) (Place, error)

	// Receive calls take for each piece of mail in the agent's inbox, once each
	// as long as it runs: first for those that are there, oldest first, then for
	// those that come. It returns when ctx is done (with ctx's error), or with
	// another error when it cannot go on; the caller starts it again then.
	// looked is called once, when all that was there at the start has been shown;
	// nil: nobody asks. Both are called by one goroutine at a time and must not wait
	// for long.
	Receive(ctx context.Context, agent AgentID, take func(Item), looked func()) error

	// Read returns a piece of mail that Receive has shown, or [ErrGone].
	Read(ctx context.Context, agent AgentID, key string) (Item, error)

	// Settle takes mail out of the inbox. Settling what is gone is no error.
	Settle(ctx context.Context, agent AgentID, key string, how Outcome) error

	// Cards returns all agents' cards, other programs' too, in order of
	// agent_id, with the status as it was written: who judges heartbeats is the
	// caller. An entry that cannot be read is left out and left alone.
	Cards(ctx context.Context) ([]Card, error)

	// SetCard writes c as its agent's entry, and leaves every other entry as it is.
	SetCard(ctx context.Context, c Card) error

	// Close frees what the store holds. It is called once, when no other call runs.
	Close() error
}
