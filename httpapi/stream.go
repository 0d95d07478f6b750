package httpapi

import (
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
	// ErrNoReader says that nobody reads the stream, or not to the end of the message.
	ErrNoReader = errors.New("nobody reads the stream")
	// ErrReaderGone says that the reader's connection ended before it acknowledged.
	ErrReaderGone = errors.New("the reader left before it acknowledged")
)

// Stream delivers inbound messages to the bot that reads GET /v1/stream. It
// has one reader at a time: a new one takes over, and the old one is told and
// closed. Written and flushed counts as delivered.
//
// A reader that names the last message it got (`Last-Event-ID`) is given again
// what was written after it.
//
// A reader acknowledges if it says so when it connects (`?ack=true`), or if this
// bot ever acknowledged anything, also before a restart. Then a message is
// delivered when it is acknowledged, over the WebSocket or through the API. What
// was not acknowledged when the connection ended comes again on the next one,
// never on the same. For all others, written and flushed counts as delivered.
//
// A message is in the history and the journal before it is written: were it
// the other way round, a crash between the two would leave a bot that names a
// message we know nothing of, and it would be given all that is kept again. Until
// the write has succeeded it is in doubt, which the next reader resolves: it
// names the message, or is given it again, or has it taken out of the history.
// So a reader that says what it got last is given nothing twice.
type Stream struct {
	maxAge  time.Duration
	logger  *slog.Logger
	receipt func(relay.MessageID) // an acknowledgement came

	mu      sync.Mutex
	reader  *reader       // guarded by mu
	arrived chan struct{} // closed when a reader comes; guarded by mu
	history []*sent       // oldest first; guarded by mu
	bytes   int           // of history; guarded by mu
	closed  bool          // guarded by mu
	acking  bool          // this bot acknowledges; guarded by mu

	journal *jsonl.Journal // of delivered messages, so that a restart of ours can replay; guarded by mu
}

// sent is a delivered message.
type sent struct {
	ID   relay.MessageID `json:"id"`
	At   relay.Millis    `json:"at"`
	Data json.RawMessage `json:"data,omitempty"` // empty: the journal takes the message back
	Gone bool            `json:"gone,omitempty"` // its text was recalled: Data is empty
	// Shows are the messages whose texts stand before its own.
	Shows []string `json:"shows,omitempty"`

	by        *reader // who was given it and has not acknowledged it; nil after a restart; guarded by Stream.mu
	owed      bool    // comes again on the next connection; guarded by Stream.mu
	withdrawn bool    // does not come again; guarded by Stream.mu
	acked     bool    // guarded by Stream.mu
	doubt     bool    // the result of the write is unknown; only the newest can be; guarded by Stream.mu
}

// reader is one connection.
type reader struct {
	items chan item
	gone  context.CancelCauseFunc
	done  <-chan struct{}
	never bool                         // it said that it does not acknowledge
	acks  bool                         // it acknowledges; guarded by Stream.mu
	has   map[relay.MessageID]struct{} // of the history, what it has or is given again
}

type item struct {
	*sent
	written chan error // buffered
}

// StreamOptions configures a stream.
type StreamOptions struct {
	Root    *os.Root              // folder of the journal
	Name    string                // its name
	MaxAge  time.Duration         // RELAY_MAX_AGE: older messages are not replayed
	Receipt func(relay.MessageID) // told about acknowledgements; nil: nobody
	Logger  *slog.Logger
}

// NewStream opens a stream with the journal an earlier process left.
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
	if n := len(s.history); n > 0 {
		s.history[n-1].doubt = true // the earlier process may have died before it wrote it
	}
	return s, nil
}

// Offer writes a message to the reader that is there now and returns nil when it
// is delivered: written and flushed or, where the reader acknowledges,
// acknowledged. written is called before it waits for that; its channel is closed
// with the connection. Offer returns [ErrNoReader], [ErrReaderGone] or the error
// of ctx.
func (s *Stream) Offer(ctx context.Context, id relay.MessageID, in relay.Inbound,
	written func(ended <-chan struct{})) error {
	data, err := relay.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode inbound message: %w", err)
	}
	s.mu.Lock()
	r := s.reader
	s.mu.Unlock()
	if r == nil {
		return ErrNoReader
	}
	it := item{&sent{ID: id, At: relay.MillisOf(time.Now()), Data: data, Shows: in.Shows, by: r}, make(chan error, 1)}
	select {
	case r.items <- it:
	case <-r.done:
		s.detach(r) // its last write may take a while to fail
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
	case <-ctx.Done(): // it has ended otherwise, or the sidecar stops
		s.Withdraw(id)
		return ctx.Err()
	}
}

// isDelivered reports whether a message that was written to r counts as delivered.
func (s *Stream) isDelivered(r *reader, id relay.MessageID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.acks {
		return true
	}
	for _, m := range slices.Backward(s.history) {
		if m.ID == id {
			return m.acked
		}
	}
	return false
}

// Connected reports whether a reader is there.
func (s *Stream) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader != nil
}

// Arrived is closed when the next reader comes, or the stream is closed.
func (s *Stream) Arrived() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

// connection is what a reader says when it connects.
type connection struct {
	lastID relay.MessageID // the last message it got; "": it does not say
	ack    *bool           // whether it acknowledges; nil: as the bot did before
}

// attach makes the caller the reader until the returned context ends, and
// returns what it has to be given again first.
func (s *Stream) attach(ctx context.Context, c connection) (context.Context, *reader, []*sent, error) {
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
		s.owe(s.reader)
	}
	s.reader = r
	close(s.arrived)
	s.arrived = make(chan struct{})
	return ctx, r, s.replay(r, c.lastID), nil
}

// replay picks what a new reader has to be given again. A last id that is not
// known is older than what is kept, so all of that came after it.
func (s *Stream) replay(r *reader, lastID relay.MessageID) []*sent {
	after := len(s.history)
	if lastID != "" {
		after = 1 + slices.IndexFunc(s.history, func(m *sent) bool { return m.ID == lastID })
	}
	oldest := relay.MillisOf(time.Now().Add(-s.maxAge))
	var again []*sent
	for i, m := range slices.Clone(s.history) {
		switch {
		case m.At >= oldest && !m.withdrawn && (m.owed || i >= after):
			m.by = r
			again = append(again, m)
		case m.ID == lastID:
			m.doubt = false
		case m.doubt:
			s.forget(m)
			continue
		case !m.acked && (r.acks || lastID == "" || i >= after):
			continue // it is offered again if it is in progress
		}
		r.has[m.ID] = struct{}{}
	}
	return again
}

// owe marks what r was given and did not acknowledge, if it ever did.
func (s *Stream) owe(r *reader) {
	for _, m := range s.history {
		if m.by == r {
			m.owed = m.owed || r.acks
			m.by = nil
		}
	}
}

// detach ends r's turn.
func (s *Stream) detach(r *reader) {
	r.gone(context.Canceled)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == r {
		s.reader = nil
		s.owe(r)
	}
}

// Acknowledge notes that the bot has a message of this stream, and that it
// acknowledges.
func (s *Stream) Acknowledge(id relay.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.history, func(m *sent) bool { return m.ID == id }) {
		s.acknowledge(id)
	}
}

// acknowledge is called with mu held.
func (s *Stream) acknowledge(id relay.MessageID) {
	if !s.acking {
		s.acking = true
		s.noteLine(journalMark{Acking: true})
	}
	if s.reader != nil && !s.reader.never {
		s.reader.acks = true
	}
	for _, m := range s.history {
		if m.ID == id {
			m.by, m.owed, m.acked = nil, false, true
		}
	}
}

// Withdraw keeps a message that ended otherwise from being written again.
func (s *Stream) Withdraw(id relay.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.history {
		if m.ID == id {
			m.by, m.owed, m.withdrawn = nil, false, true
		}
	}
}

// ack is Acknowledge by the reader itself, of whatever message.
func (s *Stream) ack(id relay.MessageID) {
	s.mu.Lock()
	s.acknowledge(id)
	s.mu.Unlock()
	s.receipt(id)
}

// begin enters what r is about to be given into the history and the journal. It
// fails when r's turn has ended.
func (s *Stream) begin(r *reader, m *sent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != r {
		return web.ErrReplaced
	}
	m.doubt = true
	s.remember(m)
	s.note(m)
	return nil
}

// wrote fails when r's turn ended while it was given m: then nobody knows
// whether the bot has it, and the next reader gets it.
func (s *Stream) wrote(r *reader, m *sent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader != r && !m.acked {
		return web.ErrReplaced
	}
	m.doubt = false
	return nil
}

// wroteAgain notes that m was written again, which settles it with a reader
// that does not acknowledge.
func (s *Stream) wroteAgain(r *reader, m *sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.doubt = false
	m.owed = m.owed && r.acks
}

// Stop tells the reader that the sidecar stops, and ends what waits for one.
// It may be called more than once.
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

// serve gives r its messages through write until its connection ends, and
// returns why it ended.
func (s *Stream) serve(ctx context.Context, r *reader, again []*sent,
	write func(*sent) error, beat func() error) error {
	defer s.detach(r)
	for _, m := range again {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := write(m); err != nil {
			return err
		}
		s.wroteAgain(r, m)
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
			err := s.give(ctx, r, it.sent, write)
			it.written <- err
			if err != nil {
				return err
			}
		}
	}
}

// give writes m to r, unless r has it already.
func (s *Stream) give(ctx context.Context, r *reader, m *sent, write func(*sent) error) error {
	if ctx.Err() != nil { // its turn has ended as m came
		return context.Cause(ctx)
	}
	if _, ok := r.has[m.ID]; ok {
		delete(r.has, m.ID) // offered again: the bot has asked for it
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
