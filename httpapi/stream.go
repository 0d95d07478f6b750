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
	maxAge  time.Duration
	logger  *slog.Logger
	receipt func(relay.MessageID) // called for each acknowledgement

	mu          sync.Mutex
	reader      *reader       // guarded by mu
	connections uint64        // so far; guarded by mu
	arrived     chan struct{} // closed when a reader comes; guarded by mu
	history     []*delivered  // oldest first; guarded by mu
	bytes       int           // of history; guarded by mu
	closed      bool          // guarded by mu
	acking      bool          // this bot acknowledges; guarded by mu

	journal *jsonl.Journal // of delivered messages, for replay after a restart; guarded by mu
}

// delivered is a message of the history: written, or being written.
type delivered struct {
	ID        relay.MessageID `json:"id"`
	At        relay.Millis    `json:"at"`
	Data      json.RawMessage `json:"data,omitempty"`      // empty in the journal: an earlier line has it
	Shows     []string        `json:"shows,omitempty"`     // the messages quoted before its own text
	Confirmed bool            `json:"confirmed,omitempty"` // the bot has it; guarded by Stream.mu
	Withdrawn bool            `json:"withdrawn,omitempty"` // is not written again; guarded by Stream.mu
}

// reader is one connection.
type reader struct {
	items chan item
	gone  context.CancelCauseFunc
	done  <-chan struct{}
	never bool                         // it connected with ack=false: what was written is confirmed
	acks  bool                         // it acknowledges; guarded by Stream.mu
	has   map[relay.MessageID]struct{} // messages of the history that it has or gets again
}

type item struct {
	*delivered
	written chan error // buffered
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
	s := &Stream{maxAge: o.MaxAge, logger: o.Logger, receipt: o.Receipt, arrived: make(chan struct{})}
	if s.receipt == nil {
		s.receipt = func(relay.MessageID) {}
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if s.journal, err = jsonl.OpenJournal(o.Root, o.Name, journalBytes, s.take); err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	return s, nil
}

// Offer writes a message to the current reader and returns nil when it is
// delivered: written and flushed or, if the reader acknowledges, acknowledged.
// written is called before it waits for that; its channel is closed with the
// connection. Offer returns [ErrNoReader], [ErrReaderGone] or the error of ctx.
func (s *Stream) Offer(ctx context.Context, id relay.MessageID, in relay.Inbound,
	written func(ended <-chan struct{})) error {
	return s.OfferOn(ctx, 0, id, in, written)
}

// OfferOn is Offer to the reader of one connection, 0: of any. Another reader is none.
func (s *Stream) OfferOn(ctx context.Context, conn uint64, id relay.MessageID, in relay.Inbound,
	written func(ended <-chan struct{})) error {
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
	m := &delivered{ID: id, At: relay.MillisOf(time.Now()), Data: data, Shows: in.Shows}
	it := item{m, make(chan error, 1)}
	select {
	case r.items <- it:
	case <-r.done:
		s.detach(r) // its last write may take long to fail
		return ErrNoReader
	case <-ctx.Done():
		return ctx.Err()
	}
	if <-it.written != nil {
		return ErrNoReader
	}
	if s.isDelivered(r, id) {
		return nil
	}
	written(r.done)
	select {
	case <-r.done:
		return ErrReaderGone
	case <-ctx.Done(): // the delivery has ended in another way, or the sidecar stops
		s.Withdraw(id)
		return ctx.Err()
	}
}

// isDelivered reports whether a message that was written to r counts as delivered.
func (s *Stream) isDelivered(r *reader, id relay.MessageID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.find(id)
	return !r.acks || m != nil && m.Confirmed
}

// Connected reports whether the stream has a reader.
func (s *Stream) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader != nil
}

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

// connection has the parameters with which a reader connects.
type connection struct {
	lastID relay.MessageID // the last message it got; "": not given
	ack    *bool           // whether it acknowledges; nil: if the bot ever did
}

// attach makes the caller the reader until the returned context ends, and
// returns the messages to write to it again first.
func (s *Stream) attach(ctx context.Context, c connection) (context.Context, *reader, []*delivered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, nil, &relay.Error{Code: web.CodeStopping, Message: web.ErrStopping.Error()}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reader{items: make(chan item), gone: cancel, done: ctx.Done(), has: map[relay.MessageID]struct{}{}}
	if r.acks = s.acking; c.ack != nil {
		r.acks, r.never = *c.ack, !*c.ack
	}
	if s.reader != nil {
		s.reader.gone(web.ErrReplaced)
	}
	s.reader = r
	s.connections++
	close(s.arrived)
	s.arrived = make(chan struct{})
	return ctx, r, s.replay(r, c.lastID), nil
}

// replay selects the messages to write again to a new reader. An unknown last
// id is older than all kept messages, so these all come after it.
func (s *Stream) replay(r *reader, lastID relay.MessageID) []*delivered {
	after := len(s.history)
	if lastID != "" {
		after = 1 + slices.IndexFunc(s.history, func(m *delivered) bool { return m.ID == lastID })
		if !r.acks {
			s.confirm(s.history[:after]...)
		}
	}
	oldest := relay.MillisOf(time.Now().Add(-s.maxAge))
	var again []*delivered
	for i, m := range s.history {
		owed := !m.Confirmed || i >= after
		if m.Withdrawn || owed && m.At < oldest {
			continue // offered again if it is in progress
		}
		if owed {
			again = append(again, m)
		}
		r.has[m.ID] = struct{}{}
	}
	return again
}

// detach ends r's turn.
func (s *Stream) detach(r *reader) {
	r.gone(context.Canceled)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == r {
		s.reader = nil
	}
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
		s.note(journalMark{Acking: true})
	}
	if s.reader != nil && !s.reader.never {
		s.reader.acks = true
	}
	s.confirm(s.find(id))
}

// confirm records that the bot has messages; nil stands for one that is not kept. The caller
// holds mu.
func (s *Stream) confirm(list ...*delivered) {
	var lines []any
	for _, m := range list {
		if m != nil && !m.Confirmed {
			m.Confirmed = true
			lines = append(lines, delivered{ID: m.ID, Confirmed: true, Withdrawn: m.Withdrawn})
		}
	}
	s.note(lines...)
}

// Withdraw prevents a message whose delivery ended in another way from being
// written again.
func (s *Stream) Withdraw(id relay.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.find(id); m != nil && !m.Withdrawn {
		m.Withdrawn = true
		s.note(delivered{ID: id, Confirmed: m.Confirmed, Withdrawn: true})
	}
}

// ack is Acknowledge by the reader itself, for any message.
func (s *Stream) ack(id relay.MessageID) {
	s.mu.Lock()
	s.acknowledge(id)
	s.mu.Unlock()
	s.receipt(id)
}

// begin adds m, which is about to be written to r, to the history and the
// journal. It fails if r's turn has ended.
func (s *Stream) begin(r *reader, m *delivered) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != r {
		return web.ErrReplaced
	}
	s.remember(m)
	s.note(m)
	return nil
}

// wrote records that m was written. It fails if r's turn ended during the
// write: then it is unknown whether the bot has m, and the next reader gets it.
func (s *Stream) wrote(r *reader, m *delivered) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m = cmp.Or(s.find(m.ID), m) // a recall may have replaced it
	if s.reader != r && !m.Confirmed {
		return web.ErrReplaced
	}
	if r.never {
		s.confirm(m)
	}
	return nil
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

// serve writes messages to r with write until its connection ends, and returns
// the cause.
func (s *Stream) serve(ctx context.Context, r *reader, again []*delivered,
	write func(*delivered) error, beat func() error) error {
	defer s.detach(r)
	for _, m := range again {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := write(m); err != nil {
			return err
		}
		if err := s.wrote(r, m); err != nil {
			return err
		}
	}
	quiet := time.NewTicker(web.KeepAlive)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-quiet.C:
			if err := beat(); err != nil {
				return err
			}
		case it := <-r.items:
			err := s.give(ctx, r, it.delivered, write)
			it.written <- err
			if err != nil {
				return err
			}
		}
	}
}

// give writes m to r, unless r has it already.
func (s *Stream) give(ctx context.Context, r *reader, m *delivered, write func(*delivered) error) error {
	if ctx.Err() != nil { // its turn ended while m waited
		return context.Cause(ctx)
	}
	if _, ok := r.has[m.ID]; ok {
		delete(r.has, m.ID) // offered again at the bot's request
		return nil
	}
	if err := s.begin(r, m); err != nil {
		return err
	}
	if err := write(m); err != nil {
		return err
	}
	return s.wrote(r, m)
}
