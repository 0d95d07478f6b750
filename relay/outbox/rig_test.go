package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/relay"
)

var errAway = errors.New("the backend is away")

// backend is a queue in memory. Its receipt is how many lines it ever took.
type backend struct {
	mu    sync.Mutex
	lines []string // that it holds
	taken []int    // for each, how many it had taken then
	seen  []string // that it ever took, in order
	lost  []int    // of the numbers in taken, those of lines that it has lost
	calls []time.Time
	// before decides on a call: how many lines are taken, and what is answered.
	before func(lines int) (taken int, err error)
}

func (q *backend) Publish(_ context.Context, lines [][]byte, after relay.Receipt) (relay.Receipt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(q.calls, time.Now())
	n, _ := strconv.Atoi(string(after))
	if after != "" && slices.Contains(q.lost, n) {
		return "", fmt.Errorf("look: %w", relay.ErrForgotten)
	}
	taken, err := len(lines), error(nil)
	if q.before != nil {
		taken, err = q.before(len(lines))
	}
	for _, line := range lines[:taken] {
		q.lines = append(q.lines, string(line))
		q.seen = append(q.seen, string(line))
		q.taken = append(q.taken, len(q.seen))
	}
	if err != nil {
		return "", err
	}
	return relay.Receipt(strconv.Itoa(len(q.seen))), nil
}

// forget empties the backend, as a restart without persistence does.
func (q *backend) forget() {
	q.lose(len(q.lines))
}

// lose drops the newest n lines, as a failover to a replica that lacks them does.
func (q *backend) lose(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := len(q.lines) - n
	q.lost = append(q.lost, q.taken[kept:]...)
	q.lines, q.taken = q.lines[:kept:kept], q.taken[:kept:kept]
}

func ids(t *testing.T, lines []string) (all []string) {
	t.Helper()
	for _, line := range lines {
		m, err := relay.Decode([]byte(line))
		if err != nil {
			t.Errorf("the backend was given %.80q: %v", line, err)
		}
		all = append(all, string(m.RelayMsgID))
	}
	return all
}

func (q *backend) holds(t *testing.T) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ids(t, q.lines)
}

func (q *backend) saw(t *testing.T) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ids(t, q.seen)
}

// firsts drops repeats.
func firsts(all []string) (once []string) {
	for _, id := range all {
		if !slices.Contains(once, id) {
			once = append(once, id)
		}
	}
	return once
}

func numbers(from, to int) (all []string) {
	for i := from; i <= to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

func message(id string) relay.Message {
	return relay.Message{RelayMsgID: relay.MessageID(id), Channel: "feishu", ChatID: "oc_x", Content: "hello " + id,
		SenderAgentName: "agent_a", SenderBotOpenID: "ou_a", TS: relay.MillisOf(time.Now())}
}

func openBox(tb testing.TB, dir string, opts Options) *Box {
	tb.Helper()
	root, err := safefile.OpenDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := Open(root, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if b.file != nil {
			_ = b.file.Close() // also of one that was "killed"
		}
		root.Close()
	})
	return b
}

func put(tb testing.TB, b *Box, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		if _, err := b.Put(message(id)); err != nil {
			tb.Fatal(err)
		}
	}
}

// drain publishes until nothing waits.
func drain(t *testing.T, b *Box, to relay.Publisher) {
	t.Helper()
	for range 1000 {
		if more, err := b.step(t.Context(), to); err == nil && !more {
			return
		}
	}
	t.Fatal("the box does not empty")
}

func wantIDs(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantEmpty(t *testing.T, b *Box) {
	t.Helper()
	if s := b.Stats(); s.Pending != 0 || s.Bytes != 0 {
		t.Errorf("%d messages, %d bytes wait; want none", s.Pending, s.Bytes)
	}
}

func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString(text); err != nil {
		t.Error(err)
	}
	f.Close()
}

func lineOf(t *testing.T, id string, seq relay.Seq) string {
	t.Helper()
	m := message(id)
	m.Seq = seq
	line, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

func big(id string) relay.Message {
	m := message(id)
	m.Content = strings.Repeat("x", 900_000)
	return m
}
