package redisrelay

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/relay"
	"feishu-relay/relay/relaytest"
)

func TestSubscriberAndStreamGetEachLineOnce(t *testing.T) {
	srv := redistest.Start(t)
	raw := rawClient(t, srv)
	sub := raw.Subscribe(t.Context(), testChannel)
	defer sub.Close()
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	q := open(t, srv.URL(), "a", t.TempDir(), nil)
	numbered := lines("a", 1, 2*chunkLines+7) // three calls of the script
	all := slices.Insert(slices.Clone(numbered), 3, foreignLine(1))
	publish(t, q, "", all...)
	for _, want := range numbered { // without a seq, a line stays off the channel
		if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != string(want) {
			t.Fatalf("got %v, %v, want %.60q", m, err, want)
		}
	}
	entries, err := raw.XRange(t.Context(), testChannel+":log", "-", "+").Result()
	if err != nil || len(entries) != len(all) {
		t.Fatalf("the stream has %d entries, %v, want %d", len(entries), err, len(all))
	}
	for i, e := range entries {
		if e.Values["payload"] != string(all[i]) {
			t.Errorf("entry %d is %.60q, want %.60q", i, e.Values["payload"], all[i])
		}
	}
}

func TestTrimmedIsNotLost(t *testing.T) {
	srv := redistest.Start(t)
	small := func(o *Options) { o.MaxLen = 100 }
	a, b := open(t, srv.URL(), "a", t.TempDir(), small), open(t, srv.URL(), "b", t.TempDir(), small)
	mine := publish(t, a, "", lines("a", 1, 1)...)
	var other relay.Receipt
	for i := 1; i <= 1000; i += 100 {
		other = publish(t, b, other, lines("b", i, i+99)...)
	}
	if n := rawClient(t, srv).XLen(t.Context(), a.stream).Val(); n > 400 {
		t.Fatalf("the stream has %d entries: it is not trimmed", n)
	}
	publish(t, a, mine)
	publish(t, a, mine, lines("a", 2, 2)...)
}

// A sender that published a line and a reader that read it notice that it is lost: the one is told, the other begins
// again, and gets what is published again.
func TestLossIsNoticed(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := rawClient(t, srv), t.Context()
	entry := func(id, line string) {
		t.Helper()
		must(t, raw.XAdd(ctx, &redis.XAddArgs{Stream: testChannel + ":log", ID: id, Values: []any{"payload", line}}).Err())
	}
	for name, lose := range map[string]func(mine string){
		"everything is gone":                func(string) { raw.FlushAll(ctx) },
		"the end is gone":                   func(mine string) { raw.XDel(ctx, testChannel+":log", mine) },
		"another line has its id":           func(mine string) { raw.FlushAll(ctx); entry(mine, "x") },
		"a new stream with later entries":   func(string) { raw.FlushAll(ctx); entry("*", "x"); entry("*", "x") },
		"a new stream with earlier entries": func(string) { raw.FlushAll(ctx); entry("5-0", "x") },
		"a new stream with entries of both": func(string) { raw.FlushAll(ctx); entry("5-0", "x"); entry("*", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			q := open(t, srv.URL(), "a", t.TempDir(), nil)
			e := listenTo(t, q, true)
			receipt := publish(t, q, "", lines("a", 1, 20)...)
			e.skipTo(lines("a", 20, 20)[0])
			mine, _, _ := strings.Cut(string(receipt), "/")
			at, _ := redislink.ParseEntry(mine)
			relaytest.Eventually(t, "the next millisecond, for entries with other ids", func() bool {
				return raw.Time(ctx).Val().UnixMilli() > int64(at.MS)
			})
			lose(mine)
			before := raw.XLen(ctx, q.stream).Val()
			for _, more := range [][][]byte{nil, lines("x", 1, 3)} {
				if _, err := q.Publish(ctx, more, receipt); !errors.Is(err, relay.ErrForgotten) {
					t.Errorf("%d lines: got %v, want %v", len(more), err, relay.ErrForgotten)
				}
			}
			if after := raw.XLen(ctx, q.stream).Val(); after != before {
				t.Errorf("the stream grew from %d to %d entries", before, after)
			}
			if !strings.HasPrefix(name, "a new stream with") || name == "a new stream with earlier entries" { // others come as news
				relaytest.Eventually(t, "the reader begins again", func() bool { return q.Stats().Restarts == 1 })
			}
			receipt = publish(t, q, "", lines("b", 1, 20)...)
			publish(t, q, receipt, lines("b", 21, 21)...)
			e.skipTo(lines("b", 1, 1)[0])
			for _, d := range e.Want(lines("b", 2, 21)...) {
				if d.History {
					t.Errorf("%.60s is history", d.Line)
				}
			}
		})
	}
}
