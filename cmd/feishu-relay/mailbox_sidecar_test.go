package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"feishu-relay/internal/selftest"
)

// startSidecar starts the program as the sidecar of an agent, and returns where
// it listens once it is there.
func startSidecar(t *testing.T, agent, data string) (addr string) {
	t.Helper()
	p := exec.Command("feishu-relay", "run") // this test binary: see TestMain
	p.Env = append(os.Environ(), "AGENT_NAME="+agent, "AGENT_ROLE=the "+agent, "DATA_DIR="+data, "LISTEN_ADDR=127.0.0.1:0")
	log, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for addr == "" && lines.Scan() {
		var line struct{ Msg, Addr string }
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Msg == "listening" {
			addr = line.Addr
		}
	}
	rest := make(chan struct{})
	go func() {
		defer close(rest)
		_, _ = io.Copy(io.Discard, log)
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGTERM)
		<-rest
		if err := p.Wait(); err != nil {
			t.Errorf("the sidecar of %s ended with %v", agent, err)
		}
	})
	if addr == "" {
		t.Fatalf("the sidecar of %s does not listen", agent)
	}
	return addr
}

// TestMailboxOfRealSidecars hands a task from one agent to the other and its
// result back, by nothing but the command.
func TestMailboxOfRealSidecars(t *testing.T) {
	clearEnvironment(t, nil)
	data := t.TempDir()
	manager, coder := startSidecar(t, "manager", data), startSidecar(t, "coder", data)
	call := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := program(t, append([]string{"mailbox"}, args...)...)
		if code != 0 {
			t.Fatalf("%q: status %d, %s", args, code, stderr)
		}
		return stdout
	}
	// until asks again until the answer has want in it: a message takes a moment
	// from one process to the other.
	until := func(want, addr string, args ...string) []string {
		t.Helper()
		re, late := regexp.MustCompile(want), time.Now().Add(20*time.Second)
		for {
			got := call(append(args, "--addr", addr)...)
			if m := re.FindStringSubmatch(got); m != nil {
				return m
			}
			if time.Now().After(late) {
				t.Fatalf("%q at %s: no %q in\n%s", args, addr, want, got)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	until(`(?m)^coder +idle +0/3 .* the coder$`, manager, "agents")
	sent := call("send", "--addr", manager, "--type", "task", "coder", "write it")
	id := regexp.MustCompile(`task (\S+)`).FindStringSubmatch(sent)
	if id == nil {
		t.Fatalf("no task in %q", sent)
	}
	until(`  │ write it\n`, coder, "inbox")
	until(id[1]+` +from manager +accepted `, coder, "tasks")
	if got := call("inbox", "--drain", "--addr", coder); !strings.Contains(got, "  │ write it\n") {
		t.Errorf("drained: %q", got)
	}
	if got := call("inbox", "--addr", coder); got != "Nothing waits for this bot.\n" {
		t.Errorf("after that: %q", got)
	}
	call("tasks", "update", id[1], "completed", "it", "is", "written", "--addr", coder)
	until(id[1]+`  to coder  completed\n(?s:.*)  │ write it\n    result\n  │ it is written\n`, manager, "tasks", id[1])
	until(`  │ it is written\n`, manager, "inbox")

	if code, _, stderr := program(t, "mailbox", "tasks", "update", "--addr", coder, id[1], "working"); code != 1 || !strings.Contains(stderr, "completed") {
		t.Errorf("a step back: status %d, %q", code, stderr)
	}
	if code, _, stderr := program(t, "mailbox", "dead-letters", "replay", "msg_x", "--addr", coder); code != 1 || !strings.Contains(stderr, "msg_x") {
		t.Errorf("replay of nothing: status %d, %q", code, stderr)
	}
	if got := call("send", "*", "well done", "--addr", manager); !strings.HasPrefix(got, "put into the inbox of coder;") {
		t.Errorf("to all: %q", got)
	}
	until(`  │ well done\n`, coder, "inbox")
	if got := call("dead-letters", "--addr", manager); got != "There are no dead letters.\n" {
		t.Errorf("dead letters: %q", got)
	}
	t.Setenv("AGENT_NAME", "manager")
	t.Setenv("DATA_DIR", data)
	t.Setenv("LISTEN_ADDR", manager)
	_, found := checked(t)
	wants(t, found, "mailbox", selftest.OK, "2 agents are registered")
}
