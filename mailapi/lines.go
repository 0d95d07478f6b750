package mailapi

import (
	"context"
	"sync"
	"time"

	"feishu-relay/internal/wait"
	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// linesStop is how long Close waits for the connections.
const linesStop = 2 * time.Second

// Lines are the WebSockets at /v1/mailbox/ws. The zero value is usable. That no more than one stays registered, and how
// long one may wait before that, bounds them.
type Lines struct {
	mu   sync.Mutex
	all  context.Context         // of every connection; guarded by mu, as the rest is
	stop context.CancelCauseFunc // ends all
	left sync.WaitGroup
}

// begin has the caller hold mu.
func (l *Lines) begin() {
	if l.all == nil {
		l.all, l.stop = context.WithCancelCause(context.Background())
	}
}

// join adds a connection. Its turn ends with the cause given to end, or with web.ErrStopping when the lines are
// closed. The caller calls l.left.Done when the connection has ended.
func (l *Lines) join() (turn context.Context, end context.CancelCauseFunc, err *relay.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begin(); l.all.Err() != nil {
		return nil, nil, relay.Errorf(web.CodeStopping, "%s", web.ErrStopping)
	}
	l.left.Add(1)
	turn, end = context.WithCancelCause(l.all)
	return turn, end, nil
}

// Close tells the bots that the sidecar stops, and waits up to linesStop for
// the end of their connections, after which the mailbox gets nothing from them.
// It may be called more than once.
func (l *Lines) Close() {
	l.mu.Lock()
	l.begin()
	l.stop(web.ErrStopping)
	l.mu.Unlock()
	wait.Group(&l.left, linesStop)
}
