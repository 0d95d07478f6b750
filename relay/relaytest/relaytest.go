// Package relaytest is the conformance suite that every backend of package
// relay passes. It checks only what [relay.Backend] promises: a sidecar may
// rely on that with any backend.
//
// # Use
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		relaytest.Run(t, relaytest.Features{}, func(t *testing.T, agent string) relay.Backend {
//			q, err := filerelay.New(filerelay.Options{Dir: filepath.Join(dir, safefile.Name(t.Name())), …})
//			…
//			return q
//		})
//	}
//
// # The queue belongs to the test
//
// open is called with the t of a single case. Calls with the same t.Name()
// open the same queue, and a new name is a new and empty one: make the folder
// or the channel from the name. Opening the same agent again, after its first
// backend was closed, is a restart of that sidecar. The suite closes what it
// opens.
//
// # Lines
//
// Lines are encoded messages with a seq, as a sidecar writes them, except for
// those of the case about hostile lines.
//
// # Time
//
// No case measures time. A case waits at most [patience] for a line that must
// come. To show that no line comes it waits for [moment]; a slow machine makes
// that check weaker, never wrong.
package relaytest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"feishu-relay/relay"
)

// Features are the differences between backends.
type Features struct {
	// CanForget: the backend can lose lines it accepted, so it verifies
	// receipts, and an empty queue answers another queue's receipt with
	// relay.ErrForgotten.
	CanForget bool
	// UnnumberedTwice: a line without a seq may be handed over twice, since it
	// comes by the log and by the channel for other programs.
	UnnumberedTwice bool
}

// Open returns a new backend for agent on the queue of t.
type Open func(t *testing.T, agent string) relay.Backend

// patience is how long a case waits for a line before it fails.
const patience = 60 * time.Second

// moment is how long a case checks that no line comes.
const moment = 100 * time.Millisecond

// Run runs every case against the backends that open gives.
func Run(t *testing.T, f Features, open func(t *testing.T, agent string) relay.Backend) {
	cases := []struct {
		name string
		test func(t *testing.T, f Features, open Open)
	}{
		{"all lines come to all, in the order of each publisher", testTwoPublishers},
		{"a restart continues after the last settled line", testRestart},
		{"position is the oldest unsettled line", testOutOfOrder},
		{"what was there at the first start is history, also after a restart", testHistoryRestart},
		{"lines published while the reader was away are not history", testAway},
		{"window stops at the limit, goes on, and can be cancelled", testWindow},
		{"close ends a subscriber", testCloseEnds},
		{"calls fail after close and under a done context", testClosed},
		{"the longest line passes", testLongest},
		{"hostile lines are carried", testHostile},
		{"receipt is verified", testReceipt},
		{"receipt of another queue", testForeignReceipt},
		{"lines belong to their owners", testOwnership},
		{"status follows the reader", testStatus},
		{"one of many claims a key", testClaim},
		{"a claim ends with its life", testClaimExpires},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.test(t, f, open) })
	}
}

// Line makes the i-th line, from 1, of a sender: a whole message that holds both.
func Line(sender string, i int) []byte {
	m := relay.Message{
		RelayMsgID:      relay.MessageID(fmt.Sprintf("om_%s_%d", sender, i)),
		Channel:         relay.DefaultChannel,
		ChatID:          "oc_conformance",
		Content:         fmt.Sprintf("line %d of %s 你好", i, sender),
		SenderBotOpenID: relay.OpenID("ou_" + sender),
		SenderAgentName: relay.AgentName(sender),
		TS:              1795211093522 + relay.Millis(i),
		Seq:             relay.Seq(i),
	}
	line, err := m.Encode()
	if err != nil {
		panic(err) // a fixed, short message: Encode has no reason to fail
	}
	return line
}

// Lines makes the lines from..to, both included.
func Lines(sender string, from, to int) [][]byte {
	lines := make([][]byte, 0, to-from+1)
	for i := from; i <= to; i++ {
		lines = append(lines, Line(sender, i))
	}
	return lines
}

// publish appends lines, and fails the test if that fails.
func publish(t *testing.T, p relay.Publisher, lines ...[]byte) relay.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	receipt, err := p.Publish(ctx, lines, "")
	if err != nil {
		t.Fatalf("publish %d lines: %v", len(lines), err)
	}
	return receipt
}

func opened(t *testing.T, open Open, agent string) relay.Backend {
	t.Helper()
	b := open(t, agent)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close of %s: %v", agent, err)
		}
	})
	return b
}
