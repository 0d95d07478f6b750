package netfault_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"feishu-relay/internal/test/netfault"
)

// Each fault has the effect of its name on an echo server, and after its end new
// connections work.
func TestFaults(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = echo.Close() })
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	for _, f := range netfault.Faults {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			way := netfault.Start(t, echo.Addr().String())
			before := dial(t, way)
			if err := before.say(comes); err != nil {
				t.Fatal(err)
			}
			if err := way.Begin(f); err != nil {
				t.Fatal(err)
			}
			limit := comes
			if f.Stops {
				limit = moment
			}
			for name, c := range map[string]*client{"a connection from before": before, "a new connection": dial(t, way)} {
				err := c.say(limit)
				cut := f.Cuts && c == before
				switch {
				case err == nil && (f.Stops || cut):
					t.Errorf("%s works", name)
				case err != nil && !f.Stops && !cut:
					t.Errorf("%s: %v", name, err)
				case f.Silent && !os.IsTimeout(err):
					t.Errorf("%s is closed: %v", name, err)
				}
			}
			way.End()
			if err := before.say(moment); err == nil && f.Silent {
				t.Error("a connection that was silent works again")
			}
			if err := dial(t, way).say(comes); err != nil {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, way *netfault.Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", way.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, bufio.NewReader(conn)}
}

const (
	comes  = time.Minute            // the longest wait; only a failing test waits that long
	moment = 200 * time.Millisecond // to show that nothing comes
)

// say waits for the echo of a line.
func (c *client) say(limit time.Duration) error {
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(limit))
	_, err := c.r.ReadString('\n')
	return err
}
