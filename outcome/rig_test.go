package outcome

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"feishu-relay/relay"
)

// enough is how long a test waits for what must come; then it fails.
const enough = 60 * time.Second

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines makes n lines of an agent, numbered from first.
func lines(agent string, first, n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"agent":%q,"n":%d}`, agent, first+i)
	}
	return list
}

// ear runs one Follow.
type ear struct {
	t      *testing.T
	lines  chan string
	caught chan bool
	stop   func()
}

func follow(t *testing.T, s Store) *ear {
	t.Helper()
	e := &ear{t: t, lines: make(chan string, 1<<17), caught: make(chan bool, 10)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Follow(ctx, func(line []byte) { e.lines <- string(line) }, func(whole bool) { e.caught <- whole })
	}()
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Follow returned %v", err)
		}
	})
	t.Cleanup(e.stop)
	return e
}

func (e *ear) next() string {
	e.t.Helper()
	select {
	case line := <-e.lines:
		return line
	case <-time.After(enough):
		e.t.Fatal("no line came")
		panic("not reached")
	}
}

// until takes lines until one is last, and returns all.
func (e *ear) until(last []byte) []string {
	e.t.Helper()
	for all := []string{}; ; {
		line := e.next()
		all = append(all, line)
		if line == string(last) {
			return all
		}
	}
}

// want takes exactly these lines.
func (e *ear) want(list [][]byte) {
	e.t.Helper()
	for _, want := range list {
		if got := e.next(); got != string(want) {
			e.t.Fatalf("got the line %s, want %s", got, want)
		}
	}
}

// caughtUp waits for caughtUp and returns what it says.
func (e *ear) caughtUp() (whole bool) {
	e.t.Helper()
	select {
	case whole := <-e.caught:
		return whole
	case <-time.After(enough):
		e.t.Fatal("never caught up")
		panic("not reached")
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(enough)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never came: %s", what)
		}
	}
}

// run runs a Log of an agent over s until the test ends.
func run(t *testing.T, s Store, agent relay.AgentName, secret string) *Log {
	t.Helper()
	l := New(Options{Store: s, Agent: agent, Secret: secret, Logger: logger(t)})
	running(t, l)
	return l
}

// running runs l until the test ends or stop is called.
func running(t *testing.T, l *Log) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// about is an outcome of the i-th message.
func about(i int, change func(*Outcome)) Outcome {
	o := Outcome{Channel: "feishu", ChatID: "oc_1", RelayMsgID: relay.MessageID(fmt.Sprintf("om_%05d", i)), Sender: "someone"}
	if change != nil {
		change(&o)
	}
	return o
}
