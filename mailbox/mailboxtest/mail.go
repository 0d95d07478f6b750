package mailboxtest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/mailbox"
)

func testBacklog(t *testing.T, open Open) {
	s := opened(t, open)
	put(t, s, Envelopes("a", "b", 1, 30)...)
	put(t, opened(t, open), Envelopes("c", "b", 31, 60)...)
	put(t, s, Envelopes("a", "b", 61, 90)...)
	r := receive(t, opened(t, open), "b")
	for _, e := range [][]mailbox.Envelope{Envelopes("a", "b", 1, 30), Envelopes("c", "b", 31, 60),
		Envelopes("a", "b", 61, 90)} {
		r.want(e...)
	}
	put(t, s, Envelope("a", "b", 91))
	r.want(Envelope("a", "b", 91))
	r.nothing()
}

func testOrder(t *testing.T, open Open) {
	s := opened(t, open)
	r := receive(t, opened(t, open), "b")
	r.nothing()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, e := range Envelopes("a", "b", 1, 200) {
			if _, err := s.Put(t.Context(), Sealed(e)); err != nil {
				t.Errorf("put: %v", err)
				return
			}
		}
	}()
	r.want(Envelopes("a", "b", 1, 200)...)
	<-sent
	r.nothing()
}

func testSenders(t *testing.T, open Open) {
	const each = 100
	r := receive(t, opened(t, open), "b")
	var sending sync.WaitGroup
	for _, from := range []mailbox.AgentID{"a1", "a2", "a3", "a4"} {
		s := opened(t, open)
		sending.Go(func() {
			for _, e := range Envelopes(from, "b", 1, each) {
				if _, err := s.Put(t.Context(), Sealed(e)); err != nil {
					t.Errorf("put of %s: %v", from, err)
					return
				}
			}
		})
	}
	last := map[mailbox.AgentID]int{}
	for range 4 * each {
		e, err := mailbox.Decode(r.next().Raw)
		if err != nil {
			t.Fatal(err)
		}
		last[e.From]++
		if want := Envelope(e.From, "b", last[e.From]).ID; e.ID != want {
			t.Fatalf("got %s, want %s", e.ID, want)
		}
	}
	sending.Wait()
	r.nothing()
}

func testContents(t *testing.T, open Open) {
	s := opened(t, open)
	r := receive(t, opened(t, open), "b")
	for i, text := range []string{"<b> & \"x\" </b>", "line\nline\r\n\ttab", "你好 🙂 \u2028", `{"id":"forged"}`,
		"%s ${x} $(y)", "*3\r\n$3\r\nSET"} {
		e := Envelope("a", "b", i)
		e.Content.Parts[0].Text = text
		e.Task = &mailbox.Task{ID: "t/../1", State: mailbox.Pending}
		e.Metadata = mailbox.Metadata{CorrelationID: "c", TTL: new(60), RequiresAck: true, RetryCount: 1, Tags: []string{"x"}}
		key := put(t, s, e)[0]
		item := r.next()
		if item.Key != key {
			t.Errorf("came under %q, want %q as Put said", item.Key, key)
		}
		same(t, item.Raw, e)
		read, err := s.Read(t.Context(), "b", key)
		if err != nil || read.Key != key {
			t.Errorf("read: got key %q, %v", read.Key, err)
		}
		same(t, read.Raw, e)
	}
}

func testReceivers(t *testing.T, open Open) {
	s := opened(t, open)
	first, second := receive(t, s, "b"), receive(t, opened(t, open), "b")
	put(t, s, Envelopes("a", "b", 1, 5)...)
	first.want(Envelopes("a", "b", 1, 5)...)
	second.want(Envelopes("a", "b", 1, 5)...)
}

// testLooked checks that a receiver hears when all that lay there has been shown,
// and not before.
func testLooked(t *testing.T, open Open) {
	s := open(t)
	for _, n := range []int{0, 1, 100} { // more than one read
		list := Envelopes("a", "b", 1, n)
		put(t, s, list...)
		r := receive(t, s, "b")
		var items []mailbox.Item
		for _, e := range list {
			select {
			case <-r.looked:
				t.Fatalf("the look at %d messages ends before %s", n, e.ID)
			default:
			}
			items = append(items, r.want(e)...)
		}
		select {
		case <-r.looked:
		case <-time.After(patience):
			t.Fatalf("the look at %d messages does not end", n)
		}
		r.stop()
		for _, item := range items {
			settle(t, s, "b", mailbox.Taken, item.Key)
		}
	}
}

func testApart(t *testing.T, open Open) {
	s := opened(t, open)
	b, c := receive(t, s, "b"), receive(t, s, "c")
	put(t, s, Envelope("a", "b", 1), Envelope("a", "c", 2), Envelope("a", "b", 3), Envelope("b", "b", 4))
	b.want(Envelope("a", "b", 1), Envelope("a", "b", 3), Envelope("b", "b", 4))
	c.want(Envelope("a", "c", 2))
	b.nothing()
	c.nothing()
}

func testOneAtATime(t *testing.T, open Open) {
	const n = 50
	s := opened(t, open)
	put(t, s, Envelopes("a", "b", 1, n)...)
	var inside atomic.Int32
	items := make(chan mailbox.Item, 2*n)
	go func() {
		_ = s.Receive(t.Context(), "b", func(item mailbox.Item) {
			if inside.Add(1) != 1 {
				t.Error("take is called while it runs")
			}
			items <- item
			inside.Add(-1)
		}, nil)
	}()
	var sending sync.WaitGroup
	for i := range 5 {
		sending.Go(func() { put(t, s, Envelopes("a", "b", n+10*i+1, n+10*i+10)...) })
	}
	sending.Wait()
	seen := map[string]bool{}
	for range 2 * n {
		item := <-items
		if seen[item.Key] {
			t.Errorf("%s came twice", item.Key)
		}
		seen[item.Key] = true
	}
}

func testSameID(t *testing.T, open Open) {
	s := opened(t, open)
	r := receive(t, s, "b")
	e := Envelope("a", "b", 1)
	keys := append(put(t, s, e, e), put(t, opened(t, open), e)...)
	if keys[0] == keys[1] || keys[1] == keys[2] || keys[0] == keys[2] {
		t.Fatalf("two messages lie under one key: %q", keys)
	}
	items := r.want(e, e, e)
	settle(t, s, "b", mailbox.Taken, items[0].Key)
	for _, item := range items[1:] {
		if _, err := s.Read(t.Context(), "b", item.Key); err != nil {
			t.Errorf("settling one took another: %v", err)
		}
	}
}
