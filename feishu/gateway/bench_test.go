package gateway

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkSend measures a send through the gateway against one through a bare
// reverse proxy, in turns: "p50-ratio" (aim: at most 1.3) for one client,
// "throughput-ratio" (aim: at least 0.8) for eight.
func BenchmarkSend(b *testing.B) {
	r := newRig(b, func(o *Options) { o.Logger = nil }).knowGroup()
	r.host.said = make(chan Sent, 1024)
	go func() {
		for range r.host.said {
		}
	}()
	// A new message each time, or it would be a repeat.
	var mu sync.Mutex
	n := 0
	r.up.on("POST /open-apis/im/v1/messages", func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		mu.Lock()
		n++
		id := n
		mu.Unlock()
		answer(w, 200, js(map[string]any{"code": 0, "msg": "success", "data": map[string]any{"message_id": "om_" + string(rune('a'+id%26)) + time.Now().String(),
			"chat_id": group, "msg_type": "text", "sender": map[string]any{"id": r.app, "id_type": "app_id", "sender_type": "app"}, "body": map[string]any{"content": `{"text":"hello"}`}}}))
	})
	base, _ := url.Parse(r.up.URL)
	bare := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(base); p.Out.Host = base.Host },
		Transport: &http.Transport{MaxIdleConnsPerHost: idlePerHost, DisableCompression: true}})
	defer bare.Close()
	body := js(map[string]any{"receive_id": group, "msg_type": "text", "content": textOf(strings.Repeat("hello ", 50))})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	post := func(to string) {
		req, _ := http.NewRequest("POST", to+"/open-apis/im/v1/messages?receive_id_type=chat_id", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer t-"+r.app)
		resp, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, to := range []string{bare.URL, r.url} {
			start := time.Now()
			post(to)
			took[to] = append(took[to], time.Since(start))
		}
	}
	p50 := func(to string) float64 {
		slices.Sort(took[to])
		return float64(took[to][len(took[to])/2])
	}
	b.ReportMetric(p50(r.url)/p50(bare.URL), "p50-ratio")
	b.ReportMetric(p50(r.url)/1e3, "p50-µs")

	const clients, rounds, each = 8, 4, 150
	total := map[string]time.Duration{}
	for range rounds {
		for _, to := range []string{bare.URL, r.url} {
			start := time.Now()
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for range each {
						post(to)
					}
				})
			}
			wg.Wait()
			total[to] += time.Since(start)
		}
	}
	b.ReportMetric(total[bare.URL].Seconds()/total[r.url].Seconds(), "throughput-ratio")
}
