package gateway

import (
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
)

// Workers are used again, and end when nothing has come for a while: the bubble fails for one that is left.
func TestIdleWorkersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := &url.URL{Scheme: "http", Host: "feishu.example"}
		g, err := New(Options{Upstream: upstream, Book: feishu.OpenBook(nil, "", nil),
			API: feishu.NewAPI(upstream.String(), "", ""), Host: &host{}})
		if err != nil {
			t.Fatal(err)
		}
		var ran atomic.Int32
		for range 2 { // the second time they are there
			release := make(chan struct{})
			for range 100 {
				if !g.background(func() { ran.Add(1); <-release }) {
					t.Fatal("refused")
				}
			}
			synctest.Wait()
			close(release)
			synctest.Wait()
		}
		if n := ran.Load(); n != 200 {
			t.Errorf("%d calls ran", n)
		}
		time.Sleep(time.Minute)
	})
}
