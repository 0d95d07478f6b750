package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

// A child is this test, run once more to be killed: in the folder, at the place.
const (
	childDir  = "OUTGOING_TEST_DIR"
	childDies = "OUTGOING_TEST_DIES"
)

// The places where a child dies, but for "when told".
const (
	beforePut = "between the record and Put"
	afterPut  = "between Put and the record"
)

// dirStore is a store whose inboxes are one folder: a file a message.
type dirStore struct {
	mailbox.Store
	dir  string
	dies string
	laid chan string // ids; may be nil
}

func (s *dirStore) Put(ctx context.Context, e mailbox.Sealed) (string, error) {
	if s.dies == beforePut {
		die()
	}
	key := e.ID + "~" + rand.Text()[:6]
	if err := os.WriteFile(filepath.Join(s.dir, key), nil, 0o600); err != nil {
		return "", err
	}
	if s.dies == afterPut {
		die()
	}
	if s.laid != nil {
		select {
		case s.laid <- e.ID:
		case <-ctx.Done():
		}
	}
	return key, nil
}

func (*dirStore) Where(context.Context, mailbox.AgentID, string) (mailbox.Place, error) {
	return mailbox.Waiting, nil
}

// die kills this process as SIGKILL does.
func die() {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	panic(fmt.Sprintf("still alive: %v", err))
}

func sendUntilKilled(dir, dies string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		panic(err)
	}
	opts := outgoingOptions{Store: &dirStore{dir: filepath.Join(dir, "store"), dies: dies}}.withDefaults()
	book, err := openState(root, opts.Logger)
	if err != nil {
		panic(err)
	}
	b := openOutgoing(book, opts)
	id := "m" + strings.ToLower(rand.Text())
	if err := b.Send(context.Background(), message(id)); err != nil {
		panic(err)
	}
	fmt.Println("sent", id)
	b.Run(context.Background())
}

// life runs a child until it dies, and returns what it said of each message.
func life(t *testing.T, dir, dies string) map[string]string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childDies+"="+dies)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("it was not killed: %v", err)
	}
	said := map[string]string{}
	for line := range strings.Lines(string(out)) {
		what, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		said[id] = what
	}
	return said
}

func crashDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// laid counts how often each message lies in the store.
func laid(t *testing.T, dir string) map[string]int {
	t.Helper()
	count := map[string]int{}
	entries, err := os.ReadDir(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		id, _, _ := strings.Cut(entry.Name(), "~")
		count[id]++
	}
	return count
}

// A process is killed on either side of Put: the next one sends the message,
// again if need be, under the same id.
func TestKilledAroundPut(t *testing.T) {
	for _, tt := range []struct {
		dies        string
		first, then int // how often it lies in the store
	}{
		{beforePut, 0, 1},
		{afterPut, 1, 2},
	} {
		t.Run(tt.dies, func(t *testing.T) {
			t.Parallel()
			dir := crashDir(t)
			said := life(t, dir, tt.dies)
			if len(said) != 1 {
				t.Fatalf("it said %v", said)
			}
			for id, what := range said {
				if n := laid(t, dir)[id]; what != "sent" || n != tt.first {
					t.Errorf("%s %s lies there %d times, want %d", what, id, n, tt.first)
				}
				b := goOn(t, dir, 1)
				if n := laid(t, dir)[id]; n != tt.then {
					t.Errorf("then %d times, want %d", n, tt.then)
				}
				if b.Pending() != 1 || !b.Acked(id, "coder") {
					t.Error("it does not wait for its acknowledgement")
				}
			}
		})
	}
}

// goOn opens the box of a dead child and runs it until it has put n messages down.
func goOn(t *testing.T, dir string, n int) *outgoing {
	t.Helper()
	s := &dirStore{dir: filepath.Join(dir, "store"), laid: make(chan string)}
	b := openBox(t, dir, outgoingOptions{Store: s})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	for range n {
		select {
		case <-s.laid:
		case <-time.After(30 * time.Second):
			t.Fatal("the next process does not send it")
		}
	}
	cancel()
	running.Wait()
	return b
}

// Eight goroutines send, and the receiver answers at once.
func TestConcurrentSend(t *testing.T) {
	dir := crashDir(t)
	const each = 25
	answers := make(chan string)
	s := &dirStore{dir: filepath.Join(dir, "store"), laid: answers}
	b := openBox(t, dir, outgoingOptions{Store: s})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running, sending, answering sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	answering.Go(func() {
		for n := range 8 * each {
			if id := <-answers; n%4 == 0 {
				b.Nacked(id, "coder", mailbox.Unauthorized, "")
			} else {
				b.Acked(id, "coder")
			}
		}
	})
	for i := range 8 {
		sending.Go(func() {
			for j := range each {
				if err := b.Send(ctx, message(fmt.Sprintf("m-%d-%d", i, j))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	answering.Wait()
	cancel()
	running.Wait()
	if n := len(b.DeadLetters()); n != 8*each/4 {
		t.Errorf("%d dead letters", n)
	}
	if n := len(laid(t, dir)); n != 8*each {
		t.Errorf("%d messages in the store", n)
	}
	if b.Pending() != 0 {
		t.Errorf("%d wait", b.Pending())
	}
}
