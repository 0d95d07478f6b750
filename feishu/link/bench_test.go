package link_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
)

// BenchmarkPassThrough carries events of 1 KiB, as many as will go. Its
// throughput is also given as a share of what a bare pipe between two
// WebSockets of the same library carries.
func BenchmarkPassThrough(b *testing.B) {
	quiet := func(o *link.Options) {
		o.Logger, o.Counter = slog.New(slog.DiscardHandler), func(feishu.Counted) {}
		o.Tap = func([]byte) (feishu.Verdict, []byte) { return feishu.Pass, nil }
	}
	r := newRig(b, tcp(b), quiet)
	bot, up := r.ready()
	bareBot, bareUp := r.bare()
	data := bytesOf(b, eventFrame("m1", string(make([]byte, 1024))))
	const burst = 256
	carry := func(from, to *socket) time.Duration {
		at := time.Now()
		go func() {
			for range burst {
				_ = from.conn.Write(context.Background(), websocket.MessageBinary, data)
			}
		}()
		for range burst {
			<-to.got
		}
		return time.Since(at)
	}
	var ours, bare time.Duration
	n := 0
	for b.Loop() {
		ours += carry(up, bot)
		bare += carry(bareUp, bareBot)
		n += burst
	}
	b.ReportMetric(float64(n)/ours.Seconds(), "events/s")
	b.ReportMetric(float64(n)/bare.Seconds(), "bare-events/s")
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "of-bare")
	b.ReportMetric(0, "ns/op")
}

// bare connects a bot and Feishu by a pipe that reads a message and writes it.
func (r *rig) bare() (bot, up *socket) {
	r.t.Helper()
	host := serve(r.t, r.w, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		up, _, err := websocket.Dial(req.Context(), "ws://"+r.feishu.host+"/bare", nil)
		if err != nil {
			return
		}
		bot, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		pipe := func(from, to *websocket.Conn) {
			defer from.CloseNow()
			defer to.CloseNow()
			for {
				typ, data, err := from.Read(context.Background())
				if err != nil || to.Write(context.Background(), typ, data) != nil {
					return
				}
			}
		}
		go pipe(up, bot)
		pipe(bot, up)
	}))
	bot = r.dial("ws://" + host)
	return bot, r.feishu.next()
}
