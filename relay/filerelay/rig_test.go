package filerelay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
	"feishu-relay/relay/filerelay"
	"feishu-relay/relay/relaytest"
)

// queue opens a queue in dir; opt has the options that differ from the default.
func queue(t testing.TB, dir, agent string, opt filerelay.Options) *filerelay.Queue {
	t.Helper()
	opt.Dir, opt.Queue, opt.Agent = dir, "outbound", agent
	if opt.Recheck == 0 {
		opt.Recheck = 20 * time.Millisecond
	}
	opt.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	q, err := filerelay.New(opt)
	must(t, err)
	t.Cleanup(func() { must(t, q.Close()) })
	return q
}

func publish(t testing.TB, q relay.Publisher, lines ...[]byte) {
	t.Helper()
	_, err := q.Publish(t.Context(), lines, "")
	must(t, err)
}

// heard collects and settles what one Subscribe hands over.
type heard struct {
	t    testing.TB
	stop func()

	mu      sync.Mutex
	lines   []string
	history int
}

func listen(t testing.TB, q *filerelay.Queue) *heard {
	t.Helper()
	return listenFor(t, q, func(line []byte) string { return string(line) })
}

// listenFor keeps what the test needs of each line.
func listenFor(t testing.TB, q *filerelay.Queue, keep func(line []byte) string) *heard {
	t.Helper()
	h := &heard{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		if err := q.Subscribe(ctx, func(_ context.Context, d relay.Delivery) {
			h.add(keep(d.Line), d.History)
			d.Settle()
		}); err != nil {
			t.Error(err)
		}
	})
	h.stop = sync.OnceFunc(func() { cancel(); reading.Wait() })
	t.Cleanup(h.stop)
	return h
}

func (h *heard) add(line string, history bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	if history {
		h.history++
	}
}

// wait returns the first n lines when they are there.
func (h *heard) wait(n int) []string {
	h.t.Helper()
	relaytest.Eventually(h.t, fmt.Sprint(n, " lines"), func() bool { return len(h.got()) >= n })
	return h.got()[:n]
}

// got returns the lines that came so far.
func (h *heard) got() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lines)
}

// want waits for exactly these lines, in this order, and none besides.
func (h *heard) want(lines ...[]byte) {
	h.t.Helper()
	h.wait(len(lines))
	want := strings.Split(string(bytes.Join(lines, []byte("\n"))), "\n")
	if diff := cmp.Diff(want, h.got()); diff != "" {
		h.t.Fatalf("lines (-want +got):\n%s", diff)
	}
}

// reading waits until the reader of q has found its place.
func reading(t testing.TB, q *filerelay.Queue) {
	t.Helper()
	relaytest.Eventually(t, "reading", func() bool { return q.Status().Reading })
}

// scribble appends raw bytes as a foreign program does, without a lock.
func scribble(t testing.TB, file string, data ...[]byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	must(t, err)
	defer f.Close()
	_, err = f.Write(bytes.Join(data, nil))
	must(t, err)
}

func live(dir string) string { return filepath.Join(dir, "outbound.jsonl") }

func segmentsOf(t testing.TB, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "outbound.*.jsonl"))
	must(t, err)
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
