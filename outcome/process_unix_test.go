//go:build unix

package outcome

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"feishu-relay/relay"
)

// With this set the test's own program is a writer, until it is killed: it
// shares in the folder, from the number that follows.
const (
	envDir   = "OUTCOME_TEST_DIR"
	envFirst = "OUTCOME_TEST_FIRST"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(envDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := writeUntilKilled(dir, os.Getenv(envFirst)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeUntilKilled appends full batches of outcomes, and prints the number
// behind each that was written.
func writeUntilKilled(dir, first string) error {
	n, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	s, err := OpenFiles(dir, "victim", nil)
	if err != nil {
		return err
	}
	s.rotate = 64 << 20 // what is rotated away could not be looked for
	for {
		batch := make([][]byte, maxBatch)
		for i := range batch {
			o := numbered(n)
			if batch[i], err = encode(&o, ""); err != nil {
				return err
			}
			n++
		}
		if err := s.Append(context.Background(), batch); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// numbered is the n-th outcome; every part of it tells n.
func numbered(n int) Outcome {
	return about(n, func(o *Outcome) {
		o.Agent, o.At = "victim", relay.Millis(1+n)
		o.Door = strings.Repeat(strconv.Itoa(n%10), n%maxText)
	})
}

// A sidecar is killed (SIGKILL) at any moment, again and again. What it had been
// told is written is read, whole; of what was torn nothing is taken; and what
// is written afterwards is read.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	const kills = 30
	dir := filepath.Join(t.TempDir(), "outcomes")
	reader, err := OpenFiles(dir, "reader", logger(t))
	must(t, err)
	reader.start = 1 << 40 // all
	must(t, reader.Append(t.Context(), [][]byte{[]byte("{}")}))
	e := follow(t, reader)
	program, err := os.Executable()
	must(t, err)
	written := map[int]bool{}
	next := 0
	for range kills {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), envDir+"="+dir, envFirst+"="+strconv.Itoa(next))
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		first, told := next, bufio.NewScanner(out)
		for range 1 + rand.IntN(4) {
			if !told.Scan() {
				t.Fatal("the writer ended by itself")
			}
		}
		spin(rand.IntN(2_000_000)) // into a batch
		must(t, cmd.Process.Kill())
		for ok := true; ok; ok = told.Scan() { // what it had said before it died
			next, err = strconv.Atoi(told.Text())
			must(t, err)
		}
		_ = cmd.Wait() // killed
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
			t.Fatalf("the writer ended with %v", cmd.ProcessState)
		}
		for n := first; n < next; n++ {
			written[n] = true
		}
		next += 10_000 // clear of what was being written
	}
	victim, err := OpenFiles(dir, "victim", logger(t))
	must(t, err)
	victim.rotate = 64 << 20
	last := numbered(next)
	line, err := encode(&last, "")
	must(t, err)
	must(t, victim.Append(t.Context(), [][]byte{line}))
	torn, found := 0, map[int]bool{}
	for _, line := range e.until(line) {
		o, err := decode([]byte(line), "", time.Now())
		if err != nil {
			if json.Valid([]byte(line)) && line != "{}" {
				t.Errorf("refused the whole line %s: %v", line, err)
			}
			torn++
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(string(o.RelayMsgID), "om_"))
		must(t, err)
		if !same(o, numbered(n)) {
			t.Fatalf("took the torn line %s", line)
		}
		found[n] = true
	}
	for n := range written {
		if !found[n] {
			t.Errorf("outcome %d was written and is lost", n)
		}
	}
	t.Logf("%d kills, %d outcomes written, %d found, %d torn lines", kills, len(written), len(found), torn-1)
}

var spun int

func spin(n int) {
	for range n {
		spun++
	}
}
