// Package loopback gives tests, benchmarks and the demo addresses for servers
// that come and go.
package loopback

import (
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
)

// Addr returns a host:port of this machine on which nobody listens. On Linux,
// where all of 127.0.0.0/8 is the loopback, the host is a random one: programs
// that let the kernel pick a port of 127.0.0.1 do not get this one while the
// server is away.
func Addr() (string, error) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("pick a port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
