package redistest

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"time"
)

// Cluster is a Redis Cluster of three primaries, each with a replica.
type Cluster struct{ nodes []*Server }

// StartCluster runs six nodes until the test ends. A primary that does not answer for two
// seconds is replaced by its replica. args are for each node.
func StartCluster(tb TB, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{}
	create := []string{"--cluster", "create"}
	for range 6 {
		s := Start(tb, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
			"--repl-diskless-sync-delay", "0"}, args...)...)
		c.nodes = append(c.nodes, s)
		create = append(create, s.Addr()+"@"+s.bus)
	}
	redisCLI(tb, append(create, "--cluster-replicas", "1", "--cluster-yes")...)
	for _, s := range c.nodes[:3] { // the primaries
		s.AwaitReplicas(tb, 1)
	}
	for _, s := range c.nodes { // each learns by itself that all slots are served
		await(tb, "that the Cluster is complete at "+s.Addr(), func() bool {
			return strings.Contains(redisCLI(tb, "-h", s.host, "-p", s.port, "CLUSTER", "INFO"), "cluster_state:ok")
		})
	}
	return c
}

func await(tb TB, what string, is func() bool) {
	tb.Helper()
	for until := time.Now().Add(5 * time.Minute); !is(); {
		if time.Now().After(until) {
			tb.Fatal("waited in vain: " + what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// URL is the address of all nodes as REDIS_URL has it.
func (c *Cluster) URL() string {
	var addrs []string
	for _, s := range c.nodes {
		addrs = append(addrs, s.Addr())
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Addrs are the nodes' addresses.
func (c *Cluster) Addrs() (addrs []string) {
	for _, s := range c.nodes {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Node is the node of that address, or nil.
func (c *Cluster) Node(addr string) *Server {
	for _, s := range c.nodes {
		if s.Addr() == addr {
			return s
		}
	}
	return nil
}

// Reshard moves the first n slots of one primary to another, by their ids, once all nodes agree who serves what.
func (c *Cluster) Reshard(tb TB, from, to string, n int) {
	tb.Helper()
	await(tb, "that the nodes agree", func() bool {
		return exec.Command("redis-cli", "--cluster", "check", c.nodes[0].Addr()).Run() == nil
	})
	redisCLI(tb, "--cluster", "reshard", c.nodes[0].Addr(), "--cluster-from", from, "--cluster-to", to,
		"--cluster-slots", fmt.Sprint(n), "--cluster-yes")
}

// StartReplica runs a replica of primary until the test ends.
func StartReplica(tb TB, primary *Server, args ...string) *Server {
	tb.Helper()
	return Start(tb, append([]string{"--replicaof", primary.host + " " + primary.port}, args...)...)
}

// AwaitReplicas waits until so many replicas have all that s has.
func (s *Server) AwaitReplicas(tb TB, n int) {
	tb.Helper()
	got := strings.TrimSpace(redisCLI(tb, "-h", s.host, "-p", s.port, "WAIT", fmt.Sprint(n), "300000"))
	if got < fmt.Sprint(n) {
		tb.Fatal("redis-server has " + got + " replicas")
	}
}

func redisCLI(tb TB, args ...string) string {
	tb.Helper()
	out, err := exec.Command("redis-cli", args...).CombinedOutput()
	if err != nil {
		tb.Fatal(fmt.Sprintf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out[max(0, len(out)-keptOutput):]))
	}
	return string(out)
}

// busPort picks a port for the bus on the server's own host.
func busPort(host string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
