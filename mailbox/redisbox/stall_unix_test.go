//go:build unix

package redisbox

import (
	"context"
	"sync"
	"testing"

	"feishu-relay/internal/test/redistest"
	"feishu-relay/internal/test/verify"
)

// Redis stands still (SIGSTOP): connections are taken by the kernel and nobody
// answers. Every call ends by itself, and all is well when it goes on.
func TestStalledRedis(t *testing.T) {
	verify.Only(t)
	t.Parallel()
	srv := redistest.Start(t)
	s, fresh := open(t, srv.URL(), "alice", nil), open(t, srv.URL(), "alice", nil)
	e := hearing(t, s, "bob")
	put(t, s, mails(1, 3)...)
	e.want(ids(mails(1, 3))...)
	if err := srv.Pause(); err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	for _, s := range []*Store{s, fresh} { // with a connection, and without
		for name, call := range calls(s) {
			asking.Go(func() {
				if err := call(context.Background()); err == nil {
					t.Errorf("%s: no error", name)
				}
			})
		}
	}
	asking.Wait()
	e.fault()
	if err := srv.Resume(); err != nil {
		t.Fatal(err)
	}
	e.start()
	put(t, s, mails(4, 4)...)
	for decodedID := ""; decodedID != ids(mails(4, 4))[0]; { // and once more what lies there
		decodedID = decode(t, e.next()).ID
	}
}
