package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/mailbox"
)

// moving names the folder of a process that moves tasks until it is killed.
const moving = "TASKS_TEST_MOVE_IN"

// moveUntilKilled gives tasks and moves them, and says on standard output what is done.
func moveUntilKilled(dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		panic(err)
	}
	l, err := openLedger(root, nil)
	if err != nil {
		panic(err)
	}
	for i := len(l.List()); ; i++ {
		r := task(strconv.Itoa(i), mailbox.Pending)
		r.Text = strings.Repeat("work ", 500)
		if _, _, err := l.Add(r); err != nil {
			panic(err)
		}
		fmt.Println(i, r.State)
		for _, to := range []mailbox.TaskState{mailbox.Accepted, mailbox.Working, mailbox.Working, mailbox.Completed} {
			if _, _, err := l.Move(r.Direction, r.Peer, r.ID, to, strings.Repeat("so ", 500), start); err != nil {
				panic(err)
			}
			fmt.Println(i, to)
		}
	}
}

// A process is killed while it moves tasks: every file is whole, and what it
// said was done is there.
func TestLedgerKilled(t *testing.T) {
	dir := t.TempDir()
	for round := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), moving+"="+dir)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := map[string]mailbox.TaskState{}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			id, state, _ := strings.Cut(lines.Text(), " ")
			said[id] = mailbox.TaskState(state)
			if n == 7*round+3 {
				_ = cmd.Process.Kill() // what it says from here on counts as well
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("it ended by itself")
		}

		for _, name := range taskFiles(t, dir) {
			if strings.HasSuffix(name, ".json") && !json.Valid([]byte(readTask(t, dir, name))) {
				t.Errorf("half a file: %s", name)
			}
		}
		l, log := logged(t, dir)
		if log != "" {
			t.Errorf("round %d: %s", round, log)
		}
		for id, state := range said {
			r, ok := l.Get(Received, "manager", id)
			if !ok || r.State != state && checkStep(state, r.State) != nil {
				t.Errorf("round %d: task %s was %s, is %q", round, id, state, r.State)
			}
		}
	}
}
