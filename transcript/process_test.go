//go:build unix

package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/relay"
)

// Several tests need real processes: they run this test binary again with a
// role in its environment.
const roleVariable = "TRANSCRIPT_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role, os.Args[1], os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// check ends a helper process that fails.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

// playRole is the helper process, with a folder, a chat, and what the role needs.
func playRole(role, dir, chat string, args []string) {
	in := bufio.NewScanner(os.Stdin)
	waitForGo := func() { fmt.Println("ready"); in.Scan() }
	opts := &Options{rotateSize: 1 << 30, keep: 1000}
	if len(args) > 1 {
		opts.rotateSize = int64(number(args[1]))
	}
	s, err := Open(dir, opts)
	check(err)
	switch role {
	case "append": // tries each of n messages and tells how many it added
		waitForGo()
		count := 0
		for i := range number(args[0]) {
			added, err := s.Append("feishu", chat, Entry{Role: relay.RoleAssistant, Sender: "agent_a", TS: 1795211093522 + int64(i),
				MessageID: fmt.Sprintf("om_%032d", i), Content: strings.Repeat("一段话 and some words. ", 10)})
			check(err)
			if added {
				count++
			}
		}
		fmt.Println(count)
	case "write-until-killed": // 64 KiB lines; tells each id once it is acknowledged
		waitForGo()
		content := strings.Repeat("x", 64<<10)
		for i := 0; ; i++ {
			id := fmt.Sprintf("%s-%d", args[0], i)
			e := Entry{Role: relay.RoleAssistant, Content: content, MessageID: id, TS: int64(i)}
			err := ErrBusy
			for errors.Is(err, ErrBusy) { // on a busy machine another writer may stop with the lock in its hand
				_, err = s.Append("feishu", chat, e)
			}
			check(err)
			fmt.Println(id)
		}
	case "full-disk":
		onFullDisk(s, dir, chat)
	}
}

type helper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// startHelper starts a process in a role; it is killed when the test ends.
func startHelper(tb testing.TB, role string, args ...string) *helper {
	tb.Helper()
	self, err := os.Executable()
	must(tb, err)
	cmd := exec.CommandContext(tb.Context(), self, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = tb.Output()
	in, err := cmd.StdinPipe()
	must(tb, err)
	out, err := cmd.StdoutPipe()
	must(tb, err)
	must(tb, cmd.Start())
	return &helper{cmd, in, bufio.NewScanner(out)}
}

func (h *helper) line(tb testing.TB) string {
	tb.Helper()
	if !h.out.Scan() {
		tb.Fatalf("helper ended: %v", h.out.Err())
	}
	return h.out.Text()
}

func (h *helper) expect(tb testing.TB, want string) {
	tb.Helper()
	if got := h.line(tb); got != want {
		tb.Fatalf("helper said %q, want %q", got, want)
	}
}

func (h *helper) tell(tb testing.TB, line string) {
	tb.Helper()
	_, err := io.WriteString(h.in, line+"\n")
	must(tb, err)
}

func (h *helper) wait(tb testing.TB) {
	tb.Helper()
	_ = h.in.Close()
	must(tb, h.cmd.Wait())
}
