package redisrelay

import (
	"io"
	"net"
	"sync"
	"testing"

	"feishu-relay/relay"
)

type relayStatus = relay.Status

// listener serves each connection with serve and returns its address.
func listener(t *testing.T, serve func(io.ReadWriteCloser)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}
