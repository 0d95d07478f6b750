package redisbox

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/redislink"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
)

func TestKilledAndBackEmpty(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL(), "alice", nil)
	e := hearing(t, s, "bob")
	put(t, s, mails(1, 3)...)
	e.want(ids(mails(1, 3))...)

	srv.Kill()
	if err := e.fault(); !strings.Contains(err.Error(), "connection to redis") {
		t.Errorf("got %v, want it to say that the connection is gone", err)
	}
	if _, err := s.Put(t.Context(), mailboxtest.Sealed(mails(4, 4)[0])); err == nil || !strings.Contains(err.Error(), "connection to redis") {
		t.Errorf("got %v, want it to say that the connection is gone", err)
	}
	e.start()
	e.fault()

	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	e.start()
	eventually(t, "putting", func() bool {
		_, err := s.Put(t.Context(), mailboxtest.Sealed(mails(5, 5)[0]))
		return err == nil
	})
	put(t, s, mails(6, 7)...)
	e.want(ids(mails(5, 7))...)
}

func TestKilledAndBackWithItsData(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := open(t, srv.URL(), "alice", nil)
	e := hearing(t, s, "bob")
	keys := put(t, s, mails(1, 3)...)
	e.want(ids(mails(1, 3))...)
	if err := s.Settle(t.Context(), "bob", keys[1], mailbox.Taken); err != nil {
		t.Fatal(err)
	}
	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	e.fault()
	e.start()
	e.want(ids(mails(1, 1))[0], ids(mails(3, 3))[0])
	eventually(t, "putting", func() bool {
		_, err := s.Put(t.Context(), mailboxtest.Sealed(mails(4, 4)[0]))
		return err == nil
	})
	e.want(ids(mails(4, 4))...)
}

// The stream goes away or is replaced while the connection stands. Ids lie
// before those that were read, as after a clock was set back.
func TestStreamReplaced(t *testing.T) {
	const inbox = "nanobot:mailbox:{bob}:inbox"
	tests := []struct {
		name    string
		replace func(t *testing.T, raw *redis.Client)
	}{
		{"deleted, noticed, and begun anew", func(t *testing.T, raw *redis.Client) {
			raw.Del(t.Context(), inbox)
		}},
		{"replaced at once", func(t *testing.T, raw *redis.Client) {
			_, err := raw.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.FlushAll(t.Context())
				p.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox, ID: "1-1", Values: []any{"envelope", encoded(t, mails(4, 4)[0])}})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}},
		{"replaced, and more came", func(t *testing.T, raw *redis.Client) {
			_, err := raw.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Del(t.Context(), inbox)
				for i, id := range []string{"1-1", "*", "*", "*", "*"} {
					p.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox, ID: id, Values: []any{"envelope", encoded(t, mails(4+i, 4+i)[0])}})
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			raw := rawClient(t, srv.URL())
			s := open(t, srv.URL(), "alice", nil)
			e := hearing(t, s, "bob")
			put(t, s, mails(1, 3)...)
			e.want(ids(mails(1, 3))...)
			tt.replace(t, raw)
			if raw.Exists(t.Context(), inbox).Val() == 0 {
				raw.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox, ID: "1-1", Values: []any{"envelope", encoded(t, mails(4, 4)[0])}})
			}
			for decode(t, e.next()).ID != ids(mails(4, 4))[0] { // what has a later id may come before, and again
			}
			put(t, s, mails(20, 20)...)
			for decode(t, e.next()).ID != ids(mails(20, 20))[0] {
			}
		})
	}
}

func encoded(t *testing.T, e mailbox.Envelope) string {
	t.Helper()
	raw, err := mailbox.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestSightReplaces(t *testing.T) {
	id := func(ms uint64) redislink.EntryID { return redislink.EntryID{MS: ms} }
	after := func(s sight, read ...redislink.EntryID) sight {
		for _, id := range read {
			s.read(id)
		}
		return s
	}
	full := sight{true, 9, 2, id(50), id(90)}
	empty := sight{true, 9, 0, redislink.EntryID{}, id(90)}
	tests := []struct {
		name        string
		before, now sight
		cursor      redislink.EntryID
		want        bool
	}{
		{"nothing, as before", sight{}, sight{}, redislink.EntryID{}, false},
		{"gone", full, sight{}, id(90), true},
		{"the first look", sight{}, full, redislink.EntryID{}, false},
		{"the same", full, full, id(90), false},
		{"more came", full, sight{true, 11, 4, id(50), id(99)}, id(90), false},
		{"the first was settled", full, sight{true, 9, 1, id(90), id(90)}, id(90), false},
		{"all were settled", full, empty, id(90), false},
		{"came behind all that were settled", empty, sight{true, 10, 1, id(95), id(95)}, id(90), false},
		{"read further than it goes", full, sight{true, 9, 2, id(50), id(80)}, id(90), true},
		{"fewer were added", full, sight{true, 3, 3, id(95), id(99)}, id(90), true},
		{"begins earlier", full, sight{true, 12, 3, id(40), id(99)}, id(90), true},
		{"begins before what was settled", empty, sight{true, 12, 3, id(90), id(99)}, id(90), true},
		{"begins before what was read", after(sight{}, id(90)), sight{true, 12, 3, id(40), id(99)}, id(90), true},
		{"begins before what was read first", after(empty, id(92), id(95)), sight{true, 12, 3, id(91), id(99)}, id(95), true},
		{"an earlier one was not read", after(sight{}, id(90)), full, id(90), true},
		{"as it was read from its beginning", after(sight{}, id(50), id(90)), full, id(90), false},
		{"the server does not count", sight{true, redislink.Uncounted, 2, id(50), id(90)}, sight{true, redislink.Uncounted, 3, id(50), id(99)}, id(90), false},
		{"the server counts no more", full, sight{true, redislink.Uncounted, 2, id(50), id(90)}, id(90), false},
		{"the server counts from now on", sight{true, redislink.Uncounted, 2, id(50), id(90)}, full, id(90), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.now.replaces(tt.before, tt.cursor); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
