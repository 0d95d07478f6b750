package redislink

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
)

func TestLook(t *testing.T) {
	srv := redistest.Start(t)
	raw, ctx := redis.NewClient(&redis.Options{Addr: srv.Addr()}), t.Context()
	defer raw.Close()
	at, sum := EntryID{5, 1}, ""
	see := func(want Sight, holds bool) {
		t.Helper()
		if want.Exists && redistest.Before(7, 0) {
			want.Added = -1
		}
		if got, held, err := Look(ctx, raw, "s", at, sum); err != nil || got != want || held != holds {
			t.Errorf("got %+v, %v, %v, want %+v, %v", got, held, err, want, holds)
		}
	}
	see(Sight{}, false)
	raw.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "5-1", Values: []any{"a", "1"}})
	raw.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "7-0", Values: []any{"a", "1"}})
	see(Sight{true, 2, 2, EntryID{5, 1}, EntryID{7, 0}}, true)
	sum = Sum(nil)
	see(Sight{true, 2, 2, EntryID{5, 1}, EntryID{7, 0}}, true)
	raw.XAdd(ctx, &redis.XAddArgs{Stream: "s", ID: "8-0", Values: []any{"a", "1", "payload", "text"}})
	at, sum = EntryID{8, 0}, Sum([]byte("text"))
	see(Sight{true, 3, 3, EntryID{5, 1}, EntryID{8, 0}}, true)
	sum = Sum([]byte("other"))
	see(Sight{true, 3, 3, EntryID{5, 1}, EntryID{8, 0}}, false)
	five, eight := Entry{EntryID{5, 1}, Sum(nil)}, Entry{EntryID{8, 0}, Sum([]byte("text"))}
	other := Entry{EntryID{8, 0}, Sum([]byte("other"))}
	for _, tt := range []struct {
		entries []Entry
		want    int
	}{
		{nil, 0}, {[]Entry{other}, 0}, {[]Entry{five}, 1}, {[]Entry{{}, five, other}, 2},
		{[]Entry{five, other, eight, other}, 3},
	} {
		if n, err := Newest(ctx, raw, "s", tt.entries); err != nil || n != tt.want {
			t.Errorf("%v: got %d, %v, want %d", tt.entries, n, err, tt.want)
		}
	}
	raw.XDel(ctx, "s", "5-1", "7-0", "8-0")
	see(Sight{true, 3, 0, EntryID{}, EntryID{8, 0}}, false)
	for _, reply := range [][]any{{"1-0"}, {"x", int64(1), int64(1), "1-0", int64(0)}, {"1-0", "1", int64(1), "1-0", int64(0)},
		{"1-0", int64(1), int64(1), "", int64(0)}, {"1-0", int64(1), int64(1), "1-0", "x"}} {
		if s, _, err := parseSight(reply); err == nil {
			t.Errorf("%q was taken for %+v", reply, s)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	for _, text := range []string{"1795211093522-3", "0-0", "18446744073709551615-0", "5", "-", "+5-1", "05-1", "1-2-3", "1_alice.msg.json"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := ParseEntry(text); ok && id.String() != text {
			t.Errorf("%q was taken for %s", text, id)
		}
	})
}
