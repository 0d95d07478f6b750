package mailboxtest

import (
	"errors"
	"testing"

	"feishu-relay/mailbox"
)

func testAgain(t *testing.T, open Open) {
	s := opened(t, open)
	first, other := Envelope("a", "b", 1), Envelope("a", "b", 2)
	key := put(t, s, first, other)[0]
	for n := 1; n <= 3; n++ {
		first.Metadata.RetryCount = n
		var err error
		if key, err = s.Again(t.Context(), key, Sealed(first)); err != nil {
			t.Fatalf("again: %v", err)
		}
		item, err := s.Read(t.Context(), "b", key)
		if err != nil {
			t.Fatalf("read what was laid again: %v", err)
		}
		same(t, item.Raw, first)
	}
	if got := where(t, s, "b", key); got != mailbox.Waiting {
		t.Errorf("it is at place %d, want Waiting", got)
	}
	r := receive(t, opened(t, open), "b")
	got := map[string]mailbox.Item{}
	for range 2 {
		item := r.next()
		got[id(t, item)] = item
	}
	r.nothing()
	if len(got) != 2 {
		t.Fatalf("got %d messages, want both", len(got))
	}
	same(t, got[first.ID].Raw, first)
	same(t, got[other.ID].Raw, other)
}

func testAgainTaken(t *testing.T, open Open) {
	s := opened(t, open)
	r := receive(t, opened(t, open), "b")
	e := Envelope("a", "b", 1)
	key := put(t, s, e)[0]
	r.want(e)
	settle(t, s, "b", mailbox.Taken, key)
	e.Metadata.RetryCount = 1
	again, err := s.Again(t.Context(), key, Sealed(e))
	if err != nil {
		t.Fatal(err)
	}
	item := r.want(e)[0]
	if item.Key != again {
		t.Errorf("came under %q, want %q as Again said", item.Key, again)
	}
	same(t, item.Raw, e)
}

func testWhere(t *testing.T, open Open) {
	s, other := opened(t, open), opened(t, open)
	keys := put(t, s, Envelopes("a", "b", 1, 3)...)
	for _, key := range keys {
		if got := where(t, other, "b", key); got != mailbox.Waiting {
			t.Errorf("%s is at place %d, want Waiting", key, got)
		}
	}
	if got := where(t, s, "c", keys[0]); got != mailbox.Gone {
		t.Errorf("in another agent's inbox it is at place %d, want Gone", got)
	}
	settle(t, other, "b", mailbox.Taken, keys[0])
	if got := where(t, s, "b", keys[0]); got != mailbox.Processed {
		t.Errorf("a taken message is at place %d, want Processed", got)
	}
	settle(t, other, "b", mailbox.Malformed, keys[1])
	if got := where(t, s, "b", keys[1]); got != mailbox.Aside {
		t.Errorf("a malformed message is at place %d, want Aside", got)
	}
	if got := where(t, s, "b", keys[2]); got != mailbox.Waiting {
		t.Errorf("what nobody touched is at place %d, want Waiting", got)
	}
}

func testSettle(t *testing.T, open Open) {
	s := opened(t, open)
	list := Envelopes("a", "b", 1, 4)
	put(t, s, list...)
	r := receive(t, s, "b")
	items := r.want(list...)
	settle(t, s, "b", mailbox.Taken, items[3].Key, items[0].Key)
	settle(t, opened(t, open), "b", mailbox.Taken, items[1].Key) // by another process
	for _, i := range []int{0, 1, 3} {
		wantGone(t, s, "b", items[i].Key)
	}
	r.nothing()
	later := receive(t, opened(t, open), "b")
	later.want(list[2])
	later.nothing()
}

func testMalformed(t *testing.T, open Open) {
	s := opened(t, open)
	list := Envelopes("a", "b", 1, 2)
	keys := put(t, s, list...)
	settle(t, s, "b", mailbox.Malformed, keys[0])
	settle(t, s, "b", mailbox.Malformed, keys[0])
	wantGone(t, s, "b", keys[0])
	r := receive(t, s, "b")
	r.want(list[1])
	r.nothing()
}

func testSettleTwice(t *testing.T, open Open) {
	s, other := opened(t, open), opened(t, open)
	e := Envelope("a", "b", 1)
	keys := put(t, s, e, e)
	for range 3 {
		settle(t, s, "b", mailbox.Taken, keys[0])
		settle(t, other, "b", mailbox.Malformed, keys[0])
	}
	r := receive(t, other, "b")
	r.want(e)
	r.nothing()
}

func testReadApart(t *testing.T, open Open) {
	s := opened(t, open)
	key := put(t, s, Envelope("a", "b", 1))[0]
	wantGone(t, s, "c", key)
	wantGone(t, s, "a", key)
	settle(t, s, "c", mailbox.Taken, key)
	if _, err := s.Read(t.Context(), "b", key); err != nil {
		t.Errorf("settled for another agent, it is gone: %v", err)
	}
}

// A key that no Put gave is no mail, whatever it looks like.
func testNoKey(t *testing.T, open Open) {
	s := opened(t, open)
	e := Envelope("a", "b", 1)
	key := put(t, s, e)[0]
	for _, bad := range []string{"", ".", "..", "../inbox/" + key, "../../b/inbox/" + key, "/etc/passwd", "x\x00y",
		"no such key"} {
		if item, err := s.Read(t.Context(), "b", bad); err == nil {
			t.Errorf("read of %q gave %.40q", bad, item.Raw)
		}
		if place, err := s.Where(t.Context(), "b", bad); err == nil && place != mailbox.Gone {
			t.Errorf("%q is at place %d", bad, place)
		}
		_ = s.Settle(t.Context(), "b", bad, mailbox.Taken) // takes nothing; an error is as good
	}
	r := receive(t, s, "b")
	r.want(e)
	r.nothing()
}

func testOwnership(t *testing.T, open Open) {
	s := opened(t, open)
	list := Envelopes("a", "b", 1, 10)
	put(t, s, list...)
	r := receive(t, s, "b")
	for _, e := range list {
		item := r.want(e)[0]
		_ = append(item.Raw, "scribble over what lies behind"...)
		clear(item.Raw)
		again, err := s.Read(t.Context(), "b", item.Key)
		if err != nil {
			t.Fatal(err)
		}
		same(t, again.Raw, e)
	}
}

func testHostile(t *testing.T, open Open) {
	s := opened(t, open)
	ctx := t.Context()
	for _, bad := range []mailbox.AgentID{"", ".", "..", "../b", "a/b", `a\b`, "a\x00b", "a\nb", "_registry.json",
		".hidden", "a*", "a:b"} {
		to, from, card := Envelope("a", bad, 1), Envelope(bad, "b", 1), Card(bad, 1)
		_, errTo := s.Put(ctx, Sealed(to))
		_, errFrom := s.Put(ctx, Sealed(from))
		_, errAgain := s.Again(ctx, "key", Sealed(to))
		_, errRead := s.Read(ctx, bad, "key")
		for what, err := range map[string]error{
			"Put to":    errTo,
			"Put from":  errFrom,
			"Again":     errAgain,
			"Read":      errRead,
			"Settle":    s.Settle(ctx, bad, "key", mailbox.Taken),
			"SetCard":   s.SetCard(ctx, card),
			"Receive":   s.Receive(ctx, bad, func(mailbox.Item) {}, nil),
			"Where":     whereError(s, t, bad),
			"Malformed": s.Settle(ctx, bad, "key", mailbox.Malformed),
		} {
			if err == nil || errors.Is(err, mailbox.ErrGone) {
				t.Errorf("%s of agent %q: got %v, want a refusal", what, bad, err)
			}
		}
	}
	r := receive(t, s, "b")
	r.nothing()
	if cards, err := s.Cards(ctx); err != nil || len(cards) > 0 {
		t.Errorf("cards: got %v, %v", cards, err)
	}
}

func whereError(s mailbox.Store, t *testing.T, to mailbox.AgentID) error {
	_, err := s.Where(t.Context(), to, "key")
	return err
}
