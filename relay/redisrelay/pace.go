package redisrelay

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Under load most of the work of a message is being woken for it: once for the
// stream, once for the copy on the channel, and for the server's part as well.
// So where messages come close together they are read some at a time, which
// nearly doubled the throughput of a sender that publishes one by one. A
// message on its own never waits.
const (
	closeBy   = 200 * time.Microsecond // messages are close together if there is less than this between them
	gatherFor = time.Millisecond       // then the stream is read so much later
	spacing   = 2 * time.Millisecond   // what came on the channel is looked at so much later
)

// gatherer decides whether to wait before the next read of the stream.
type gatherer struct{ last time.Time }

// due takes how many entries the last read gave, of at most full. A single one
// is no reason to wait: its sender may wait for an answer. A full read is none
// either: there is more.
func (g *gatherer) due(entries, full int, now time.Time) bool {
	since := now.Sub(g.last)
	g.last = now
	return entries > 1 && entries < full && since < time.Duration(entries)*closeBy
}

// spaced is a connection of which what was read is looked at a little later: the copies on
// the channel are not to compete for a processor with the entries of the stream, which they
// only repeat. Behind a read that filled its buffer there is no wait.
type spaced struct{ net.Conn }

func (c spaced) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n < len(p) && err == nil {
		time.Sleep(spacing)
	}
	return n, err
}

// spaceReads makes the client's connections [spaced] ones.
func spaceReads(o *redis.UniversalOptions) {
	dial := redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return spaced{conn}, nil
	}
}
