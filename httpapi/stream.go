package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// Errors of Offer.
var (
	// ErrNoReader means that the stream has no reader, or lost it before the end of
	// the message.
	ErrNoReader = errors.New("the stream has no reader")
	// ErrReaderGone means that the reader's connection ended before it
	// acknowledged.
	ErrReaderGone = errors.New("the reader left before it acknowledged")
)

// Stream delivers inbound messages to the bot that reads GET /v1/stream. It has
// one reader at a time: a new one replaces the old one, whose connection is
// closed with a notice.
//
// That a message was written does not show that the bot has it. So a message that
// the bot has not confirmed is written again on the next connection, never on the
// same, also after a restart. A bot confirms a message by acknowledging it, over
// the WebSocket or through the API; a reader that does not acknowledge confirms
// by naming the last message it got (`Last-Event-ID`). To a reader that connects
// with `?ack=false`, what was written is confirmed. A reader that names a message
// gets those written after it again, also confirmed ones.
//
// A reader acknowledges if it connects with `?ack=true`, or if this bot ever
// acknowledged a message, also before a restart. Then a message counts as
// delivered only when it is acknowledged; else when it is written.
//
// A message enters the history and the journal before it is written. In the other
// order, after a crash between the two a bot could name a message unknown here,
// and would get all kept messages again.
type Stream struct {
	StreamOptions

	mu          sync.Mutex
	reader      *reader        // guarded by mu, as the rest is
	connections uint64         // so far
	arrived     chan struct{}  // closed when a reader comes
	history     []*delivered   // oldest first
	bytes       int            // of history
	journal     *jsonl.Journal // of history, for replay after a restart
	acking      bool           // this bot acknowledges
	closed      bool
}

// delivered is a message of the history: written, or being written. One that is in the history does not change, but
// for Confirmed and Withdrawn.
type delivered struct {
	ID        relay.MessageID `json:"id,omitempty"`
	At        relay.Millis    `json:"at,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`      // empty in the journal: an earlier line has it
	Shows     []string        `json:"shows,omitempty"`     // the messages quoted before its own text
	Confirmed bool            `json:"confirmed,omitempty"` // the bot has it
	Withdrawn bool            `json:"withdrawn,omitempty"` // is not written again
	Acking    bool            `json:"acking,omitempty"`    // a line of the journal: this bot acknowledges
}

// reader is one connection.
type reader struct {
	connection
	ctx   context.Context
	gone  context.CancelCauseFunc
	turn  chan struct{} // who writes has put one in
	never bool          // it connected with ack=false: what was written is confirmed
	acks  bool          // it acknowledges; guarded by Stream.mu
	has   map[relay.MessageID]struct{}
}

// connection is how a reader connects.
type connection struct {
	lastID relay.MessageID // the last message it got; "": not given
	ack    *bool           // whether it acknowledges; nil: if the bot ever did
	begin  func()          // is called before all else
	write  func(*delivered) error
	beat   func() error // shows that the connection lives
}

// StreamOptions configures a stream.
type StreamOptions struct {
	Root    *os.Root              // folder of the journal
	Name    string                // its name
	MaxAge  time.Duration         // RELAY_MAX_AGE: older messages are not replayed
	Receipt func(relay.MessageID) // called for each acknowledgement; may be nil
	Logger  *slog.Logger
}

// NewStream opens a stream with the journal that an earlier process left.
func NewStream(o StreamOptions) (*Stream, error) {
	s := &Stream{StreamOptions: o, arrived: make(chan struct{})}
	if o.Receipt == nil {
		s.Receipt = func(relay.MessageID) {}
	}
	s.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	var err error
	if s.journal, err = jsonl.OpenJournal(o.Root, o.Name, journalBytes, s.take); err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return s, nil
}

// Offer writes a message to the reader of one connection, 0: of any, and returns nil when it is
// delivered: written and flushed or, if the reader acknowledges, acknowledged.
// written is called before it waits for that. Offer returns [ErrNoReader], [ErrReaderGone] or the error of ctx.
func (s *Stream) Offer(ctx context.Context, conn uint64, id relay.MessageID, in relay.Inbound, written func()) error {
	data, err := relay.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode inbound message: %w", err)
	}
	s.mu.Lock()
	r, other := s.reader, conn > 0 && conn != s.connections
	s.mu.Unlock()
	if r == nil || other {
		return ErrNoReader
	}
	select {
	case r.turn <- struct{}{}:
	case <-r.ctx.Done():
		return ErrNoReader
	case <-ctx.Done():
		return ctx.Err()
	}
	err = s.give(r, &delivered{ID: id, At: relay.MillisOf(time.Now()), Data: data, Shows: in.Shows})
	<-r.turn
	if err != nil {
		return ErrNoReader
	}
	s.mu.Lock()
	m := s.find(id)
	isDelivered := !r.acks || m != nil && m.Confirmed
	s.mu.Unlock()
	if isDelivered {
		return nil
	}
	written()
	select {
	case <-r.ctx.Done():
		return ErrReaderGone
	case <-ctx.Done(): // the delivery has ended in another way, or the sidecar stops
		s.Withdraw(id)
		return ctx.Err()
	}
}

// give writes m to r, whose turn the caller has, unless r has it already.
func (s *Stream) give(r *reader, m *delivered) error {
	if _, ok := r.has[m.ID]; ok {
		delete(r.has, m.ID) // offered again at the bot's request
		return nil
	}
	s.mu.Lock()
	mine := s.reader == r
	if mine {
		s.remember(m)
		s.note(m)
	}
	s.mu.Unlock()
	if !mine { // its turn ended while m waited
		return web.ErrReplaced
	}
	return s.write(r, m)
}

// write writes m. If r's turn ended meanwhile, it is unknown whether the bot has m, and the next reader gets it.
func (s *Stream) write(r *reader, m *delivered) error {
	err := r.connection.write(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	m = cmp.Or(s.find(m.ID), m) // a recall may have replaced it
	if err == nil && s.reader != r && !m.Confirmed {
		err = web.ErrReplaced
	}
	if err != nil {
		s.end(r, err)
	} else if r.never {
		s.mark(m, true, m.Withdrawn)
	}
	return err
}

// end ends r's turn; the caller holds mu.
func (s *Stream) end(r *reader, why error) {
	r.gone(why)
	if s.reader == r {
		s.reader = nil
	}
}

// Connected reports whether the stream has a reader.
func (s *Stream) Connected() bool { return s.Connection() > 0 }

// Connection is the number of the reader's connection, another one for each; 0: there is none.
func (s *Stream) Connection() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil {
		return 0
	}
	return s.connections
}

// Arrived is closed when the next reader connects, or the stream is closed.
func (s *Stream) Arrived() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

// serve makes the caller the reader until its connection or ctx ends, and returns the cause.
func (s *Stream) serve(ctx context.Context, c connection) error {
	r := &reader{connection: c, turn: make(chan struct{}, 1), has: map[relay.MessageID]struct{}{}}
	r.ctx, r.gone = context.WithCancelCause(ctx)
	r.turn <- struct{}{} // what is written again comes first
	again, err := s.attach(r)
	if err != nil {
		return err
	}
	c.begin()
	for _, m := range again {
		if r.ctx.Err() == nil {
			_ = s.write(r, m) // an error ends the turn
		}
	}
	<-r.turn
	quiet := time.NewTicker(web.KeepAlive)
	defer quiet.Stop()
	for r.ctx.Err() == nil {
		select {
		case <-r.ctx.Done():
			continue
		case <-quiet.C:
		}
		select {
		case <-r.ctx.Done():
		case r.turn <- struct{}{}:
			if err := c.beat(); err != nil {
				r.gone(err)
			}
			<-r.turn
		}
	}
	s.mu.Lock()
	s.end(r, nil)
	s.mu.Unlock()
	r.turn <- struct{}{} // nothing is written to the connection any more
	return context.Cause(r.ctx)
}

// attach makes r the reader and returns the messages to write to it again first. An unknown last
// id is older than all kept messages, so these all come after it.
func (s *Stream) attach(r *reader) (again []*delivered, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, relay.Errorf(web.CodeStopping, "%v", web.ErrStopping)
	}
	if r.acks = s.acking; r.ack != nil {
		r.acks, r.never = *r.ack, !*r.ack
	}
	if s.reader != nil {
		s.reader.gone(web.ErrReplaced)
	}
	s.reader = r
	s.connections++
	close(s.arrived)
	s.arrived = make(chan struct{})
	after, oldest := len(s.history), relay.MillisOf(time.Now().Add(-s.MaxAge))
	if r.lastID != "" {
		after = 1 + slices.IndexFunc(s.history, func(m *delivered) bool { return m.ID == r.lastID })
	}
	for i, m := range s.history {
		if i < after && r.lastID != "" && !r.acks {
			s.mark(m, true, m.Withdrawn)
		}
		owed := !m.Confirmed || i >= after
		if m.Withdrawn || owed && m.At < oldest {
			continue // offered again if it is in progress
		}
		if owed {
			again = append(again, m)
		}
		r.has[m.ID] = struct{}{}
	}
	return again, nil
}

// Acknowledge records that the bot has a message of this stream, and that it
// acknowledges.
func (s *Stream) Acknowledge(id relay.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(id) != nil {
		s.acknowledge(id)
	}
}

// acknowledge is Acknowledge; the caller holds mu.
func (s *Stream) acknowledge(id relay.MessageID) {
	if !s.acking {
		s.acking = true
		s.note(&delivered{Acking: true})
	}
	if s.reader != nil && !s.reader.never {
		s.reader.acks = true
	}
	if m := s.find(id); m != nil {
		s.mark(m, true, m.Withdrawn)
	}
}

// ack is Acknowledge by the reader itself, for any message.
func (s *Stream) ack(id relay.MessageID) {
	s.mu.Lock()
	s.acknowledge(id)
	s.mu.Unlock()
	s.Receipt(id)
}

// Withdraw prevents a message whose delivery ended in another way from being
// written again.
func (s *Stream) Withdraw(id relay.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.find(id); m != nil {
		s.mark(m, m.Confirmed, true)
	}
}

// Stop closes the reader with the notice that the sidecar stops, and ends calls
// that wait for a reader. It may be called more than once.
func (s *Stream) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.reader != nil {
		s.reader.gone(web.ErrStopping)
	}
	close(s.arrived)
	s.arrived = make(chan struct{})
}

// Close stops the stream and closes its journal. It may be called more than
// once.
func (s *Stream) Close() error {
	s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.journal.Close()
}
