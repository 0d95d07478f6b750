//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// What stands here is what one writes first. The same faults that the sidecars
// have to survive are done to it, and it must lose messages: else the fault did
// not bite, and the test beside it has shown nothing.

// naive is a program that PUBLISHes and one that SUBSCRIBEs.
type naive struct {
	stop   context.CancelFunc
	parts  sync.WaitGroup
	pub    *redis.Client
	sent   atomic.Int64 // tries, whatever came of them
	failed atomic.Int64
	mu     sync.Mutex
	got    map[string]bool // guarded by mu
	last   chan struct{}   // closed when the last message came
}

const (
	naiveChannel = "naive"
	naiveEnd     = "the last message"
)

// startNaive runs until lost is called. The publisher may have another way to
// the server than the subscriber.
func startNaive(t *testing.T, publishTo, subscribeTo string) *naive {
	t.Helper()
	logging.Disable()
	ctx, stop := context.WithCancel(t.Context())
	n := &naive{stop: stop, got: map[string]bool{}, last: make(chan struct{})}
	n.pub = naiveClient(t, publishTo)
	sub := naiveClient(t, subscribeTo).Subscribe(ctx, naiveChannel)
	t.Cleanup(func() {
		stop()
		_ = sub.Close() // ends the goroutine that reads it
		n.parts.Wait()
	})
	received := sub.Channel()
	n.parts.Go(func() {
		for m := range received {
			if m.Payload == naiveEnd {
				close(n.last)
				return
			}
			n.mu.Lock()
			n.got[m.Payload] = true
			n.mu.Unlock()
		}
	})
	n.parts.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			n.publish(ctx, strconv.FormatInt(n.sent.Add(1), 10))
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return n
}

func naiveClient(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	must(t, err)
	opts.MaxRetries = -1
	opts.ContextTimeoutEnabled = true
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (n *naive) publish(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if n.pub.Publish(ctx, naiveChannel, text).Err() != nil {
		n.failed.Add(1) // and that is all that is made of it
	}
}

// bitten waits until some more publishes have failed.
func (n *naive) bitten(ctx context.Context) {
	for before := n.failed.Load(); n.failed.Load() < before+3 && ctx.Err() == nil; {
		breathe(ctx)
	}
}

// begun reports whether messages arrive.
func (n *naive) begun() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.got) > 0
}

// mustLose ends the two, once the last message has come or the subscriber is
// as good as dead, and fails the test if nothing was lost.
func (n *naive) mustLose(t *testing.T) {
	t.Helper()
	n.stop()
	patient := time.NewTimer(3 * time.Second)
	defer patient.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for waiting := true; waiting; {
		n.publish(t.Context(), naiveEnd)
		select {
		case <-n.last:
			waiting = false
		case <-patient.C:
			waiting = false
		case <-again.C:
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	lost := int(n.sent.Load()) - len(n.got)
	t.Logf("naive programs: %d of %d lost", lost, n.sent.Load())
	if lost <= 0 {
		t.Error("naive programs have lost nothing: the fault did not bite")
	}
}

// beNaiveWriter appends half a line to a file and is killed.
func beNaiveWriter(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	line := naiveLine("torn")
	if _, err := f.Write(line[:len(line)/2]); err != nil {
		return err
	}
	die()
	return nil
}

func naiveLine(id string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"content":"a line that another one may be glued to"}`+"\n", id)
}

// naiveFileMustLose lets a writer die in the middle of a line, and shows that
// the line of the next one is swallowed where nobody ends the torn one.
func naiveFileMustLose(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "naive.jsonl")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), naiveEnv+"="+path)
	if err := cmd.Run(); err == nil {
		t.Fatal("the naive writer was not killed")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	defer f.Close()
	for _, id := range []string{"innocent", "later"} {
		_, err := f.Write(naiveLine(id))
		must(t, err)
	}
	if got := naiveRead(t, path); got["innocent"] || !got["later"] {
		t.Errorf("naive programs have lost nothing: the reader got %v", got)
	}
}

// naiveRead is which lines a reader finds that takes a line for a message.
func naiveRead(t *testing.T, path string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	got := map[string]bool{}
	for line := range bytes.Lines(data) {
		var m struct{ ID string }
		if json.Unmarshal(line, &m) == nil {
			got[m.ID] = true
		}
	}
	return got
}
