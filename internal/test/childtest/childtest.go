// Package childtest lets tests start their own binary again, as processes that play a role and may be killed.
package childtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

const roleVariable = "TEST_CHILD_ROLE"

// Main is what TestMain does in a package whose tests start processes: such a process plays its role, with the
// arguments of [Start], until that ends. The others call after behind their tests.
func Main(m *testing.M, roles map[string]func(args []string) error, after ...func()) {
	role, child := os.LookupEnv(roleVariable)
	if !child {
		code := m.Run()
		for _, f := range after {
			f()
		}
		os.Exit(code)
	}
	if err := roles[role](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child is a process in a role.
type Child struct {
	Cmd *exec.Cmd
	Out *bufio.Scanner // what it prints, by lines
	in  io.WriteCloser
	t   testing.TB
}

// Start starts a process in a role. It is killed when the test ends.
func Start(t testing.TB, role string, args ...string) *Child {
	t.Helper()
	c := &Child{Cmd: exec.Command(os.Args[0], args...), t: t}
	c.Cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0") // else each ends a second late
	c.Cmd.Stderr = t.Output()
	in, err := c.Cmd.StdinPipe()
	c.must(err)
	out, err := c.Cmd.StdoutPipe()
	c.must(err)
	c.must(c.Cmd.Start())
	c.in, c.Out = in, bufio.NewScanner(out)
	t.Cleanup(func() { c.Kill() })
	return c
}

// Line is the next line that the process prints.
func (c *Child) Line() string {
	c.t.Helper()
	if !c.Out.Scan() {
		c.t.Fatalf("the process ended: %v, %v", c.Cmd.Wait(), c.Out.Err())
	}
	return c.Out.Text()
}

// Tell gives the process a line to read.
func (c *Child) Tell() {
	c.t.Helper()
	_, err := io.WriteString(c.in, "\n")
	c.must(err)
}

// Kill ends the process with SIGKILL, and returns what it printed and nobody has read.
func (c *Child) Kill() (unread []string) {
	_ = c.Cmd.Process.Kill() // fails only when it has ended already
	for c.Out.Scan() {
		unread = append(unread, c.Out.Text())
	}
	_ = c.Cmd.Wait() // says that it was killed
	return unread
}

// Wait ends what the process reads, and waits for its end, which has to be a success.
func (c *Child) Wait() {
	c.t.Helper()
	_ = c.in.Close()
	c.must(c.Cmd.Wait())
}

func (c *Child) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
