//go:build unix

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// foreignPatience is how long a program of another make is waited for. Only a failing test waits so long.
const foreignPatience = 5 * time.Minute

// output is what a process wrote.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// startProcess starts cmd, and ends it and all that it started when the test ends. A failed test shows what it wrote.
func startProcess(t *testing.T, name string, cmd *exec.Cmd) *output {
	t.Helper()
	log := &output{}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr, cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // says that it was killed
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, log)
		}
	})
	return log
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// waitUntil waits for what another process does.
func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick, late := time.NewTicker(50*time.Millisecond), time.After(foreignPatience)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not in %s: %s", foreignPatience, what)
		}
	}
}

func get(t *testing.T, addr, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
