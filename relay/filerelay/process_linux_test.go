package filerelay_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
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

// Writers of several processes are killed in the middle of their work. Every line that a writer
// had been told is accepted is there once, whole, in its writer's order, and no line was
// swallowed by another's fragment.
func TestKilledWriters(t *testing.T) {
	const rounds, atOnce = 24, 3
	for _, size := range []int{400, 4 << 10, 64 << 10} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			dir := t.TempDir()
			q := queue(t, dir, "observer", filerelay.Options{})
			h := listenFor(t, q, messageID)
			reading(t, q)
			accepted := map[string]int{} // by writer
			for round := range rounds {
				var kills []func()
				for i := range atOnce {
					name := fmt.Sprintf("w%d-%d", round, i)
					out, kill := spawn(t, fmt.Sprint(size), dir, name)
					accepted[name] = 1 + rand.IntN(20)
					for range accepted[name] {
						if !out.Scan() {
							t.Fatalf("writer %s stopped early", name)
						}
					}
					kills = append(kills, func() { kill() })
				}
				for _, kill := range kills {
					kill()
				}
				publish(t, q, relaytest.Line("observer", round+1)) // the innocent line behind a fragment
			}
			accepted["observer"] = rounds
			last := fmt.Sprintf("om_observer_%d", rounds)
			relaytest.Eventually(t, "the last line", func() bool { return slices.Contains(h.got(), last) })
			h.stop()
			came := map[string]int{}
			for _, id := range h.lines {
				if id == "fragment" {
					continue
				}
				sender, number, _ := strings.Cut(strings.TrimPrefix(id, "om_"), "_")
				if came[sender]++; number != fmt.Sprint(came[sender]) {
					t.Fatalf("%s comes after number %d of its writer", id, came[sender]-1)
				}
			}
			for name, n := range accepted {
				if came[name] < n {
					t.Errorf("of %d accepted lines of %s %d came", n, name, came[name])
				}
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
