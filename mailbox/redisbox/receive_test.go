package redisbox

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/mailbox"
	"feishu-relay/mailbox/mailboxtest"
	"feishu-relay/relay/relaytest"
)

func TestKilledAndBackEmpty(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := open(t, srv.URL(), "alice", nil)
	e := hearing(t, s, "bob")
	lost := put(t, s, mails(1, 3)...)[2]
	e.want(ids(mails(1, 3))...)

	srv.Kill()
	if err := e.fault(); !strings.Contains(err.Error(), "connection to redis") {
		t.Errorf("got %v, want it to say that the connection is gone", err)
	}
	if _, err := s.Put(t.Context(), mailboxtest.Sealed(mails(4, 4)[0])); err == nil ||
		!strings.Contains(err.Error(), "connection to redis") {
		t.Errorf("got %v, want it to say that the connection is gone", err)
	}
	e.start()
	e.fault()

	if err := srv.Restart(); err != nil {
		t.Fatal(err)
	}
	e.start()
	relaytest.Eventually(t, "putting", func() bool {
		_, err := s.Put(t.Context(), mailboxtest.Sealed(mails(5, 5)[0]))
		return err == nil
	})
	put(t, s, mails(6, 7)...)
	e.want(ids(mails(5, 7))...)
	if place, err := s.Where(t.Context(), "bob", lost); err != nil || place != mailbox.Gone {
		t.Errorf("what Redis lost is at place %d, %v, want Gone", place, err)
	}
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
	relaytest.Eventually(t, "putting", func() bool {
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
				p.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox, ID: "1-1",
					Values: []any{"envelope", encoded(t, mails(4, 4)[0])}})
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
					p.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox, ID: id,
						Values: []any{"envelope", encoded(t, mails(4+i, 4+i)[0])}})
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
				raw.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox, ID: "1-1",
					Values: []any{"envelope", encoded(t, mails(4, 4)[0])}})
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
