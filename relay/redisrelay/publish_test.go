package redisrelay

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
)

// forgotten publishes, and expects to be told that after is lost and that
// nothing was taken.
func forgotten(t *testing.T, raw *redis.Client, q *Queue, after relay.Receipt) {
	t.Helper()
	before, err := raw.XLen(t.Context(), q.stream).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range [][][]byte{nil, lines("x", 1, 3)} {
		if _, err := q.Publish(t.Context(), more, after); !errors.Is(err, relay.ErrForgotten) {
			t.Errorf("%d lines: got %v, want %v", len(more), err, relay.ErrForgotten)
		}
	}
	after1, err := raw.XLen(t.Context(), q.stream).Result()
	if err != nil {
		t.Fatal(err)
	}
	if after1 != before {
		t.Errorf("the stream grew from %d to %d entries", before, after1)
	}
}

func TestSubscriberAndStreamGetEachLineOnce(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	sub := raw.Subscribe(t.Context(), testChannel)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	want := lines("a", 1, 2*chunkLines+7) // three calls of the script
	publish(t, q, "", want...)
	var heard []string
	for range want {
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, m.Payload)
	}
	entries, err := raw.XRange(t.Context(), testChannel+":log", "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	var stored []string
	for _, e := range entries {
		stored = append(stored, e.Values["payload"].(string))
	}
	var text []string
	for _, line := range want {
		text = append(text, string(line))
	}
	if diff := cmp.Diff(text, heard); diff != "" {
		t.Errorf("on the channel (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(text, stored); diff != "" {
		t.Errorf("in the stream (-want +got):\n%s", diff)
	}
}

func TestLineWithoutSeqStaysOffTheChannel(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	sub := raw.Subscribe(t.Context(), testChannel)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	numbered := lines("a", 1, 2)
	publish(t, q, "", numbered[0], foreignLine(1), numbered[1])
	for _, want := range numbered {
		m, err := sub.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m.Payload != string(want) {
			t.Errorf("got %.60q, want %.60q", m.Payload, want)
		}
	}
	if got := raw.XLen(t.Context(), q.stream).Val(); got != 3 {
		t.Errorf("the stream has %d entries, want 3", got)
	}
}

func TestTrimmedIsNotLost(t *testing.T) {
	if redistest.Before(7, 0) {
		t.Skip("before 7.0 a stream does not count what was added to it")
	}
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	small := func(o *Options) { o.MaxLen = 100 }
	a, b := open(t, srv.URL(), "a", t.TempDir(), small), open(t, srv.URL(), "b", t.TempDir(), small)
	mine := publish(t, a, "", lines("a", 1, 1)...)
	var other relay.Receipt
	for i := 1; i <= 1000; i += 100 {
		other = publish(t, b, other, lines("b", i, i+99)...)
	}
	if n := raw.XLen(t.Context(), a.stream).Val(); n > 400 {
		t.Fatalf("the stream has %d entries: it is not trimmed", n)
	}
	publish(t, a, mine)
	mine = publish(t, a, mine, lines("a", 2, 2)...)

	if err := raw.XTrimMaxLen(t.Context(), a.stream, 0).Err(); err != nil {
		t.Fatal(err)
	}
	publish(t, a, mine, lines("a", 3, 3)...)
}

func TestLossIsNoticed(t *testing.T) {
	entry := func(t *testing.T, raw *redis.Client, id string) {
		t.Helper()
		if err := raw.XAdd(t.Context(), &redis.XAddArgs{Stream: testChannel + ":log", ID: id, Values: []any{"payload", "x"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		lose func(t *testing.T, raw *redis.Client, mine receipt)
	}{
		{"the stream is gone", func(t *testing.T, raw *redis.Client, _ receipt) {
			raw.Del(t.Context(), testChannel+":log")
		}},
		{"everything is gone", func(t *testing.T, raw *redis.Client, _ receipt) { raw.FlushAll(t.Context()) }},
		{"a new stream with later entries", func(t *testing.T, raw *redis.Client, _ receipt) {
			raw.FlushAll(t.Context())
			for range 50 {
				entry(t, raw, "*")
			}
		}},
		{"a new stream with earlier entries", func(t *testing.T, raw *redis.Client, _ receipt) {
			raw.FlushAll(t.Context())
			entry(t, raw, "5-0")
		}},
		{"a new stream with earlier and later entries", func(t *testing.T, raw *redis.Client, _ receipt) {
			raw.FlushAll(t.Context())
			entry(t, raw, "5-0")
			entry(t, raw, "*")
		}},
		{"a new stream that was trimmed, but less than the old one had", func(t *testing.T, raw *redis.Client, _ receipt) {
			raw.FlushAll(t.Context())
			for range 50 {
				entry(t, raw, "*")
			}
			raw.XTrimMaxLen(t.Context(), testChannel+":log", 40)
		}},
		{"the end is gone", func(t *testing.T, raw *redis.Client, mine receipt) {
			raw.XDel(t.Context(), testChannel+":log", mine.id)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := redistest.Start(t)
			raw := rawClient(t, srv)
			q := open(t, srv.URL(), "a", t.TempDir(), nil)
			receipt := publish(t, q, "", lines("a", 1, 20)...)
			mine, err := parseReceipt(receipt)
			if err != nil {
				t.Fatal(err)
			}
			tt.lose(t, raw, mine)
			forgotten(t, raw, q, receipt)
			receipt = publish(t, q, "", lines("a", 1, 20)...)
			publish(t, q, receipt, lines("a", 21, 21)...)
		})
	}
}
