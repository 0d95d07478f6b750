package httpapi

import (
	"context"
	"errors"
	"sync"
	"time"

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
	// ErrUnconfirmed means that the message was written to a reader that does not acknowledge.
	ErrUnconfirmed = errors.New("the reader confirms nothing")
)

// Stream delivers inbound messages to the bot that reads GET /v1/stream. It has
// one reader at a time: a new one replaces the old one, whose connection is
// closed with a notice.
//
// That a message was written does not show that the bot has it. So the caller has
// offered again to the next reader what the bot has not confirmed. A bot confirms a
// message by acknowledging it, over the WebSocket or through the API, or by naming the last
// message it got when it connects (`Last-Event-ID`).
//
// A reader that connects with `?ack=true` acknowledges; to one with `?ack=false`, what was
// written is confirmed.
type Stream struct {
	receipt func(relay.MessageID)

	mu      sync.Mutex
	reader  *reader       // nil: none; guarded by mu, as the rest is
	conn    uint64        // the number of the newest connection
	changed chan struct{} // closed when a reader comes or goes
	closed  bool
}

// reader is one connection.
type reader struct {
	connection
	ctx  context.Context
	gone context.CancelCauseFunc
	turn chan struct{} // who writes has put one in
}

// connection is how a reader connects.
type connection struct {
	lastID relay.MessageID // the last message it got; "": not given
	acks   bool            // it acknowledges
	never  bool            // what was written is confirmed
	begin  func()          // is called before all else
	write  func(id relay.MessageID, data []byte) error
	beat   func() error // shows that the connection lives
}

// NewStream returns a stream without a reader. It calls receipt for each acknowledgement over a WebSocket.
func NewStream(receipt func(relay.MessageID)) *Stream {
	// No two processes number a connection alike: what was written on it may be named after a restart.
	return &Stream{receipt: receipt, changed: make(chan struct{}), conn: uint64(time.Now().UnixMicro())}
}

// Offer writes a message to the reader of one connection, and returns nil when the reader is known to have it, or
// [ErrUnconfirmed]. From a reader that acknowledges it returns when ctx is done, which is for the caller to see to, and
// calls written before it waits for that. Other errors are [ErrNoReader] and [ErrReaderGone].
func (s *Stream) Offer(ctx context.Context, conn uint64, id relay.MessageID, in relay.Inbound, written func()) error {
	s.mu.Lock()
	r := s.reader
	current := r != nil && conn == s.conn
	s.mu.Unlock()
	if !current {
		return ErrNoReader
	}
	select {
	case r.turn <- struct{}{}:
	case <-r.ctx.Done():
		return ErrNoReader
	case <-ctx.Done():
		return ctx.Err()
	}
	err := r.put(id, in)
	<-r.turn
	switch {
	case err != nil:
		return ErrNoReader
	case r.never:
		return nil
	case !r.acks:
		return ErrUnconfirmed
	}
	written()
	select {
	case <-r.ctx.Done():
		return ErrReaderGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// put writes a message to r, whose turn the caller has. An error ends r.
func (r *reader) put(id relay.MessageID, in relay.Inbound) error {
	data, _ := relay.Marshal(in) // always possible
	err := r.ctx.Err()
	if err == nil {
		err = r.write(id, data)
	}
	if err != nil {
		r.gone(err)
	}
	return err
}

// Connected reports whether the stream has a reader.
func (s *Stream) Connected() bool { return s.Conn() > 0 }

// Conn is the number of the reader's connection, another one for each; 0: there is none.
func (s *Stream) Conn() uint64 {
	conn, _, _ := s.Reader()
	return conn
}

// Reader is Conn, the last message that the reader names, or "", and whether it confirms those up to that one by naming
// it.
func (s *Stream) Reader() (conn uint64, last relay.MessageID, confirms bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader == nil {
		return 0, "", false
	}
	return s.conn, s.reader.lastID, s.reader.lastID != "" && !s.reader.acks
}

// Changed is closed when a reader comes or goes.
func (s *Stream) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// change has Changed closed; the caller holds mu.
func (s *Stream) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// serve makes the caller the reader until its connection or ctx ends, and returns the cause.
func (s *Stream) serve(ctx context.Context, c connection) error {
	r := &reader{connection: c, turn: make(chan struct{}, 1)}
	r.ctx, r.gone = context.WithCancelCause(ctx)
	r.turn <- struct{}{}
	if err := s.attach(r); err != nil {
		return err
	}
	c.begin()
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
	if s.reader == r {
		s.reader = nil
		s.change()
	}
	s.mu.Unlock()
	r.turn <- struct{}{} // nothing is written to the connection any more
	return context.Cause(r.ctx)
}

// attach makes r the reader.
func (s *Stream) attach(r *reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return relay.Errorf(web.CodeStopping, "%v", web.ErrStopping)
	}
	if s.reader != nil {
		s.reader.gone(web.ErrReplaced)
	}
	s.reader = r
	s.conn++
	s.change()
	return nil
}

// Stop closes the reader with the notice that the sidecar stops, and refuses others. It may be called more than once.
func (s *Stream) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.reader != nil {
		s.reader.gone(web.ErrStopping)
	}
}
