package mailapi

import (
	"context"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

const (
	maxLines  = 16              // connections at once, registered or not; one more is refused
	linesStop = 2 * time.Second // how long Close waits for them
)

// Lines are the WebSockets at /v1/mailbox/ws. The zero value is usable.
type Lines struct {
	mu     sync.Mutex
	open   map[*context.CancelCauseFunc]struct{} // guarded by mu
	closed bool                                  // guarded by mu
	left   sync.WaitGroup
}

// join adds a connection. Its context ends, with web.ErrStopping as the cause,
// when the lines are closed; the caller calls leave when the connection has
// ended.
func (l *Lines) join(ctx context.Context) (turn context.Context, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, &relay.Error{Code: web.CodeStopping, Message: web.ErrStopping.Error()}
	}
	if len(l.open) >= maxLines {
		return nil, nil, relay.Errorf(web.CodeTooManyLines, "close one of the %d others", maxLines)
	}
	turn, end := context.WithCancelCause(ctx)
	if l.open == nil {
		l.open = map[*context.CancelCauseFunc]struct{}{}
	}
	l.open[&end] = struct{}{}
	l.left.Add(1)
	return turn, func() {
		end(context.Canceled)
		l.mu.Lock()
		delete(l.open, &end)
		l.mu.Unlock()
		l.left.Done()
	}, nil
}

// Close tells the bots that the sidecar stops, and waits up to linesStop for
// the end of their connections, after which the mailbox gets nothing from them.
// It may be called more than once.
func (l *Lines) Close() {
	l.mu.Lock()
	l.closed = true
	for end := range l.open {
		(*end)(web.ErrStopping)
	}
	l.mu.Unlock()
	wait.Group(&l.left, linesStop)
}
