package filerelay_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

const patience = 60 * time.Second

// queue opens a queue in dir; opt has the options that differ from the default.
func queue(t testing.TB, dir, agent string, opt filerelay.Options) *filerelay.Queue {
	t.Helper()
	opt.Dir, opt.Queue, opt.Agent = dir, "outbound", agent
	if opt.Recheck == 0 {
		opt.Recheck = 20 * time.Millisecond
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	q, err := filerelay.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
	return q
}

func publish(t testing.TB, q relay.Publisher, lines ...[]byte) {
	t.Helper()
	if _, err := q.Publish(t.Context(), lines, ""); err != nil {
		t.Fatalf("publish: %v", err)
	}
}

// heard collects and settles what one Subscribe hands over.
type heard struct {
	t    testing.TB
	stop func()

	mu      sync.Mutex
	lines   []string
	history int
	more    chan struct{}
}

func listen(t testing.TB, q *filerelay.Queue) *heard {
	t.Helper()
	return listenFor(t, q, func(line []byte) string { return string(line) })
}

// listenFor keeps what the test needs of each line.
func listenFor(t testing.TB, q *filerelay.Queue, keep func(line []byte) string) *heard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h := &heard{t: t, more: make(chan struct{}, 1)}
	var reading sync.WaitGroup
	reading.Go(func() {
		err := q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
			h.mu.Lock()
			h.lines = append(h.lines, keep(d.Line))
			if d.History {
				h.history++
			}
			h.mu.Unlock()
			d.Settle()
			select {
			case h.more <- struct{}{}:
			default:
			}
		})
		if err != nil {
			t.Errorf("subscribe: %v", err)
		}
	})
	h.stop = sync.OnceFunc(func() { cancel(); reading.Wait() })
	t.Cleanup(h.stop)
	return h
}

// wait returns the first n lines when they are there.
func (h *heard) wait(n int) []string {
	h.t.Helper()
	end := time.After(patience)
	for {
		h.mu.Lock()
		if len(h.lines) >= n {
			defer h.mu.Unlock()
			return h.lines[:n:n]
		}
		got := len(h.lines)
		h.mu.Unlock()
		select {
		case <-h.more:
		case <-end:
			h.t.Fatalf("%d lines came, want %d", got, n)
		}
	}
}

// want waits for exactly these lines, in this order, and none besides.
func (h *heard) want(lines ...[]byte) {
	h.t.Helper()
	want := make([]string, len(lines))
	for i, line := range lines {
		want[i] = string(line)
	}
	h.wait(len(want))
	h.mu.Lock()
	defer h.mu.Unlock()
	if diff := cmp.Diff(want, h.lines); diff != "" {
		h.t.Fatalf("lines (-want +got):\n%s", diff)
	}
}

// eventually waits until ok is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s did not come true", what)
		}
	}
}

// reading waits until the reader of q has found its place.
func reading(t testing.TB, q *filerelay.Queue) {
	t.Helper()
	eventually(t, "reading", func() bool { return q.Status().Reading })
}

// scribble appends raw bytes as a foreign program does, without a lock.
func scribble(t testing.TB, file string, data ...[]byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(bytes.Join(data, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func live(dir string) string { return filepath.Join(dir, "outbound.jsonl") }

func segmentsOf(t testing.TB, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "outbound.*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sized makes a line of about size bytes.
func sized(name string, i, size int) []byte {
	line := relaytest.Line(name, i)
	pad := strings.Repeat("p", max(0, size-len(line)))
	return bytes.Replace(line, []byte(`"content":"`), []byte(`"content":"`+pad), 1)
}

func messageID(line []byte) string {
	_, rest, ok := bytes.Cut(line, []byte(`{"relay_msg_id":"`))
	id, _, ended := bytes.Cut(rest, []byte(`"`))
	if !ok || !ended || !bytes.HasSuffix(line, []byte("}")) {
		return "fragment"
	}
	return string(id)
}
