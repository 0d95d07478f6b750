//go:build unix

package outcome

import (
	"context"
	"testing"
	"time"

	"feishu-relay/internal/redistest"
)

func TestZZStopStalled(t *testing.T) {
	srv := redistest.Start(t)
	s := openRedis(t, srv.URL())
	l := New(Options{Store: s, Agent: "a"})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = l.Run(ctx); close(done) }()
	l.Note(Outcome{ChatID: "oc", RelayMsgID: "m1"})
	time.Sleep(300 * time.Millisecond)
	must(t, srv.Pause())
	l.Note(Outcome{ChatID: "oc", RelayMsgID: "m2"})
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	cancel()
	<-done
	t.Log("stop took", time.Since(began))
	must(t, srv.Resume())
}
