//go:build unix

package sidecar

import (
	"context"
	"feishu-relay/core"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"feishu-relay/policy"
)

// BenchmarkGatewaySend is a bot's send through the gateway of a whole sidecar,
// recorded, on disk and published, beside the same send through a bare
// httputil.ReverseProxy, in turns. Feishu answers at once, which it never does,
// or after 20 ms, which would be quick for it. "cpu-us" is what a send of eight clients takes of the
// processor, with the client and Feishu, which are of this process.
func BenchmarkGatewaySend(b *testing.B) {
	b.Run("at_once", func(b *testing.B) { benchmarkSend(b, 0) })
	b.Run("20ms", func(b *testing.B) { benchmarkSend(b, 20*time.Millisecond) })
}

func benchmarkSend(b *testing.B, takes time.Duration) {
	const app, chat = "cli_0123456789abcdef", "oc_bench"
	var ids atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(takes)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		switch {
		case strings.HasSuffix(r.URL.Path, "/chats/"+chat):
			fmt.Fprint(w, `{"code":0,"msg":"success","data":{"chat_mode":"group","name":"bench"}}`)
		case strings.HasSuffix(r.URL.Path, "/bot/v3/info"):
			fmt.Fprint(w, `{"code":0,"msg":"ok","bot":{"app_name":"Bench","open_id":"ou_bench"}}`)
		default:
			fmt.Fprintf(w, `{"code":0,"msg":"success","data":{"message_id":"om_%d","msg_type":"text","create_time":"%d","chat_id":"%s",`+
				`"sender":{"id":"%s","id_type":"app_id","sender_type":"app"},"body":{"content":"{\"text\":\"hello\"}"}}}`,
				ids.Add(1), time.Now().UnixMilli(), chat, app)
		}
	}))
	defer up.Close()
	base, err := url.Parse(up.URL)
	must(b, err)
	dir := b.TempDir()
	s, err := New(Config{Agent: "agent_a", AppID: app, ListenAddr: "127.0.0.1:0", BaseURL: base, DataDir: dir,
		Gateway: GatewayConfig{Addr: "127.0.0.1:0"}, Backend: "file", RelayDir: filepath.Join(dir, "relay"),
		TranscriptDir: filepath.Join(dir, "transcripts"), MaxAge: 10 * time.Minute, GroupPolicy: "auto", MembershipCheck: "auto",
		Limits: policy.Limits{MaxDepth: 3, Threshold: 1}}, Options{Logger: slog.New(slog.NewJSONHandler(io.Discard, nil))})
	must(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = s.Run(ctx) })
	defer done.Wait()
	defer cancel()
	bare := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(base); p.Out.Host = base.Host },
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}})
	defer bare.Close()

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	send := func(to string) {
		body := `{"receive_id":"` + chat + `","msg_type":"text","content":"{\"text\":\"hello\"}"}`
		req, err := http.NewRequest(http.MethodPost, to+"/open-apis/im/v1/messages?receive_id_type=chat_id", strings.NewReader(body))
		must(b, err)
		req.Header.Set("Authorization", "Bearer t-bench")
		resp, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	ours := "http://" + s.Gateway().String()
	s.app.book.SawChat(chat, "group")
	send(ours)

	took := map[string][]time.Duration{}
	const clients, each = 8, 40
	spent, cpu := map[string]time.Duration{}, map[string]time.Duration{}
	for b.Loop() {
		for range 50 {
			for _, to := range []string{bare.URL, ours} {
				start := time.Now()
				send(to)
				took[to] = append(took[to], time.Since(start))
			}
		}
		for _, to := range []string{bare.URL, ours} {
			start, busy := time.Now(), cpuTime(b)
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for range each {
						send(to)
					}
				})
			}
			all.Wait()
			spent[to] += time.Since(start)
			cpu[to] += cpuTime(b) - busy
		}
	}
	p50 := func(to string) float64 {
		slices.Sort(took[to])
		return float64(took[to][len(took[to])/2].Nanoseconds()) / 1e3
	}
	n := float64(clients * each * b.N)
	b.ReportMetric(p50(ours), "p50-us")
	b.ReportMetric(p50(bare.URL), "bare-p50-us")
	b.ReportMetric(n/spent[ours].Seconds(), "msg/s")
	b.ReportMetric(n/spent[bare.URL].Seconds(), "bare-msg/s")
	b.ReportMetric(float64(cpu[ours].Microseconds())/n, "cpu-us")
	b.ReportMetric(float64(cpu[bare.URL].Microseconds())/n, "bare-cpu-us")
	b.ReportMetric(0, "ns/op")
	if st := s.core.Lane(core.Outbound); st.Failed > 0 {
		b.Errorf("the outbox failed %d times", st.Failed)
	}
}

// cpuTime is what this process has taken of the processors so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
