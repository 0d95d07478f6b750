//go:build unix

package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"feishu-relay/relay"
)

// The benchmarks are compared with the time that a bare loop of system calls
// needs for the same: sub-benchmarks ours and bare. Those of several processes
// run both in turn and report their ratio.

// benchEntry is a message of about 400 bytes as a line.
func benchEntry(i int) Entry {
	return Entry{
		Role: relay.RoleAssistant, Sender: "agent_a", MessageID: fmt.Sprintf("om_%032d", i), TS: 1795211093522 + int64(i),
		Content: strings.Repeat("一段话 and some words. ", 10), ParentID: "om_parent", ThreadID: "omt_thread",
	}
}

// bareLog appends once, as plainly as can be: flock, read what others wrote,
// look up, write.
type bareLog struct {
	fd     int
	offset int64
	known  map[string]struct{}
	buf    []byte
}

func openBare(path string) (*bareLog, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_APPEND|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	return &bareLog{fd: fd, known: make(map[string]struct{}), buf: make([]byte, 1<<16)}, err
}

var bareKey = []byte(`"message_id":"`)

func (l *bareLog) append(id string, line []byte) (bool, error) {
	if err := syscall.Flock(l.fd, syscall.LOCK_EX); err != nil {
		return false, err
	}
	defer syscall.Flock(l.fd, syscall.LOCK_UN)
	for {
		n, err := syscall.Pread(l.fd, l.buf, l.offset)
		if err != nil {
			return false, err
		}
		end := bytes.LastIndexByte(l.buf[:n], '\n') + 1
		for line := range bytes.SplitSeq(l.buf[:end], []byte{'\n'}) {
			if _, id, ok := bytes.Cut(line, bareKey); ok {
				l.known[string(id[:bytes.IndexByte(id, '"')])] = struct{}{}
			}
		}
		l.offset += int64(end)
		if n < len(l.buf) {
			break
		}
	}
	if _, ok := l.known[id]; ok {
		return false, nil
	}
	n, err := syscall.Write(l.fd, line)
	if err != nil || n < len(line) {
		return false, fmt.Errorf("%d bytes written: %w", n, err)
	}
	l.known[id] = struct{}{}
	l.offset += int64(n)
	return true, nil
}

// BenchmarkAppendOnce8 has 8 processes append the same messages.
func BenchmarkAppendOnce8(b *testing.B) {
	const messages = 20_000
	// run returns the time by the clock and that of the processors.
	run := func(b *testing.B, kind string) (clock, cpu time.Duration) {
		dir := b.TempDir()
		var all []*helper
		for range 8 {
			all = append(all, startHelper(b, kind, dir, "oc_x", strconv.Itoa(messages)))
		}
		for _, h := range all {
			h.expect(b, "ready")
		}
		start := time.Now()
		for _, h := range all {
			h.tell(b, "go")
		}
		added := 0
		for _, h := range all {
			n, err := strconv.Atoi(h.line(b))
			must(b, err)
			added += n
		}
		clock = time.Since(start)
		for _, h := range all {
			h.wait(b)
			cpu += h.cmd.ProcessState.UserTime() + h.cmd.ProcessState.SystemTime()
		}
		if added != messages {
			b.Fatalf("%s: %d appended, want %d", kind, added, messages)
		}
		return clock, cpu
	}
	for _, kind := range []string{"ours", "bare"} {
		b.Run(kind, func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				clock, _ := run(b, "append-"+kind)
				took += clock
			}
			b.ReportMetric(float64(messages)*float64(b.N)/took.Seconds(), "distinct/s")
		})
	}
	b.Run("ratio", func(b *testing.B) {
		var clocks, cpus []float64
		for b.Loop() {
			ours, oursCPU := run(b, "append-ours")
			bare, bareCPU := run(b, "append-bare")
			clocks = append(clocks, float64(bare)/float64(ours))
			cpus = append(cpus, float64(bareCPU)/float64(oursCPU))
		}
		slices.Sort(clocks)
		slices.Sort(cpus)
		b.ReportMetric(clocks[len(clocks)/2], "ours/bare") // of throughput: 0.5 is the bar
		b.ReportMetric(cpus[len(cpus)/2], "ours/bare-cpu") // the same where the machine is busy
	})
}

// bareTail reads blocks backwards and decodes the last n lines.
func bareTail(tb testing.TB, path string, n int) int {
	f, err := os.Open(path)
	must(tb, err)
	defer f.Close()
	at, err := f.Seek(0, io.SeekEnd)
	must(tb, err)
	var data []byte
	for at > 0 && bytes.Count(data, []byte{'\n'}) <= n {
		from := max(0, at-64<<10)
		block := make([]byte, at-from, at-from+int64(len(data)))
		_, err := f.ReadAt(block, from)
		must(tb, err)
		data, at = append(block, data...), from
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte{'\n'}), []byte{'\n'})
	lines = lines[max(0, len(lines)-n):]
	for _, line := range lines {
		var e Entry
		must(tb, json.Unmarshal(line, &e))
	}
	return len(lines)
}

// BenchmarkTail reads the last 50 messages. BENCH_LARGE=<folder> adds a file of 1 GiB, which is made there unless an
// earlier run has left it.
func BenchmarkTail(b *testing.B) {
	files := map[string]int64{b.TempDir(): 1 << 20}
	if dir := os.Getenv("BENCH_LARGE"); dir != "" {
		files[dir] = 1 << 30
	}
	for dir, size := range files {
		path, name := filepath.Join(dir, "feishu_oc_x.jsonl"), map[int64]string{1 << 20: "1MiB", 1 << 30: "1GiB"}[size]
		if info, err := os.Stat(path); err != nil || info.Size() < size {
			writeLarge(b, path, size)
		}
		s := open(b, dir, &Options{rotateSize: 2 << 30})
		b.Run(name+"/ours", func(b *testing.B) {
			for b.Loop() {
				if got, err := s.Tail("feishu", "oc_x", 50); len(got) != 50 || err != nil {
					b.Fatal(len(got), err)
				}
			}
		})
		b.Run(name+"/bare", func(b *testing.B) {
			for b.Loop() {
				if got := bareTail(b, path, 50); got != 50 {
					b.Fatal(got)
				}
			}
		})
	}
}

// writeLarge writes a transcript of about size bytes.
func writeLarge(tb testing.TB, path string, size int64) {
	tb.Helper()
	f, err := os.Create(path)
	must(tb, err)
	defer f.Close()
	var block strings.Builder
	for i := 0; int64(block.Len()) < min(size, 1<<20); i++ {
		block.WriteString(lines(tb, benchEntry(i)))
	}
	for written := int64(0); written < size; written += int64(block.Len()) {
		_, err := f.WriteString(block.String())
		must(tb, err)
	}
}
