package redistest

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
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
	if err := redisCLI("", append(create, "--cluster-replicas", "1", "--cluster-yes")...); err != nil {
		tb.Fatal(err)
	}
	for _, s := range c.nodes[:3] { // the primaries
		s.AwaitReplicas(tb, 1)
	}
	for _, s := range c.nodes { // each learns by itself that all slots are served
		s.awaitComplete(tb)
	}
	return c
}

// StartNode runs a Cluster of one node, which serves all slots, until the test ends.
func StartNode(tb TB) *Server {
	tb.Helper()
	return startNode(tb, nil)
}

func startNode(tb TB, a *Authority) *Server {
	tb.Helper()
	s := started(tb, false, a, []string{"--cluster-enabled", "yes"})
	slots := []string{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE is of 7.0
	for i := range 1 << 14 {
		slots = append(slots, strconv.Itoa(i))
	}
	s.ask(slots...)
	s.awaitComplete(tb)
	return s
}

func (s *Server) awaitComplete(tb TB) {
	tb.Helper()
	await(tb, "that the Cluster is complete at "+s.Addr(), func() bool {
		return strings.Contains(s.ask("CLUSTER", "INFO"), "cluster_state:ok")
	})
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

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) int {
	for _, s := range c.nodes {
		if n, err := strconv.Atoi(s.ask("CLUSTER", "KEYSLOT", key)); err == nil {
			return n
		}
	}
	return -1
}

// Owner is the primary of a slot by the first node that answers and knows one, and its id; nil: no node
// does. A primary that they take for lost is none.
func (c *Cluster) Owner(slot int) (owner *Server, id string) {
	for _, s := range c.nodes {
		for line := range strings.Lines(s.ask("CLUSTER", "NODES")) {
			if owner, id = c.ownerIn(strings.Fields(line), slot); owner != nil {
				return owner, id
			}
		}
	}
	return nil, ""
}

// ownerIn reads a line of CLUSTER NODES: id, address, flags, five more, then ranges of slots.
func (c *Cluster) ownerIn(fields []string, slot int) (owner *Server, id string) {
	if len(fields) < 9 || !slices.Contains(strings.Split(fields[2], ","), "master") || strings.Contains(fields[2], "fail") {
		return nil, ""
	}
	for _, slots := range fields[8:] {
		first, last, isRange := strings.Cut(slots, "-")
		from, err := strconv.Atoi(first)
		to := from
		if isRange && err == nil {
			to, err = strconv.Atoi(last)
		}
		if err == nil && from <= slot && slot <= to {
			addr, _, _ := strings.Cut(fields[1], "@")
			return c.Node(addr), fields[0]
		}
	}
	return nil, ""
}

// Reshard moves the first n slots of one primary to another, by their ids. It fails while the
// nodes do not agree on who has which slots.
func (c *Cluster) Reshard(from, to string, n int) error {
	return redisCLI("", "--cluster", "reshard", c.nodes[0].Addr(), "--cluster-from", from, "--cluster-to", to,
		"--cluster-slots", fmt.Sprint(n), "--cluster-yes")
}

// Move gives the slot of a key, and the slots of its primary before it, to another primary, by Reshard. It
// returns how many were moved.
func (c *Cluster) Move(key string) (n int, err error) {
	slot := c.Slot(key)
	owner, from := c.Owner(slot)
	if owner == nil {
		return 0, fmt.Errorf("no node knows the primary of %s", key)
	}
	to := ""
	for line := range strings.Lines(owner.ask("CLUSTER", "NODES")) {
		fields := strings.Fields(line)
		for s := 0; s < 16384 && to == ""; s += 64 {
			if other, id := c.ownerIn(fields, s); other != nil && id != from {
				to = id
			}
		}
		for s := range slot + 1 {
			if _, id := c.ownerIn(fields, s); id == from {
				n++
			}
		}
	}
	return n, c.Reshard(from, to, n)
}

// StartReplica runs a replica of primary until the test ends.
func StartReplica(tb TB, primary *Server, args ...string) *Server {
	tb.Helper()
	return Start(tb, append([]string{"--replicaof", primary.host, primary.port}, args...)...)
}

// AwaitReplicas waits until so many replicas have all that s has.
func (s *Server) AwaitReplicas(tb TB, n int) {
	tb.Helper()
	// WAIT is about what the connection knows, which after a command is all.
	wait := fmt.Sprintf("PING\nWAIT %d 300000\n", n)
	if err := redisCLI(wait, s.login()...); err != nil {
		tb.Fatal(err)
	}
}

// DropReplicas closes the connections of the replicas, which may connect again.
func (s *Server) DropReplicas() error {
	return redisCLI("", append(s.login(), "CLIENT", "KILL", "TYPE", "replica")...)
}

// LastEntry is the id of the entry that was added to a stream last, also if it was deleted since; "" without one.
func (s *Server) LastEntry(key string) string {
	_, rest, _ := strings.Cut(s.ask("XINFO", "STREAM", key), "last-generated-id\n")
	id, _, _ := strings.Cut(rest, "\n")
	return id
}

// ask sends a command and returns what redis-cli prints; "" without an answer within two seconds.
func (s *Server) ask(command ...string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "redis-cli", append(s.login(), command...)...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// login is how redis-cli reaches s: over TLS with its own certificate.
func (s *Server) login() []string {
	args := []string{"-h", s.host, "-p", s.port}
	if s.tls != nil {
		cert, key := s.tls.names(s.certificate())
		args = append(args, "--tls", "--cacert", s.tls.File(), "--cert", cert, "--key", key)
	}
	return args
}

func redisCLI(input string, args ...string) error {
	cmd := exec.Command("redis-cli", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("redis-cli %s: %w\n%s", strings.Join(args, " "), err, out[max(0, len(out)-keptOutput):])
	}
	return err
}

// busOffset is how far the bus is behind the server's port where that is not set.
const busOffset = 10_000

// busPort picks a port for the bus on the server's own host: busOffset behind its own may not exist. Before 7.0 it
// cannot be set.
func (s *Server) busPort() (string, error) {
	if Before(7, 0) {
		port, err := strconv.Atoi(s.port)
		return strconv.Itoa(port + busOffset), err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(s.host, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
