package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

// What the stream keeps of delivered messages for a reader that comes back:
// beyond any of these the oldest is forgotten.
const (
	historyLines = 1000
	historyBytes = 4 << 20
)

const (
	keepAlive    = 15 * time.Second // silence after which a comment or a ping is sent
	writeTimeout = 10 * time.Second // for one message; then the reader counts as gone
)

var (
	errReplaced = errors.New("a newer reader has taken over")
	errStopping = errors.New("the sidecar stops")
)

// Stream delivers inbound messages to the bot that reads GET /v1/stream. It
// has one reader at a time: a new one takes over, and the old one is told and
// closed. Written and flushed counts as delivered.
//
// A reader that names the last message it got (`Last-Event-ID`) is given again
// what was written after it. Over a WebSocket the bot may acknowledge; then
// what was written to that connection and not acknowledged when it ended comes
// again on the next.
type Stream struct {
	maxAge  time.Duration
	journal *os.File // of delivered messages, so that a restart of ours can replay; nil: none
	root    *os.Root
	name    string
	logger  *slog.Logger
	receipt func(relay.MessageID) // an acknowledgement came

	mu      sync.Mutex
	reader  *reader       // guarded by mu
	arrived chan struct{} // closed when a reader comes; guarded by mu
	history []*sent       // oldest first; guarded by mu
	bytes   int
	lines   int // in the journal
	closed  bool
}

// sent is a delivered message.
type sent struct {
	ID   relay.MessageID `json:"id"`
	At   relay.Millis    `json:"at"`
	Data json.RawMessage `json:"data"`

	by   *reader // who was given it; nil after a restart
	owed bool    // unacknowledged by a reader that acknowledges
}

// reader is one connection.
type reader struct {
	items chan item
	gone  context.CancelCauseFunc
	done  <-chan struct{}
	acks  bool // it has acknowledged something; guarded by Stream.mu
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
	Receipt func(relay.MessageID) // told of acknowledgements; nil: nobody
	Logger  *slog.Logger
}

// NewStream opens a stream with the journal an earlier process left.
func NewStream(o StreamOptions) (*Stream, error) {
	s := &Stream{maxAge: o.MaxAge, root: o.Root, name: o.Name, logger: o.Logger, receipt: o.Receipt, arrived: make(chan struct{})}
	if s.receipt == nil {
		s.receipt = func(relay.MessageID) {}
	}
	var err error
	if s.journal, err = safefile.Open(o.Root, o.Name, os.O_RDWR|os.O_APPEND|os.O_CREATE); err != nil {
		return nil, fmt.Errorf("open stream journal: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(s.journal, 4*historyBytes))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read stream journal: %w", err), s.journal.Close())
	}
	for line := range bytes.Lines(data) {
		s.lines++
		if m := new(sent); json.Unmarshal(line, m) == nil && m.ID != "" && len(m.Data) > 0 {
			s.remember(m)
		}
	}
	return s, nil
}

// Deliver waits for a reader and writes in to it. It returns when the message
// is written and flushed, or when ctx is done or the stream closed.
func (s *Stream) Deliver(ctx context.Context, in relay.Inbound) error {
	id, _ := in.Metadata["relay_msg_id"].(relay.MessageID)
	data, err := marshal(in)
	if err != nil {
		return fmt.Errorf("encode inbound message: %w", err)
	}
	for {
		r, err := s.awaitReader(ctx)
		if err != nil {
			return err
		}
		it := item{&sent{ID: id, At: relay.MillisOf(time.Now()), Data: data, by: r}, make(chan error, 1)}
		select {
		case r.items <- it:
		case <-r.done:
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := <-it.written; err == nil {
			return nil
		}
	}
}

func (s *Stream) awaitReader(ctx context.Context) (*reader, error) {
	for {
		s.mu.Lock()
		r, arrived, closed := s.reader, s.arrived, s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return nil, errStopping
		case r != nil:
			return r, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Connected reports whether a reader is there.
func (s *Stream) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader != nil
}

// attach makes the caller the reader and returns what it has to be given
// again first.
func (s *Stream) attach(ctx context.Context, lastID relay.MessageID, resume bool) (context.Context, *reader, []*sent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, nil, &Error{http.StatusServiceUnavailable, "stopping", errStopping.Error()}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reader{items: make(chan item), gone: cancel, done: ctx.Done()}
	if s.reader != nil {
		s.reader.gone(errReplaced)
		s.owe(s.reader)
	}
	s.reader = r
	close(s.arrived)
	s.arrived = make(chan struct{})
	return ctx, r, s.replay(r, lastID, resume), nil
}

// replay picks what a new reader has to be given again. A last id that is not
// known is older than what is kept, so all of that came after it.
func (s *Stream) replay(r *reader, lastID relay.MessageID, resume bool) []*sent {
	after := len(s.history)
	if resume {
		after = 1 + slices.IndexFunc(s.history, func(m *sent) bool { return m.ID == lastID })
	}
	oldest := relay.MillisOf(time.Now().Add(-s.maxAge))
	var again []*sent
	for i, m := range s.history {
		if m.At >= oldest && (m.owed || i >= after) {
			m.by, m.owed = r, false
			again = append(again, m)
		}
	}
	return again
}

// owe marks what r was given and did not acknowledge, if it ever did.
func (s *Stream) owe(r *reader) {
	for _, m := range s.history {
		if m.by == r {
			m.owed = r.acks
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

// ack notes that the bot has taken the message.
func (s *Stream) ack(r *reader, id relay.MessageID) {
	s.mu.Lock()
	r.acks = true
	for _, m := range s.history {
		if m.ID == id {
			m.by, m.owed = nil, false
		}
	}
	s.mu.Unlock()
	s.receipt(id)
}

// wrote enters a delivered message into the history and the journal. The
// journal's failure costs only the replay after a restart.
func (s *Stream) wrote(m *sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(m)
	if s.journal == nil {
		return
	}
	line, err := marshal(m)
	if err == nil && s.lines > 3*historyLines {
		err = s.rewrite()
	} else if err == nil {
		_, err = safefile.Append(s.journal, append(line, '\n'))
		s.lines++
	}
	if err != nil {
		s.logger.Warn("stream journal cannot be written; a restart may not replay", "err", err)
	}
}

func (s *Stream) remember(m *sent) {
	s.history = append(s.history, m)
	s.bytes += len(m.Data)
	for len(s.history) > historyLines || (s.bytes > historyBytes && len(s.history) > 1) {
		s.bytes -= len(s.history[0].Data)
		s.history[0] = nil
		s.history = s.history[1:]
	}
}

func (s *Stream) rewrite() error {
	var all bytes.Buffer
	for _, m := range s.history {
		line, err := marshal(m)
		if err != nil {
			return err
		}
		all.Write(line)
		all.WriteByte('\n')
	}
	if err := safefile.ReplaceFast(s.root, s.name, all.Bytes()); err != nil {
		return err
	}
	f, err := safefile.Open(s.root, s.name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	_ = s.journal.Close()
	s.journal, s.lines = f, len(s.history)
	return nil
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
		s.reader.gone(errStopping)
	}
	close(s.arrived)
	s.arrived = make(chan struct{})
}

// Close stops the stream and closes its journal.
func (s *Stream) Close() error {
	s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.journal.Close()
	s.journal = nil
	return err
}

// serve gives r its messages through write until its connection ends, and
// returns why it ended.
func (s *Stream) serve(ctx context.Context, r *reader, again []*sent, write func(*sent) error, beat func() error) error {
	defer s.detach(r)
	for _, m := range again {
		if err := write(m); err != nil {
			return err
		}
	}
	quiet := time.NewTicker(keepAlive)
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
			err := write(it.sent)
			if err == nil {
				s.wrote(it.sent)
			}
			it.written <- err
			if err != nil {
				return err
			}
		}
	}
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}
