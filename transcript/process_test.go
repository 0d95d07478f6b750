//go:build unix

package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/relay"
)

// The roles of processes, each with a folder, a chat, and what the role needs.
func TestMain(m *testing.M) {
	roles := map[string]func([]string) error{"append": appendAll, "write-until-killed": writeUntilKilled,
		"full-disk": onFullDisk}
	childtest.Main(m, roles)
}

// opened is the store of a process that rotates at a size.
func opened(dir string, rotateSize int) (*Store, error) {
	return Open(dir, &Options{rotateSize: int64(rotateSize), keep: 1000})
}

func waitForGo() {
	fmt.Println("ready")
	bufio.NewScanner(os.Stdin).Scan()
}

func number(text string) int {
	n, _ := strconv.Atoi(text) // of these tests
	return n
}

// appendAll tries each of n messages and prints how many it added.
func appendAll(args []string) error {
	s, err := opened(args[0], number(args[3]))
	if err != nil {
		return err
	}
	waitForGo()
	count := 0
	for i := range number(args[2]) {
		added, err := s.Append("feishu", args[1],
			Entry{Role: relay.RoleAssistant, Sender: "agent_a", TS: 1795211093522 + int64(i),
				MessageID: fmt.Sprintf("om_%032d", i), Content: strings.Repeat("一段话 and some words. ", 10)})
		if err != nil {
			return err
		}
		if added {
			count++
		}
	}
	fmt.Println(count)
	return nil
}

// writeUntilKilled writes lines of 64 KiB and prints each id once it is acknowledged.
func writeUntilKilled(args []string) error {
	s, err := opened(args[0], 1<<30)
	if err != nil {
		return err
	}
	waitForGo()
	content := strings.Repeat("x", 64<<10)
	for i := 0; ; i++ {
		id := fmt.Sprintf("%s-%d", args[2], i)
		err := ErrBusy
		for errors.Is(err, ErrBusy) { // on a busy machine another writer may stop with the lock in its hand
			_, err = s.Append("feishu", args[1], Entry{Role: relay.RoleAssistant, Content: content, MessageID: id, TS: int64(i)})
		}
		if err != nil {
			return err
		}
		fmt.Println(id)
	}
}
