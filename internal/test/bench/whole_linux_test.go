package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/test/redistest"
)

const (
	callers      = 16
	perWhole     = 8000 // messages of a round
	livelyPerson = 20   // messages of the bots between two of a person, in each chat
	longPerson   = 500
)

// BenchmarkWholeWay counts what one bot posts to its sidecar until another bot has read it
// from the stream of its own: two processes of the release program over Redis, 16 callers over HTTP, 40 chats. In
// "lively" chats a person speaks before every 20 messages, in "long" ones before every 500.
func BenchmarkWholeWay(b *testing.B) {
	for name, person := range map[string]int{"lively": livelyPerson, "long": longPerson} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			srv := redistest.Start(b)
			from := startSidecar(b, dir, srv.URL(), "agent_a")
			got := make(chan struct{}, perWhole)
			startSidecar(b, dir, srv.URL(), "agent_b").read(b, got)
			p := &poster{url: from.url, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}},
				person: person}
			var accepted, delivered []float64
			for b.Loop() {
				start := time.Now()
				var calling sync.WaitGroup
				for i := range callers {
					calling.Go(func() { p.post(b, i) })
				}
				calling.Wait()
				accepted = append(accepted, perWhole/time.Since(start).Seconds())
				await(perWhole, got)
				delivered = append(delivered, perWhole/time.Since(start).Seconds())
			}
			b.ReportMetric(median(accepted), "accepted/s")
			b.ReportMetric(median(delivered), "msg/s")
		})
	}
}

// poster is the first bot.
type poster struct {
	url    string
	client *http.Client
	person int
	seq    atomic.Int64
	posts  [chats]atomic.Int64
}

// post posts one caller's share of a round to its own chats.
func (p *poster) post(b *testing.B, caller int) {
	for i := range perWhole / callers {
		chat := (caller + i*callers) % chats
		if p.posts[chat].Add(1)%int64(p.person) == 1 {
			p.call(b, "/v1/inbound", chat, map[string]any{"sender": "ou_person"})
		}
		p.call(b, "/v1/outbound", chat, map[string]any{})
	}
}

func (p *poster) call(b *testing.B, path string, chat int, body map[string]any) {
	body["chat_id"], body["content"] = fmt.Sprintf("oc_84d1a7e5%04d", chat), text
	body["message_id"], body["ts"] = fmt.Sprintf("om_dc13264520392913993dd051%08d", p.seq.Add(1)), time.Now().UnixMilli()
	if err := post(p.client, p.url+path, body); err != nil {
		b.Error(err)
	}
}

// post posts a message, which has to be accepted.
func post(client *http.Client, url string, body map[string]any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	resp, err := client.Post(url, "application/json", bytes.NewReader(data))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("%s answered %d %.200s", url, resp.StatusCode, answer)
	}
	return err
}
