package redisrelay

import (
	"net"
	"sync/atomic"
	"time"
)

var lull = 2 * time.Millisecond

type unhurried struct {
	net.Conn
	last atomic.Int64
}

func (c *unhurried) Read(p []byte) (int, error) {
	if w := lull - time.Duration(time.Now().UnixNano()-c.last.Load()); w > 0 {
		time.Sleep(w)
	}
	n, err := c.Conn.Read(p)
	if n < len(p) {
		c.last.Store(time.Now().UnixNano())
	}
	return n, err
}
