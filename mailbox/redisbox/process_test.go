package redisbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
)

// The test's own program is the process that writes: these say what and where.
const (
	envURL   = "REDISBOX_TEST_URL"
	envAgent = "REDISBOX_TEST_AGENT"
)

const (
	processes   = 8
	eachProcess = 250
)

func TestMain(m *testing.M) {
	if os.Getenv(envURL) == "" {
		os.Exit(m.Run())
	}
	if err := write(os.Getenv(envURL), mailbox.AgentID(os.Getenv(envAgent))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write puts messages and beats in between, as a sidecar does.
func write(url string, agent mailbox.AgentID) error {
	s, err := Open(Options{URL: url, Self: agent})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx := context.Background()
	for i := range eachProcess {
		if _, err := s.Put(ctx, mailboxtest.Sealed(mailboxtest.Envelope(agent, "bob", i))); err != nil {
			return err
		}
		if i%25 == 0 {
			if err := s.SetCard(ctx, mailboxtest.Card(agent, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestEightProcessesWriteAtOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := rawClient(t, srv.URL())
	s := open(t, srv.URL(), "bob", nil)
	e := hearing(t, s, "bob")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	writers := make([]*exec.Cmd, processes)
	said := make([]bytes.Buffer, processes)
	for i := range writers {
		writers[i] = exec.Command(program)
		writers[i].Env = append(os.Environ(), envURL+"="+srv.URL(), envAgent+"="+fmt.Sprint("agent", i))
		writers[i].Stderr = &said[i]
		if err := writers[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range writers {
		if err := w.Wait(); err != nil {
			t.Errorf("writer %d: %v: %s", i, err, said[i].Bytes())
		}
	}
	if t.Failed() {
		return
	}
	last := map[mailbox.AgentID]int{}
	for range processes * eachProcess {
		m := decode(t, e.next())
		if want := mailboxtest.Envelope(m.From, "bob", last[m.From]).ID; m.ID != want {
			t.Fatalf("got %s, want %s", m.ID, want)
		}
		last[m.From]++
	}
	if n := raw.XLen(t.Context(), inboxKey("bob")).Val(); n != processes*eachProcess {
		t.Errorf("the inbox holds %d, want %d", n, processes*eachProcess)
	}
	if got := statuses(t, s); len(got) != processes {
		t.Errorf("got the cards %v", got)
	}
}
