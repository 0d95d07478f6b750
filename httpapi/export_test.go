package httpapi

import (
	"context"
	"errors"

	"feishu-relay/relay"
)

// Open is how many connections there are.
func (l *Lines) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// Deliver waits for a reader and writes in to it. It returns when it is delivered
// or, to a reader that acknowledges, written.
func (s *Stream) Deliver(ctx context.Context, in relay.Inbound) error {
	id, _ := in.Metadata["relay_msg_id"].(relay.MessageID)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	written := false
	for {
		s.mu.Lock()
		arrived, closed := s.arrived, s.closed
		s.mu.Unlock()
		if closed {
			return errStopping
		}
		err := s.Offer(ctx, id, in, func(<-chan struct{}) {
			written = true
			cancel()
		})
		if written {
			return nil
		}
		if !errors.Is(err, ErrNoReader) {
			return err
		}
		if s.Connected() {
			continue
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
