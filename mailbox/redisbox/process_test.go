package redisbox

import (
	"context"
	"fmt"
	"os"
	"testing"

	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
)

// The test's own program is the process that writes: these say what and where.
const (
	envURL   = "REDISBOX_TEST_URL"
	envAgent = "REDISBOX_TEST_AGENT"
)

const (
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
