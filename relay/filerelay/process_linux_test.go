package filerelay_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// The roles of processes, each with a folder and a name.
func TestMain(m *testing.M) {
	roles := map[string]func([]string) error{"read": readUntilKilled, "write": writeUntilKilled, "limited": limited}
	childtest.Main(m, roles)
}

func open(args []string) (*filerelay.Queue, error) {
	return filerelay.New(filerelay.Options{Dir: args[0], Queue: "outbound", Agent: args[1], RotateSize: 32 << 20})
}

// readUntilKilled prints each line's message id when it is settled.
func readUntilKilled(args []string) error {
	q, err := open(args)
	if err != nil {
		return err
	}
	return q.Subscribe(context.Background(), func(_ context.Context, d relay.Delivery) {
		fmt.Printf("%s\n", messageID(d.Line))
		d.Settle()
	})
}

// writeUntilKilled publishes lines of the size that is its last argument, and prints each number that was accepted.
func writeUntilKilled(args []string) error {
	q, err := open(args)
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[2])
	for i := 1; err == nil; i++ {
		if _, err = q.Publish(context.Background(), [][]byte{sized(args[1], i, size)}, ""); err == nil {
			fmt.Println(i)
		}
	}
	return err
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
				var writers []*childtest.Child
				for i := range atOnce {
					name := fmt.Sprintf("w%d-%d", round, i)
					writer := childtest.Start(t, "write", dir, name, fmt.Sprint(size))
					accepted[name] = 1 + rand.IntN(20)
					for range accepted[name] {
						writer.Line()
					}
					writers = append(writers, writer)
				}
				for _, writer := range writers {
					writer.Kill()
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
	victim := childtest.Start(t, "read", dir, "victim")
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
			printed(victim.Line())
		}
		for _, line := range victim.Kill() {
			printed(line)
		}
		if round < kills-1 {
			victim = childtest.Start(t, "read", dir, "victim")
		}
	}
}
