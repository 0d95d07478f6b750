// Package mailboxtest is the one conformance suite that every store of package
// mailbox passes. It asks for what [mailbox.Store] promises, no more: the agent
// engine may rely on it whatever stands behind the mail.
//
// # Use
//
//	func TestConformance(t *testing.T) {
//		dir := t.TempDir()
//		mailboxtest.Run(t, func(t *testing.T) mailbox.Store {
//			s, err := filebox.Open(filepath.Join(dir, safefile.Name(t.Name())), nil)
//			if err != nil {
//				t.Fatal(err)
//			}
//			return s
//		})
//	}
//
// # The place belongs to the test
//
// open is called with the t of a single case. Calls with the same t.Name()
// open another store at the same place, as another process would, and a new
// name is a new and empty place: make the folder or the key prefix from the
// name, or empty what is there at the first call for a name. The suite closes
// what it opens.
//
// # Time
//
// Nothing here measures time. A case waits for what must come, at most [patience],
// and where it must show that nothing comes, it watches for a moment; a slow
// machine makes that check weaker, never wrong.
package mailboxtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

// Open returns a new store at the place of t.
type Open func(t *testing.T) mailbox.Store

// patience is how long a case waits for what must come; then it fails.
const patience = 60 * time.Second

// moment is how long a case watches for what must not come.
const moment = 100 * time.Millisecond

// Run runs every case against the stores that open gives.
func Run(t *testing.T, open func(t *testing.T) mailbox.Store) {
	cases := []struct {
		name string
		test func(t *testing.T, open Open)
	}{
		{"what lies there comes first, oldest first", testBacklog},
		{"new mail comes in the order it was put", testOrder},
		{"several senders at once", testSenders},
		{"mail comes as it was written", testContents},
		{"two receivers see the same mail", testReceivers},
		{"mail of another agent does not come", testApart},
		{"the first look ends", testLooked},
		{"take is called by one goroutine", testOneAtATime},
		{"the same id twice is two messages", testSameID},
		{"again replaces what waits", testAgain},
		{"again of what was taken lays it anew", testAgainTaken},
		{"where mail is", testWhere},
		{"settled mail is gone", testSettle},
		{"malformed mail leaves the inbox", testMalformed},
		{"settling twice is no error", testSettleTwice},
		{"mail is read by its own agent alone", testReadApart},
		{"keys that name nothing", testNoKey},
		{"raw mail belongs to the taker", testOwnership},
		{"agent ids that are none are refused", testHostile},
		{"the longest envelope passes, a longer one is refused", testLongest},
		{"a full inbox refuses", testFull},
		{"a done context ends receiving", testCancel},
		{"a done context puts nothing", testCancelledPut},
		{"a restart shows what is unsettled", testRestart},
		{"receiving again shows what is unsettled", testReceiveAgain},
		{"cards are kept", testCards},
		{"a store sets its own card alone", testCardsApart},
		{"no card is lost among eight writers", testCardsAtOnce},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

// Envelope makes the i-th message from one agent to another.
func Envelope(from, to mailbox.AgentID, i int) mailbox.Envelope {
	return mailbox.Envelope{
		ID:        fmt.Sprintf("msg_%d_%s_%d", 1745659200000+i, from, i),
		From:      from,
		To:        to,
		Timestamp: time.UnixMilli(1745659200000 + int64(i)).UTC(),
		Type:      mailbox.TypeMessage,
		Priority:  3,
		Hops:      3,
		Trace:     []mailbox.AgentID{from},
		Content:   mailbox.Content{Parts: []mailbox.Part{{Type: "text", Text: fmt.Sprintf("word %d of %s 你好", i, from)}}},
	}
}

// Sealed is e as a store is given it.
func Sealed(e mailbox.Envelope) mailbox.Sealed {
	m, err := mailbox.Signing{}.Seal(e)
	if m.Raw == nil {
		panic(err)
	}
	return m
}

// Envelopes makes the messages first..last, both included.
func Envelopes(from, to mailbox.AgentID, first, last int) []mailbox.Envelope {
	list := make([]mailbox.Envelope, 0, last-first+1)
	for i := first; i <= last; i++ {
		list = append(list, Envelope(from, to, i))
	}
	return list
}

// Card makes an agent's card after its n-th heartbeat.
func Card(agent mailbox.AgentID, n int) mailbox.Card {
	start := time.Date(2026, 4, 26, 10, 0, 0, 0, time.UTC)
	return mailbox.Card{
		AgentID:       agent,
		Description:   fmt.Sprintf("card %d of %s <&> 你好", n, agent),
		Capabilities:  []string{"go", "review"},
		Status:        mailbox.Busy,
		AllowFrom:     []mailbox.AgentID{"*"},
		MaxTasks:      3,
		CurrentTasks:  []string{fmt.Sprintf("task-%d", n)},
		Goals:         []string{string(agent)},
		RegisteredAt:  start,
		LastHeartbeat: start.Add(time.Duration(n) * time.Second),
	}
}

// opened opens a store that is closed with the test.
func opened(t *testing.T, open Open) mailbox.Store {
	t.Helper()
	s := open(t)
	t.Cleanup(func() { closed(t, s) })
	return s
}

func closed(t *testing.T, s mailbox.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// put lays envelopes down one after the other and returns their keys.
func put(t *testing.T, s mailbox.Store, list ...mailbox.Envelope) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	keys := make([]string, 0, len(list))
	for _, e := range list {
		key, err := s.Put(ctx, Sealed(e))
		if err != nil {
			t.Fatalf("put %s: %v", e.ID, err)
		}
		keys = append(keys, key)
	}
	return keys
}
