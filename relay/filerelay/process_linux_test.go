package filerelay_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// TestMain is also the program of the processes that the tests kill: with
// FILERELAY_CHILD set to a role, that role is played until the kill.
func TestMain(m *testing.M) {
	role, ok := os.LookupEnv("FILERELAY_CHILD")
	if !ok {
		os.Exit(m.Run())
	}
	if err := child(role, os.Getenv("FILERELAY_DIR"), os.Getenv("FILERELAY_NAME")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(role, dir, name string) error {
	q, err := filerelay.New(filerelay.Options{Dir: dir, Queue: "outbound", Agent: name, RotateSize: 32 << 20})
	if err != nil {
		return err
	}
	switch role {
	case "read": // prints each line's message id when it is settled
		return q.Subscribe(context.Background(), func(_ context.Context, d relay.Delivery) {
			fmt.Printf("%s\n", messageID(d.Line))
			d.Settle()
		})
	case "limited":
		return limited(q)
	}
	size, err := strconv.Atoi(role) // of the lines written; prints each number that was accepted
	if err != nil {
		return err
	}
	for i := 1; ; i++ {
		if _, err := q.Publish(context.Background(), [][]byte{sized(name, i, size)}, ""); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// spawn starts this binary in a role and returns what it prints, line by line,
// and a function that kills it and returns what was printed and not read.
func spawn(t *testing.T, role, dir, name string) (out *bufio.Scanner, kill func() (unread []string)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FILERELAY_CHILD="+role, "FILERELAY_DIR="+dir, "FILERELAY_NAME="+name)
	cmd.Stderr = t.Output()
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	out = bufio.NewScanner(pipe)
	return out, func() (unread []string) {
		_ = cmd.Process.Kill() // SIGKILL; it may have ended already
		for out.Scan() {
			unread = append(unread, out.Text())
		}
		_ = cmd.Wait() // reports that it was killed
		return unread
	}
}

// Writers of several processes are killed in the middle of their work. Every
// line that a writer had been told is accepted is there, whole, in its
// writer's order, and no line was swallowed by another's fragment.
func TestKilledWriters(t *testing.T) {
	const killsPerSize, atOnce = 72, 3
	for _, size := range []int{400, 4 << 10, 64 << 10} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			dir := t.TempDir()
			q := queue(t, dir, "observer", filerelay.Options{})
			listened := listenFor(t, q, messageID)
			reading(t, q)
			var accepted []string
			h := make(map[string]int) // place of each message in the queue; filled below
			for round := range killsPerSize / atOnce {
				type writer struct {
					name string
					last int
					out  *bufio.Scanner
					kill func() []string
				}
				var writers []*writer
				for i := range atOnce {
					w := &writer{name: fmt.Sprintf("w%d-%d", round, i)}
					w.out, w.kill = spawn(t, fmt.Sprint(size), dir, w.name)
					writers = append(writers, w)
				}
				for _, w := range writers {
					for range 1 + rand.IntN(20) {
						if !w.out.Scan() {
							t.Fatalf("writer %s stopped early", w.name)
						}
						w.last++
					}
				}
				for _, w := range writers {
					w.kill()
					for i := range w.last {
						accepted = append(accepted, fmt.Sprintf("om_%s_%d", w.name, i+1))
					}
				}
				publish(t, q, relaytest.Line("observer", round+1)) // the innocent line behind a fragment
				accepted = append(accepted, fmt.Sprintf("om_observer_%d", round+1))
			}
			listened.wait(len(accepted))
			eventually(t, "the end of the queue", func() bool { return q.Status().Lag == 0 })
			listened.stop()
			fragments := 0
			last := map[string]int{}
			for i, id := range listened.lines {
				if id == "fragment" {
					fragments++
					continue
				}
				if _, twice := h[id]; twice {
					t.Fatalf("%s occurs twice", id)
				}
				h[id] = i
				sender, number, _ := strings.Cut(strings.TrimPrefix(id, "om_"), "_")
				n, err := strconv.Atoi(number)
				if err != nil || n != last[sender]+1 {
					t.Fatalf("%s comes after number %d of its writer", id, last[sender])
				}
				last[sender] = n
			}
			lost := 0
			for _, id := range accepted {
				if _, ok := h[id]; !ok {
					lost++
				}
			}
			t.Logf("%d kills, %d lines accepted, %d found, %d fragments", killsPerSize, len(accepted), len(h), fragments)
			if lost > 0 {
				t.Errorf("%d accepted lines are lost", lost)
			}
		})
	}
}

// A reader is killed again and again while lines come and files are rotated:
// after a restart it begins at or before the first line that it had not
// printed, and leaves none out.
func TestKilledReader(t *testing.T) {
	const kills, each = 15, 200
	dir := t.TempDir()
	w := queue(t, dir, "w", filerelay.Options{RotateSize: 20_000})
	out, kill := spawn(t, "read", dir, "victim")
	next := 1 // the first message that was never printed
	for round := range kills {
		publish(t, w, relaytest.Lines("w", round*each+1, round*each+each/2)...)
		publish(t, w, relaytest.Lines("w", round*each+each/2+1, round*each+each)...)
		stopAt := round*each + 1 + rand.IntN(each)
		if round == kills-1 {
			stopAt = kills * each
		}
		printed := func(line string) {
			n, err := strconv.Atoi(strings.TrimPrefix(line, "om_w_"))
			if err != nil || n > next {
				t.Fatalf("%q came where message %d was due", line, next)
			}
			next = max(next, n+1)
		}
		for next <= stopAt {
			if !out.Scan() {
				t.Fatalf("the reader stopped before message %d", next)
			}
			printed(out.Text())
		}
		for _, line := range kill() {
			printed(line)
		}
		if round < kills-1 {
			out, kill = spawn(t, "read", dir, "victim")
		}
	}
}

// Processes that write while others rotate keep everything.
func TestManyProcessesRotate(t *testing.T) {
	dir := t.TempDir()
	h := listen(t, queue(t, dir, "a", filerelay.Options{}))
	var kills []func() []string
	for i := range 3 {
		out, kill := spawn(t, "read", dir, fmt.Sprint("r", i))
		kills = append(kills, kill)
		_ = out
	}
	writers := make([]*filerelay.Queue, 4)
	for i := range writers {
		writers[i] = queue(t, dir, fmt.Sprint("w", i), filerelay.Options{RotateSize: 3000})
	}
	done := make(chan error)
	const lines = 200
	for i, w := range writers {
		go func() {
			for n := 1; n <= lines; n++ {
				if _, err := w.Publish(t.Context(), relaytest.Lines(fmt.Sprint("w", i), n, n), ""); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range writers {
		must(t, <-done)
	}
	for _, kill := range kills {
		kill()
	}
	seen := map[string]int{}
	for _, line := range h.wait(lines * len(writers)) {
		sender, number, _ := strings.Cut(strings.TrimPrefix(messageID([]byte(line)), "om_"), "_")
		if number != fmt.Sprint(seen[sender]+1) {
			t.Fatalf("message %s of %s came after %d", number, sender, seen[sender])
		}
		seen[sender]++
	}
}
