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

// Watched is a primary and its replica, which three Sentinels watch. Two of these decide that a
// primary that did not answer for two seconds is down.
type Watched struct {
	Primary, Replica *Server // as they began
	sentinels        []*Server
}

// watchedName is the primary's name for the Sentinels.
const watchedName = "main"

// StartWatched runs them until the test ends. args are for both servers.
func StartWatched(tb TB, args ...string) *Watched {
	tb.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	w := &Watched{Primary: Start(tb, args...)}
	w.Replica = StartReplica(tb, w.Primary, args...)
	w.Primary.AwaitReplicas(tb, 1)
	for range 3 {
		w.sentinels = append(w.sentinels, startSentinel(tb, w.Primary, watchedName, 2))
	}
	for _, s := range w.sentinels {
		await(tb, "that the Sentinels know all", func() bool {
			known := strings.Fields(s.ask("SENTINEL", "MASTER", watchedName))
			value := func(name string) string {
				i := slices.Index(known, name) + 1
				return append(known, "")[i]
			}
			return value("num-other-sentinels") == "2" && value("num-slaves") == "1"
		})
	}
	return w
}

// URL is the address as REDIS_URL has it.
func (w *Watched) URL() string {
	var addrs []string
	for _, s := range w.sentinels {
		addrs = append(addrs, s.Addr())
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + watchedName
}

// Serving is the address of the primary that a Sentinel names.
func (w *Watched) Serving() string {
	host, port, _ := strings.Cut(w.sentinels[0].ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", watchedName), "\n")
	return host + ":" + port
}

// Other is the server that s is not.
func (w *Watched) Other(s *Server) *Server {
	if s == w.Primary {
		return w.Replica
	}
	return w.Primary
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
