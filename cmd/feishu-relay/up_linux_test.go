package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// upRun is a running `feishu-relay up`.
type upRun struct {
	cmd   *exec.Cmd
	lines chan string // of its standard output and error; closed at their end
	addrs map[string]string
}

// startUp runs five bots of which agent_e is misconfigured, on a terminal or with its
// output in a pipe, and waits until the other four listen.
func startUp(t *testing.T, terminal bool) (up *upRun, tty *os.File) {
	t.Helper()
	clearEnvironment(t, nil)
	file := filepath.Join(t.TempDir(), "bots.yaml")
	var text strings.Builder
	text.WriteString("shared:\n  DATA_DIR: " + t.TempDir() + "\n  LISTEN_ADDR: 127.0.0.1:0\nbots:\n")
	for _, name := range []string{"agent_a", "agent_b", "agent_c", "agent_d"} {
		text.WriteString("  " + name + ":\n")
	}
	write(t, file, text.String()+"  agent_e: {INJECT_MENTION: sometimes}\n")
	up = &upRun{cmd: exec.Command("feishu-relay", "up", file), lines: make(chan string, 1000), addrs: map[string]string{}}
	out, tty := attached(t, up.cmd, terminal) // its sidecars end with it
	go func() {
		defer close(up.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			up.lines <- strings.TrimRight(in.Text(), "\r")
		}
	}()
	for len(up.addrs) < 4 {
		up.await(t, "listening")
	}
	return up, tty
}

var (
	listening = regexp.MustCompile(`^(agent_\w) \| .*\blistening\b.*\baddr"?[:=]"?(127\.0\.0\.1:\d+)`)
	forPerson = regexp.MustCompile(`^agent_\w \| \d\d:\d\d:\d\d INF next step do=`)
	escape    = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// await returns the next line that has the words.
func (u *upRun) await(t *testing.T, words string) string {
	t.Helper()
	for line := range u.lines {
		plain := escape.ReplaceAllString(line, "")
		if m := listening.FindStringSubmatch(plain); m != nil {
			u.addrs[m[1]] = m[2]
		}
		if strings.Contains(plain, words) {
			return line
		}
	}
	t.Fatalf("the output ended without %q", words)
	return ""
}

// sidecars are the processes of the bots.
func (u *upRun) sidecars(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", u.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // the thread may have ended
		for pid := range strings.FieldsSeq(string(children)) {
			environ, err := os.ReadFile("/proc/" + pid + "/environ")
			if err != nil {
				continue
			}
			for entry := range strings.SplitSeq(string(environ), "\x00") {
				if name, ok := strings.CutPrefix(entry, "AGENT_NAME="); ok {
					found[name], _ = strconv.Atoi(pid)
				}
			}
		}
	}
	return found
}

// ended returns a function that waits until the process has ended.
func ended(t *testing.T, pid int) func() {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return func() {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err == unix.EINTR {
				continue
			}
			if err != nil || n != 1 {
				t.Fatalf("waiting for process %d: %v", pid, err)
			}
			return
		}
	}
}

func alive(t *testing.T, addr string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s answers %d", addr, resp.StatusCode)
	}
}

// One of five bots is misconfigured and one is killed: the killed one comes back, and the
// others run on as they were. SIGTERM ends all.
func TestUpKeepsBotsApart(t *testing.T) {
	up, _ := startUp(t, false)
	before := up.sidecars(t)
	if len(before) != 4 || before["agent_e"] != 0 {
		t.Fatalf("sidecars of %v, want four without agent_e", before)
	}
	if err := syscall.Kill(before["agent_b"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	up.await(t, "up | agent_b ended (signal: killed) and starts again in ")
	delete(up.addrs, "agent_b")
	for up.addrs["agent_b"] == "" {
		up.await(t, "agent_b | ")
	}
	after := up.sidecars(t)
	for name, pid := range before {
		if same := after[name] == pid; same == (name == "agent_b") {
			t.Errorf("%s: process %d before and %d after", name, pid, after[name])
		}
		alive(t, up.addrs[name])
	}
	if err := up.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	up.await(t, "up | all sidecars have stopped")
	if err := up.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	for name, pid := range after {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("the sidecar of %s is still there", name)
		}
	}
}

// The sidecars do not outlive a supervisor that is killed.
func TestUpTakesSidecarsWithIt(t *testing.T) {
	up, _ := startUp(t, false)
	var waits []func()
	for _, pid := range up.sidecars(t) {
		waits = append(waits, ended(t, pid))
	}
	if len(waits) != 4 {
		t.Fatalf("%d sidecars, want 4", len(waits))
	}
	if err := up.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, wait := range waits {
		wait()
	}
}

// On a terminal the names and the sidecars' lines are for people and in colour, and Ctrl-C stops all in order.
func TestUpOnTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	up, tty := startUp(t, true)
	line := up.await(t, " INF next step do=")
	if plain := escape.ReplaceAllString(line, ""); !forPerson.MatchString(plain) || strings.Count(line, "\x1b[") < 4 {
		t.Errorf("want time, level, text in colour behind the bot's name, got %q", line)
	}
	if _, err := tty.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if line := up.await(t, "up | all sidecars have stopped"); !strings.HasPrefix(line, "\x1b[") {
		t.Errorf("no colour in %q", line)
	}
	if err := up.cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

// A sidecar that does not stop in time is killed.
func TestUpKillsWhatDoesNotStop(t *testing.T) {
	clearEnvironment(t, nil)
	program, err := exec.LookPath("feishu-relay")
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	s := supervised{name: "agent_a", program: program, log: &sharedLog{w: write, paint: &paint{}}, stop: time.Millisecond,
		environ: append(os.Environ(), "AGENT_NAME=agent_a", "LISTEN_ADDR=127.0.0.1:0", "DATA_DIR="+t.TempDir())}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		s.keep(ctx)
		_ = write.Close()
	}()
	lines := bufio.NewScanner(read)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening") {
	}
	self := &upRun{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
	if err := syscall.Kill(self.sidecars(t)["agent_a"], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	cancel()
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if !strings.HasSuffix(last, "agent_a stopped: signal: killed") {
		t.Errorf("got %q", last)
	}
}

func TestLinesHaveNames(t *testing.T) {
	var out strings.Builder
	log := &sharedLog{w: &out, paint: &paint{}}
	log.copy("a", strings.NewReader("one\ntwo\n"+strings.Repeat("x", maxLogLine+3)+"\nlast"))
	want := "a | one\na | two\na | " + strings.Repeat("x", maxLogLine) + "\na | xxx\na | last\n"
	if got := out.String(); got != want {
		t.Errorf("got %d bytes, want %d: %.80q", len(got), len(want), got)
	}
}
