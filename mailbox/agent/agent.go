// Package agent runs the mailbox of one agent: it registers the agent, receives its mail,
// decides what is accepted, delivers it to the bot, and sends the bot's mail to other agents.
//
// # The path of a message
//
// Sending: [Agent.Send] completes and checks an envelope, and writes it down as a letter, with the task that it gives.
// [Agent.watchTimes] puts letters into the receivers' inboxes. Each letter has a phase and a time at which something
// is due in it. While the receiver is online, mail without an acknowledgement is sent again with
// back-off, and in the end becomes a dead letter.
//
// Receiving: [Agent.sort] reads the inbox and drops duplicates. Depending on the type it either
// handles an envelope completely (acknowledgements, pings, task states without a text) or
// puts it into the queue of messages that are ready for the bot. [Agent.deliver] delivers these,
// by priority and then by time, through the open delivery channel. Without one they wait for
// [Agent.Drain]. Once the bot has a message, it is recorded as seen, acknowledged if that was
// requested, and moved to processed. After a crash in between it is delivered again, with the
// same id.
//
// One mutex guards letters, tasks, the queue and the book. What follows from one event is in the book with one
// commit: a letter that dies, the task that it gave and the notice for the bot, for example.
//
// Messages that no open channel fits are skipped, so that a result for a chat does not wait
// behind a task for a stream without a reader. Only ids are in memory; the texts of waiting
// mail stay in the store and are read when they are delivered.
//
// # Acknowledgement
//
// An acknowledgement means that the bot has the message; for tasks and their states, that they
// are recorded, even if the bot reads its mail only once an hour. On files, mail in another
// program's processed folder counts as acknowledged. A message in the inbox of an agent whose
// card has a protocol is in progress and is not sent again before it expires. A task that
// failed because its receiver was silent still accepts a late result, which removes its dead
// letter. Plain messages without requiresAck are neither acknowledged nor repeated: their sender
// watches them in the receiver's inbox (up to 1,000), and one that expires there, or is
// quarantined, becomes a dead letter.
//
// # Two kinds of refusal
//
// A mistake of a caller on this side is returned to it as a [mailbox.Error]. A mistake of
// another agent is answered to that agent: with a nack if it asked for an acknowledgement, with
// a task_update in the state rejected for a task.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"feishu-relay/book"
	"feishu-relay/internal/wait"
	"feishu-relay/mailbox"
)

// Times.
const (
	retryFirst     = 100 * time.Millisecond // of what the disk, the store or the bot refused; doubled up to
	retryMax       = 10 * time.Second
	awayMax        = 2 * time.Second        // longest pause while a store may be away: mail waits for it
	cardsFresh     = time.Second            // how long the registry is taken from memory when it decides about retries
	offlineWait    = time.Second            // for marking the agent offline when the process stops
	maxGoals       = 64                     // live goals of one agent; the next is refused, and gets no messages
	maxDelivered   = 1000                   // messages that may still be passed on; an older one is refused
	maxCursors     = 64                     // drains that a cursor still confirms
	maxFirstLook   = 30 * time.Second       // how long deliveries wait after a start for the first listing of the inbox
	warnFirst      = 20                     // malformed messages that are logged as warnings one by one; later
	warnEvery      = 10 * time.Second       // one in this time is
	lookAgainAfter = 500 * time.Millisecond // the inbox, for what could not be dealt with
	maxBroadcast   = 20                     // agents that a message to "*" reaches; the others are named as unreachable
)

// Delivery is a message on its way to the bot.
type Delivery struct {
	mailbox.Envelope
	// Conversation is where a result belongs; nil: the conversation with its sender.
	Conversation *mailbox.Callback
}

// Progress is called while a message is being delivered. Both functions may be called at any
// time until that ends, and more than once.
type Progress struct {
	Written func() // the bot has the whole message, and has not answered
	Next    func() // the next message of the same conversation may follow
}

// Settled is the reason for ending a delivery: the bot acknowledged or refused the message
// through the API.
type Settled struct{ Refused bool }

func (s *Settled) Error() string { return "the message was settled" }

// Channels are the delivery channels to the bot.
type Channels interface {
	// Deliver writes d once and returns when the bot has answered: nil when it has
	// d, an error that wraps [ErrRefused] when it will never take it, [ErrTimedOut]
	// when it did not answer, [ErrNoChannel] when no channel is open for d until a channel opens
	// or a task ends, and any other when it may be tried again. When ctx is cancelled with a [Settled], d was
	// settled elsewhere.
	Deliver(ctx context.Context, d Delivery, on Progress) error
	// Changed is closed when a channel has opened since.
	Changed() <-chan struct{}
}

// Errors.
var (
	ErrRefused   = errors.New("the bot refused the message")
	ErrNoChannel = errors.New("the bot has no open delivery channel")
	// ErrTimedOut says that the bot has a message and did not answer in time. It is
	// not written again, and waits in the inbox for an acknowledgement.
	ErrTimedOut = errors.New("the bot did not answer in time")
)

// Options of an Agent. All are required, but for those that say what their zero value means.
type Options struct {
	Self         mailbox.AgentID
	Description  string
	Capabilities []string
	AllowFrom    []mailbox.AgentID // whose messages are accepted; nil: everybody's
	Delegates    []mailbox.AgentID // whom this agent may send to; nil: everybody
	MaxTasks     int

	Store mailbox.Store
	State *os.Root // the agent's own folder, for its book
	// Signing verifies the mail that comes; the store signs.
	Signing  mailbox.Signing
	Channels Channels
	// Hears reports whether a conversation is a group whose messages this bot
	// gets anyway: results may arrive there.
	Hears func(channel, chat string) bool

	Heartbeat, HeartbeatTimeout time.Duration
	AckTimeout, RetryBase       time.Duration
	DeliveryTimeout             time.Duration // for the bot's answer to a message
	MaxAge                      time.Duration // how long a message is tried again that the bot fails on
	MaxRetries                  int
	MaxExchanges                int // 0: no limit

	Logger *slog.Logger // nil: discard
	// Trace is called at the steps that a crash between them matters for.
	Trace func(step string)
	// Failed is called with errors of the disk, the store and the bot.
	Failed func(part string, err error)
	// Observe is called with everything that happens to a message.
	Observe func(Event)
	// Complete adds to the card what only the sidecar knows; the agent fills in Inbox and
	// Unacknowledged of its Queues. nil: the card has none of that.
	Complete func(*mailbox.Card)
}

// Event is what happened to a message.
type Event struct {
	What     What
	Envelope mailbox.Envelope
	Reason   string // for refusals
}

// What can happen to a message.
type What string

// The events; logs and metrics use the same words.
const (
	EventSent      What = "sent"
	EventReceived  What = "received" // ready for the bot
	EventDelivered What = "delivered"
	EventRefused   What = "refused"
	EventDuplicate What = "duplicate"
	EventExpired   What = "expired"
	EventMalformed What = "malformed"
	// EventBadSignature: not signed with this secret, and quarantined.
	EventBadSignature What = "bad_signature"
	EventDropped      What = "dropped"
	EventDead         What = "dead"
	// EventUndeliverable: the bot did not answer, or only with errors.
	EventUndeliverable What = "undeliverable"
	EventControl       What = "control" // dealt with here: acknowledgements, pings, bare steps of tasks
)

// Agent is one agent's mailbox at work. Its methods may be called by any number
// of goroutines.
type Agent struct {
	opts        Options
	log         *slog.Logger
	random      func() float64       // for backoff
	warned      rate.Sometimes       // of malformed mail
	line        atomic.Pointer[line] // the bot's WebSocket; nil: it keeps none open
	wake        chan struct{}        // has a value if something is due earlier than [Agent.watchTimes] knows
	again       chan struct{}
	forwardable *lru.Cache[string, origin]   // what the bot was given last: it may pass it on
	handedOut   *lru.Cache[string, []string] // names of the messages that drains handed out, by cursor
	looked      chan struct{}                // closed when all that was in the inbox at the start was seen
	lookedOnce  func()                       // closes it
	reading     sync.Mutex                   // guards the next two
	cardsRead   time.Time                    // when the registry was read
	cardsErr    error                        // of that
	turn        *semaphore.Weighted          // of who writes the card
	left        bool                         // Run is over, and the agent stays offline; of who has the turn

	mu        sync.Mutex                              // guards what follows; no call of the store is made with it
	book      *book.Book                              // anybody may read it
	receivers map[mailbox.AgentID]*receiver           // of all letters
	queue     queue                                   // what waits for the bot
	lookAgain func(why error)                         // has the inbox looked at again after a pause
	named     int64                                   // the time in the newest letter's name, in nanoseconds
	tasks     ledger                                  // taken and given
	pairs     *lru.Cache[mailbox.AgentID, []exchange] // what was exchanged with each agent lately, the oldest first
	cards     []mailbox.Card                          // of all agents, a second ago or less when it matters
	card      mailbox.Card                            // this agent's; without goals, the goal is the agent's name
}

// New opens what is on disk. It starts nothing.
func New(o Options) (_ *Agent, err error) {
	a := &Agent{opts: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), random: mathrand.Float64,
		queue: newQueue(), wake: make(chan struct{}, 1), again: make(chan struct{}, 1),
		turn:   semaphore.NewWeighted(1),
		looked: make(chan struct{}), warned: rate.Sometimes{First: warnFirst, Interval: warnEvery},
		receivers: map[mailbox.AgentID]*receiver{}, tasks: ledger{},
		lookAgain: func(error) {}}
	a.lookedOnce = sync.OnceFunc(func() { close(a.looked) })
	a.forwardable, _ = lru.New[string, origin](maxDelivered) // fails only for a size below 1
	a.handedOut, _ = lru.New[string, []string](maxCursors)
	a.pairs, _ = lru.New[mailbox.AgentID, []exchange](maxPairs)
	if a.book, err = openBook(o.State, a.log); err != nil {
		return nil, err
	}
	if err = a.restore(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	a.card = mailbox.Card{AgentID: o.Self, Description: o.Description, Capabilities: o.Capabilities,
		AllowFrom: o.AllowFrom, MaxTasks: o.MaxTasks, RegisteredAt: time.Now().UTC(), Protocol: mailbox.Protocol}
	if o.AllowFrom == nil {
		a.card.AllowFrom = []mailbox.AgentID{"*"}
	}
	return a, nil
}

// Close frees what New opened. Run has returned by then.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.book.Close()
}

// Run works until ctx is done; then the agent goes offline.
func (a *Agent) Run(ctx context.Context) {
	defer time.AfterFunc(maxFirstLook, a.lookedOnce).Stop()
	var work sync.WaitGroup
	for name, part := range map[string]func(context.Context) error{
		"presence": a.present, "inbox": a.receive,
		"times": a.watchTimes, "channels": a.watchChannels,
		"delivery": a.deliver,
	} {
		work.Go(func() { a.keep(ctx, name, part) })
	}
	work.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), offlineWait)
	defer cancel()
	if err := a.writeCard(last, true); err != nil {
		a.log.Warn("the agent is not marked as offline; the others notice by its heartbeat", "err", err)
	}
}

// keep starts a part again that ended early.
func (a *Agent) keep(ctx context.Context, name string, part func(context.Context) error) {
	again, outage := wait.NewBackoff(retryFirst, awayMax), ""
	for {
		began := time.Now()
		err := part(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > retryMax { // it has worked: where a store does not answer, that is noticed sooner
			again.Reset()
			outage = ""
		}
		if text := fmt.Sprint(err); text != outage { // else it was logged
			outage = text
			a.log.Warn("a part of the mailbox was restarted", "part", name, "err", err)
		}
		a.opts.Failed(name, err)
		if again.Sleep(ctx) != nil {
			return
		}
	}
}

// awaitFirstLook waits until all that was in the inbox at the start was seen, so
// that the most urgent goes first, but for at most maxFirstLook.
func (a *Agent) awaitFirstLook(ctx context.Context) error {
	return wait.Change(ctx, time.Time{}, a.looked)
}

// Self is the agent whose mailbox this is.
func (a *Agent) Self() mailbox.AgentID { return a.opts.Self }

// observe logs and counts. reason is in words of ours: what an agent wrote is not
// logged.
func (a *Agent) observe(what What, e mailbox.Envelope, reason string) {
	level := slog.LevelDebug
	switch what {
	case EventSent, EventDelivered, EventReceived:
		level = slog.LevelInfo
	case EventMalformed, EventBadSignature: // anybody who can write to the inbox can make any number of these
		a.warned.Do(func() { level = slog.LevelWarn })
	case EventRefused, EventExpired, EventDropped, EventDead, EventUndeliverable:
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("event", string(what)), slog.String("message_id", e.ID),
		slog.String("type", string(e.Type)), slog.String("from", string(e.From)), slog.String("to", string(e.To))}
	if e.Task != nil {
		attrs = append(attrs, slog.String("task_id", e.Task.ID), slog.String("state", string(e.Task.State)))
	}
	if reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	a.log.LogAttrs(context.Background(), level, "mail", attrs...)
	a.opts.Observe(Event{What: what, Envelope: e, Reason: reason})
}

// Peer is another agent as list_peers shows it (docs/protocol.md 6.7), described for a model.
type Peer struct {
	AgentID     mailbox.AgentID `json:"agent_id" jsonschema:"its name"`
	Description string          `json:"description" jsonschema:"what it says that it is for"`
	// Reachable: allowed by ALLOWED_DELEGATES, alive, and accepting this agent's messages.
	Reachable bool           `json:"reachable" jsonschema:"you may write to it, and it is alive"`
	Status    mailbox.Status `json:"status" jsonschema:"what it can do now: idle, busy or offline"`
	Reason    string         `json:"reason,omitempty" jsonschema:"why it is not reachable"`
}

// Peers is the answer of list_peers.
type Peers struct {
	Peers []Peer `json:"peers" jsonschema:"every known agent but you"`
	Note  string `json:"note,omitempty" jsonschema:"anything else about this list"`
}

// PeerMessage is what send_to_peer is given. To may be "*".
type PeerMessage struct {
	To            mailbox.AgentID `json:"to"`
	Message       string          `json:"message"`
	CorrelationID string          `json:"correlation_id,omitempty"` // a UUID; anything else is left out
}

// PeerResult is the answer of send_to_peer. Its lists are never nil.
type PeerResult struct {
	DeliveredTo        []string `json:"delivered_to" jsonschema:"the goals (sessions) of receivers that got it"`
	UnreachableReasons []string `json:"unreachable_reasons" jsonschema:"who did not, and why"`
}

// Draft is an envelope to send: what is left out is filled in. From may be
// empty or this agent; anybody else is refused.
type Draft struct {
	mailbox.Envelope
	ForwardOf string // id of a message or task received: its hops and trace go on
}

// Sent is the answer to what was accepted for sending, described for a model.
type Sent struct {
	ID     string `json:"id" jsonschema:"of the message"`
	TaskID string `json:"task_id,omitempty" jsonschema:"of the task: updates on it carry it"`
	// ExpiresAt: zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero" jsonschema:"until when it can be taken"`
	Note      string    `json:"note,omitempty"`
}

// TaskDraft is a task to give to another agent.
type TaskDraft struct {
	To        mailbox.AgentID   `json:"to"`
	Text      string            `json:"text"`
	Data      []mailbox.Part    `json:"parts,omitempty"` // further parts
	TaskID    string            `json:"task_id,omitempty"`
	Deadline  time.Time         `json:"deadline,omitzero"`
	Priority  mailbox.Priority  `json:"priority,omitempty"`
	Callback  *mailbox.Callback `json:"callback,omitempty"` // where the result belongs
	ForwardOf string            `json:"forward_of,omitempty"`
}

// TaskUpdate is a step of a task that this agent took.
type TaskUpdate struct {
	TaskID string            `json:"task_id"`        // "": the oldest open one
	From   mailbox.AgentID   `json:"from,omitempty"` // who gave it; needed where two gave the same id
	State  mailbox.TaskState `json:"state"`
	Text   string            `json:"text,omitempty"` // the result, the reason or the progress
	Parts  []mailbox.Part    `json:"parts,omitempty"`
}

// Mail is a message that waits for the bot.
type Mail struct {
	mailbox.Envelope
	Goal string `json:"goal_id"` // the session that it is for
}

// MarshalJSON writes the envelope with the goal in "goal_id".
func (m Mail) MarshalJSON() ([]byte, error) {
	envelope, err := mailbox.Encode(m.Envelope)
	if err != nil {
		return nil, err
	}
	goal, err := json.Marshal(m.Goal)
	return fmt.Appendf(envelope[:len(envelope)-1], `,"goal_id":%s}`, goal), err
}

// Drained is what read_inbox gives. It waits until it is confirmed ([Agent.Drain]).
type Drained struct {
	Messages []Mail `json:"messages"`
	Rendered string `json:"rendered"` // for a model: "# PEER MESSAGES …", escaped; "" without messages
	Dropped  int    `json:"dropped"`  // older peer messages that the buffer had no room for
	Waiting  int    `json:"waiting"`  // besides these, of those that were asked for
	Cursor   string `json:"cursor"`   // confirms these messages; "" without messages
}
