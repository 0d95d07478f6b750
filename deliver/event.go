package deliver

import (
	"time"

	"feishu-relay/relay"
)

// Config is what Start brings. All fields are required.
type Config struct {
	Channels []Channel     `json:"channels"` // the first open one is used
	MaxAge   time.Duration `json:"max_age"`  // RELAY_MAX_AGE
	Timeout  time.Duration `json:"timeout"`  // DELIVERY_TIMEOUT
}

// Channel is one way to the bot.
type Channel struct {
	Name   string `json:"name"`
	Serial bool   `json:"serial,omitempty"` // the next message of a chat waits for the answer
	// First and Most bound the pause after an error answer, which doubles from the one to the other.
	First time.Duration `json:"first"`
	Most  time.Duration `json:"most"`
}

// Item is a message for the bot, without its text.
type Item struct {
	Key   string          `json:"key"`            // its key in the book
	ID    relay.MessageID `json:"id"`             // relay_msg_id: the bot settles it by this
	Chat  string          `json:"chat,omitempty"` // channel and chat; "": it has no order
	Sent  relay.Millis    `json:"sent"`           // when its text was final
	From  relay.AgentName `json:"from,omitempty"` // whose it is
	Bytes int             `json:"bytes"`          // of its text
	// Waited: it has waited for an earlier message of its chat, so that it does not expire by the time it was sent.
	Waited bool `json:"waited,omitempty"`
	// Once: a write that fails ends it, as a Start does, and it never expires: the mailbox tries again, and withdraws it.
	Once bool   `json:"once,omitempty"`
	Only string `json:"only,omitempty"` // the channel by which it goes; "": any
}

// EventKind is what happened.
type EventKind string

// The kinds of events, and the fields that each has beside Kind and At.
const (
	Start    EventKind = "start"    // Config. The process starts: no channel is open, and no write is under way
	Take     EventKind = "take"     // Item is to reach the bot; its text is in the book with this event
	Open     EventKind = "open"     // Channel has the connection Conn; ID, Confirms
	Presence EventKind = "presence" // Present: whether the bot is known to be there
	Report   EventKind = "report"   // Key, Try, Result, Detail: of a Write
	Settle   EventKind = "settle"   // Call, ID, Result (Delivered, Refused or Retry), Detail: the bot says so
	Withdraw EventKind = "withdraw" // Key, Reason: it is not to reach the bot any more
	Tick     EventKind = "tick"     // it is the time that Next returned
)

// Event is something that happened. It is what the book holds: the same events make the same State.
type Event struct {
	Kind    EventKind       `json:"kind"`
	At      time.Time       `json:"at"`
	Config  *Config         `json:"config,omitempty"`
	Item    *Item           `json:"item,omitempty"`
	Channel string          `json:"channel,omitempty"`
	Conn    uint64          `json:"conn,omitempty"` // another one each time; 0: the channel is closed
	Present bool            `json:"present,omitempty"`
	Key     string          `json:"key,omitempty"`
	Try     uint64          `json:"try,omitempty"`
	ID      relay.MessageID `json:"id,omitempty"` // of an Open: the last item that the reader has
	// Confirms: what was written up to ID is delivered, since this reader does not acknowledge.
	Confirms bool         `json:"confirms,omitempty"`
	Call     string       `json:"call,omitempty"`
	Result   Result       `json:"result,omitempty"`
	Reason   relay.Reason `json:"reason,omitempty"`
	Detail   string       `json:"detail,omitempty"` // what went wrong, for people
}

// Result is what a write has come to so far, or how an item ended.
type Result string

// The results. Of a write: Written first, if it was not answered in the same moment, Accepted then, and one of the
// others at last. The first four also end an item, as Expired, TimedOut and Withdrawn do.
const (
	Delivered  Result = "delivered" // the bot has it
	Refused    Result = "refused"   // the bot will never take it
	Failed     Result = "failed"    // the bot answered with an error
	NotWritten Result = "not_written"
	Broken     Result = "broken"   // the connection ended before the answer
	Written    Result = "written"  // whole, and not answered yet
	Accepted   Result = "accepted" // the bot settles it later
	// Unconfirmed ends an item as Delivered, as far as anybody knows: the reader does not acknowledge. The next reader
	// gets it again unless the bot confirms it before.
	Unconfirmed Result = "unconfirmed"
	Retry       Result = "retry" // the bot asks for it again
	Expired     Result = "expired"
	TimedOut    Result = "timed_out"
	Withdrawn   Result = "withdrawn"
)

// Do is what an effect asks for.
type Do string

// The effects.
const (
	Write   Do = "write"   // Key to Channel on the connection Conn; reports name Try. Again: it was written before
	Cancel  Do = "cancel"  // the write Try of Key, if it is still under way: its reports do not count any more
	Blank   Do = "blank"   // the text of Key is withdrawn, and of no use to anybody
	End     Do = "end"     // Key, Chat, ID, From, Sent, Result, Channel, Reason, Detail; Late: it was TimedOut or Expired
	Drop    Do = "drop"    // the text of Key
	Respond Do = "respond" // to Call, with Err or nil
	Problem Do = "problem" // for log and status: Key is written again, because of Detail
)

// Effect is something to be done once the event is in the book. Only a Write has a result.
type Effect struct {
	Do      Do
	Key     string
	Chat    string
	From    relay.AgentName
	Sent    relay.Millis
	ID      relay.MessageID
	Channel string
	Conn    uint64
	Try     uint64
	Again   bool
	Late    bool
	Result  Result
	Reason  relay.Reason
	Detail  string
	Call    string
	Err     error // [ErrUnknown] or a [ConflictError]
}
