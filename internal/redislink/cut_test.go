package redislink

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server that cuts a connection within an answer, as Redis does to a subscriber whose output
// buffer is full, is not taken for another program.
func TestAnswerThatIsCut(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"in a text": "$100\r\nhalf of it", "before the end of a line": "$10",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				buf := make([]byte, 1000)
				_, _ = conn.Read(buf) // HELLO
				_, _ = io.WriteString(conn, "-ERR unknown command 'HELLO'\r\n")
				_, _ = conn.Read(buf) // GET
				_, _ = io.WriteString(conn, answer)
				_ = conn.Close()
			}()
			client := NewClient(Options(&redis.UniversalOptions{Addrs: []string{l.Addr().String()}}, 1, time.Minute, time.Minute))
			defer client.Close()
			err = Explain(client.Get(t.Context(), "k").Err(), Words{})
			if err == nil || !strings.Contains(err.Error(), "was lost") {
				t.Errorf("got %v, want that the connection was lost", err)
			}
		})
	}
}
