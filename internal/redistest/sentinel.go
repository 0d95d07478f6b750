package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// StartSentinel runs a Sentinel until the test ends; it watches master, which
// listens on TCP, under the given name, with a quorum of one.
func StartSentinel(tb TB, master *Server, name string) *Server {
	tb.Helper()
	return startSentinel(tb, master, name, 1)
}

// StartSentinels is [StartSentinel] for three, of which two decide that a master that did not
// answer for two seconds is down. They have yet to find each other.
func StartSentinels(tb TB, master *Server, name string) (all []*Server) {
	tb.Helper()
	for range 3 {
		all = append(all, startSentinel(tb, master, name, 2))
	}
	return all
}

func startSentinel(tb TB, master *Server, name string, quorum int) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "sentinel")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := launchSentinel(dir, master, name, quorum)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

func launchSentinel(dir string, master *Server, name string, quorum int) (*Server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("the program redis-server is needed: %w", err)
	}
	host, port, err := freePort()
	if err != nil {
		return nil, err
	}
	// A Sentinel keeps its state in its configuration file and refuses to run without one.
	conf := filepath.Join(dir, "sentinel.conf")
	s := &Server{dir: dir, host: host, port: port, tls: master.tls}
	listen := "port " + port + "\n"
	if s.tls != nil {
		options, err := s.tls.options(s)
		if err != nil {
			return nil, err
		}
		listen = "port 0\n"
		for pair := range slices.Chunk(options, 2) {
			listen += strings.TrimPrefix(pair[0], "--") + " " + pair[1] + "\n"
		}
	}
	text := fmt.Sprintf("%[1]sbind %[2]s\ndir %[3]s\nsentinel announce-ip %[2]s\nsentinel monitor %[4]s %[5]s %[6]s %[7]d\n"+
		"sentinel down-after-milliseconds %[4]s 2000\nsentinel failover-timeout %[4]s 10000\n",
		listen, host, dir, name, master.host, master.port, quorum)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return s, s.start(exec.Command(program, conf, "--sentinel"))
}
