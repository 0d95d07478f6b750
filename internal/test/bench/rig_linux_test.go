package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"feishu-relay/internal/test/childtest"
	"feishu-relay/internal/test/programtest"
	"feishu-relay/relay"
	"feishu-relay/relay/redisrelay"
)

// patience is how long anything is waited for. It is no measurement.
const patience = time.Minute

const channel = "bench:outbound"

// programs are compiled once, as releases are; TestMain removes them.
var programs = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "programs")
	remove = func() { _ = os.RemoveAll(dir) }
	for _, pkg := range []string{programtest.Relay, "feishu-relay/internal/test/bench/testdata/bare"} {
		if err == nil {
			err = programtest.Build(pkg, filepath.Join(dir, filepath.Base(pkg)))
		}
	}
	return dir, err
})

var remove = func() {}

func program(b testing.TB, name string) string {
	b.Helper()
	dir, err := programs()
	if err != nil {
		b.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func TestMain(m *testing.M) {
	childtest.Main(m, map[string]func([]string) error{"subscriber": beSubscriber}, func() { remove() })
}

// daemon is a process that serves HTTP, until the benchmark ends.
type daemon struct {
	cmd *exec.Cmd
	url string
}

// startDaemon runs a program and waits until path answers 200.
func startDaemon(b testing.TB, path, ready string, env ...string) *daemon {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	d := &daemon{cmd: exec.Command(path), url: "http://" + addr}
	d.cmd.Env = append(env, "LISTEN_ADDR="+addr)
	if err := d.cmd.Start(); err != nil { // its log goes where nobody reads it
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = d.cmd.Process.Signal(syscall.SIGTERM)
		stuck := time.AfterFunc(patience, func() { _ = d.cmd.Process.Kill() })
		_ = d.cmd.Wait()
		stuck.Stop()
	})
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		resp, err := http.Get(d.url + ready)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return d
			}
		}
		if time.Now().After(end) {
			b.Fatalf("%s does not answer", filepath.Base(path))
		}
	}
}

func startSidecar(b testing.TB, dir, redisURL, agent string, more ...string) *daemon {
	b.Helper()
	env := append(more, "AGENT_NAME="+agent, "DATA_DIR="+dir, "REDIS_URL="+redisURL, "RELAY_CHANNEL="+channel,
		"MAX_BOT_REPLY_DEPTH=1000", "BOT_REPLY_LLM_THRESHOLD=1000")
	return startDaemon(b, program(b, "feishu-relay"), "/readyz", env...)
}

// open opens the stream until the benchmark ends.
func (d *daemon) open(b testing.TB) io.Reader {
	b.Helper()
	resp, err := http.Get(d.url + "/v1/stream")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

// read reads the stream until the benchmark ends, and tells of each message.
func (d *daemon) read(b *testing.B, got chan<- struct{}) {
	b.Helper()
	stream := d.open(b)
	go func() {
		lines := bufio.NewReaderSize(stream, 64<<10)
		for {
			line, err := lines.ReadSlice('\n')
			if bytes.HasPrefix(line, []byte("event: message")) {
				got <- struct{}{}
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	}()
}

// rss is what a process has in memory, in MiB.
func (d *daemon) rss(b *testing.B) float64 {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.Atoi(kib)
	if err != nil {
		b.Fatal(err)
	}
	return float64(n) / 1024
}

// sender publishes as the sidecar of one more bot would.
type sender struct {
	queue   *redisrelay.Queue
	receipt relay.Receipt
	seq     int
}

func newSender(b *testing.B, redisURL string) *sender {
	b.Helper()
	q, err := redisrelay.New(redisrelay.Options{URL: redisURL, Channel: channel})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = q.Close() })
	return &sender{queue: q}
}

const chats = 40

var text = strings.Repeat("请看一下 this, please. ", 8)

// lines makes n messages of about 0.5 KB. Each answers a person who spoke just
// before.
func (s *sender) lines(b *testing.B, n int) [][]byte {
	b.Helper()
	out := make([][]byte, n)
	for i := range out {
		s.seq++
		id := relay.MessageID(fmt.Sprintf("om_dc13264520392913993dd051%08d", s.seq))
		ts := relay.MillisOf(time.Now())
		m := relay.Message{RelayMsgID: id, MessageID: id, Channel: "feishu",
			ChatID:  relay.ChatID(fmt.Sprintf("oc_84d1a7e5%04d", s.seq%chats)),
			Content: text, SenderAgentName: "agent_z", TS: ts, UserTS: ts - 1, Seq: relay.Seq(s.seq)}
		var err error
		if out[i], err = m.Encode(); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

func (s *sender) publish(b *testing.B, lines [][]byte) {
	b.Helper()
	var err error
	if s.receipt, err = s.queue.Publish(context.Background(), lines, s.receipt); err != nil {
		b.Fatal(err)
	}
}

func await(n int, got <-chan struct{}) {
	for range n {
		<-got
	}
}
