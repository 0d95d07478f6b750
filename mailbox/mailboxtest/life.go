package mailboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mailbox"
)

// sized makes an envelope that is written in n bytes.
func sized(t *testing.T, n int) mailbox.Envelope {
	t.Helper()
	e := Envelope("a", "b", n)
	fill := func(length int) {
		e.Content.Parts = []mailbox.Part{{Type: "data", Data: json.RawMessage(`"` + strings.Repeat("x", length) + `"`)}}
	}
	fill(0)
	raw, err := mailbox.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	fill(n - len(raw))
	return e
}

func testLongest(t *testing.T, open Open) {
	s := opened(t, open)
	r := receive(t, s, "b")
	longest := sized(t, mailbox.MaxEnvelope)
	put(t, s, longest)
	same(t, r.next().Raw, longest)
	longer := Sealed(longest)
	longer.Raw = append(longer.Raw, ' ')
	if key, err := s.Put(t.Context(), longer); err == nil {
		t.Errorf("an envelope of %d bytes was put as %s", mailbox.MaxEnvelope+1, key)
	}
	put(t, s, Envelope("a", "b", 2))
	r.want(Envelope("a", "b", 2))
}

func testFull(t *testing.T, open Open) {
	s, receiver := opened(t, open), opened(t, open)
	var keys []string
	for {
		key, err := s.Put(t.Context(), Sealed(Envelope("a", "b", len(keys))))
		if errors.Is(err, mailbox.ErrFull) {
			break
		}
		if err != nil {
			t.Fatalf("put %d: %v", len(keys), err)
		}
		if keys = append(keys, key); len(keys) > mailbox.MaxInbox {
			t.Fatalf("%d messages were put", len(keys))
		}
	}
	if len(keys) != mailbox.MaxInbox {
		t.Errorf("full at %d messages, want %d", len(keys), mailbox.MaxInbox)
	}
	put(t, s, Envelope("a", "c", 1)) // another's inbox is not full
	settle(t, receiver, "b", mailbox.Taken, keys[0])
	put(t, s, Envelope("a", "b", len(keys)))
	if _, err := s.Put(t.Context(), Sealed(Envelope("a", "b", len(keys)+1))); !errors.Is(err, mailbox.ErrFull) {
		t.Errorf("full again: got %v, want ErrFull", err)
	}
	again := Envelope("a", "b", 1)
	if _, err := s.Again(t.Context(), keys[1], Sealed(again)); err != nil {
		t.Errorf("again of what waits needs no room: %v", err)
	}
}

func testCancel(t *testing.T, open Open) {
	s := opened(t, open)
	receive(t, s, "b").stop() // maybe before it began
	r := receive(t, s, "b")
	r.nothing()
	r.stop() // idle
	put(t, s, Envelopes("a", "b", 1, 100)...)
	r = receive(t, s, "b")
	r.next()
	r.stop() // in the middle
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Receive(ctx, "b", func(mailbox.Item) {}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("under a done context Receive returned %v", err)
	}
}

func testCancelledPut(t *testing.T, open Open) {
	s := opened(t, open)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if key, err := s.Put(ctx, Sealed(Envelope("a", "b", 1))); err == nil {
		t.Errorf("put as %s under a done context", key)
	}
	put(t, s, Envelope("a", "b", 2)) // the store is as good as before
	r := receive(t, s, "b")
	r.want(Envelope("a", "b", 2))
	r.nothing()
}

func testRestart(t *testing.T, open Open) {
	list := Envelopes("a", "b", 1, 10)
	sender := open(t)
	put(t, sender, list[:8]...)
	closed(t, sender) // a sender that is gone takes nothing with it
	s := open(t)
	r := receive(t, s, "b")
	items := r.want(list[:8]...)
	settle(t, s, "b", mailbox.Taken, items[0].Key, items[2].Key, items[7].Key)
	settle(t, s, "b", mailbox.Malformed, items[4].Key)
	r.stop()
	closed(t, s)

	put(t, opened(t, open), list[8])
	s = opened(t, open)
	r = receive(t, s, "b")
	r.want(list[1], list[3], list[5], list[6], list[8])
	r.nothing()
	put(t, s, list[9])
	r.want(list[9])
}

func testReceiveAgain(t *testing.T, open Open) {
	s := opened(t, open)
	list := Envelopes("a", "b", 1, 6)
	r := receive(t, s, "b")
	put(t, s, list[:4]...)
	items := r.want(list[:4]...)
	settle(t, s, "b", mailbox.Taken, items[1].Key)
	r.stop()
	put(t, s, list[4:]...)
	r = receive(t, s, "b")
	r.want(list[0], list[2], list[3], list[4], list[5])
	r.nothing()
}

func testCards(t *testing.T, open Open) {
	s := opened(t, open)
	wantCards(t, s)
	c, a, b := Card("c", 1), Card("a", 1), Card("你好-b.1", 1)
	b.Status, b.CurrentTasks, b.Goals = mailbox.Offline, []string{}, nil
	for _, card := range []mailbox.Card{c, a, b} {
		setCard(t, s, card)
	}
	wantCards(t, s, a, c, b)
	a = Card("a", 2)
	a.Status, a.Capabilities, a.AllowFrom = mailbox.Idle, []string{}, []mailbox.AgentID{"b", "c"}
	setCard(t, s, a)
	wantCards(t, opened(t, open), a, c, b)
	closed(t, open(t))
	wantCards(t, s, a, c, b)
}

func testCardsApart(t *testing.T, open Open) {
	first, second := opened(t, open), opened(t, open)
	setCard(t, first, Card("a", 1))
	setCard(t, second, Card("b", 1))
	for n := 2; n < 10; n++ {
		setCard(t, first, Card("a", n))
		wantCards(t, second, Card("a", n), Card("b", n-1))
		setCard(t, second, Card("b", n))
		wantCards(t, first, Card("a", n), Card("b", n))
	}
}

func testCardsAtOnce(t *testing.T, open Open) {
	const rounds = 25
	var beating sync.WaitGroup
	var want []mailbox.Card
	for _, agent := range []mailbox.AgentID{"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"} {
		s := opened(t, open)
		receive(t, s, agent) // as a sidecar does
		want = append(want, Card(agent, rounds))
		beating.Go(func() {
			for n := 1; n <= rounds; n++ {
				if err := s.SetCard(t.Context(), Card(agent, n)); err != nil {
					t.Errorf("set card %d of %s: %v", n, agent, err)
					return
				}
			}
		})
	}
	beating.Wait()
	wantCards(t, opened(t, open), want...)
}

func setCard(t *testing.T, s mailbox.Store, c mailbox.Card) {
	t.Helper()
	if err := s.SetCard(t.Context(), c); err != nil {
		t.Fatalf("set card of %s: %v", c.AgentID, err)
	}
}

// wantCards checks the whole registry; no list and an empty one are the same.
func wantCards(t *testing.T, s mailbox.Store, want ...mailbox.Card) {
	t.Helper()
	got, err := s.Cards(t.Context())
	if err != nil {
		t.Fatalf("cards: %v", err)
	}
	if diff := cmp.Diff(plain(want), plain(got)); diff != "" {
		t.Errorf("cards (-want +got):\n%s", diff)
	}
}

// plain makes cards comparable: a list that is empty is none, a time is in UTC.
func plain(cards []mailbox.Card) []mailbox.Card {
	out := make([]mailbox.Card, 0, len(cards))
	for _, c := range cards {
		c.Capabilities = append([]string(nil), c.Capabilities...)
		c.AllowFrom = append([]mailbox.AgentID(nil), c.AllowFrom...)
		c.CurrentTasks = append([]string(nil), c.CurrentTasks...)
		c.Goals = append([]string(nil), c.Goals...)
		c.RegisteredAt, c.LastHeartbeat = c.RegisteredAt.UTC(), c.LastHeartbeat.UTC()
		c.Present = false // of the stores on Redis alone
		out = append(out, c)
	}
	return out
}
