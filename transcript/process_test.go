//go:build unix

package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
		if err := playRole(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// playRole is the helper process. Its arguments are the folder and the chat, then
// those of the role.
func playRole(role string, args []string) error {
	dir, chat := args[0], args[1]
	in := bufio.NewScanner(os.Stdin)
	waitForGo := func() { fmt.Println("ready"); in.Scan() }
	switch role {
	case "append-ours": // tries each of n messages and tells how many it added
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		s, err := Open(dir, helperOptions(args))
		if err != nil {
			return err
		}
		entries := make([]Entry, n)
		for i := range n {
			entries[i] = benchEntry(i)
		}
		waitForGo()
		count := 0
		for _, e := range entries {
			added, err := s.Append("feishu", chat, e)
			if err != nil {
				return err
			}
			if added {
				count++
			}
		}
		fmt.Println(count)
		return s.Close()
	case "append-bare":
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		l, err := openBare(filepath.Join(dir, fileName("feishu", chat)))
		if err != nil {
			return err
		}
		ids, lines := make([]string, n), make([][]byte, n)
		for i := range n {
			e := benchEntry(i)
			if lines[i], err = e.encode(); err != nil {
				return err
			}
			lines[i] = append(lines[i], '\n')
			ids[i] = e.MessageID
		}
		waitForGo()
		count := 0
		for i := range n {
			added, err := l.append(ids[i], lines[i])
			if err != nil {
				return err
			}
			if added {
				count++
			}
		}
		fmt.Println(count)
		return nil
	case "write-until-killed": // 64 KiB lines; tells each id once it is acknowledged
		s, err := Open(dir, nil)
		if err != nil {
			return err
		}
		waitForGo()
		content := strings.Repeat("x", 64<<10)
		for i := 0; ; i++ {
			id := fmt.Sprintf("%s-%d", args[2], i)
			e := Entry{Role: relay.RoleAssistant, Content: content, MessageID: id, TS: int64(i)}
			err := ErrBusy
			for errors.Is(err, ErrBusy) { // on a busy machine another writer may stop with the lock in its hand
				_, err = s.Append("feishu", chat, e)
			}
			if err != nil {
				return err
			}
			fmt.Println(id)
		}
	case "hold-lock": // appends nothing and keeps the lock until its input ends
		s, err := Open(dir, nil)
		if err != nil {
			return err
		}
		l := s.lock(chatKey{"feishu", chat})
		return l.log.Do(0, func(int64) error {
			waitForGo()
			return nil
		})
	case "full-disk":
		return onFullDisk(dir, chat)
	}
	return fmt.Errorf("no role %s", role)
}

func helperOptions(args []string) *Options {
	if len(args) < 4 {
		return &Options{rotateSize: 1 << 30}
	}
	size, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		panic(err)
	}
	return &Options{rotateSize: size, keep: 1000}
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
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), self, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = tb.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
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
	if _, err := io.WriteString(h.in, line+"\n"); err != nil {
		tb.Fatal(err)
	}
}

func (h *helper) wait(tb testing.TB) {
	tb.Helper()
	_ = h.in.Close()
	if err := h.cmd.Wait(); err != nil {
		tb.Fatal(err)
	}
}
