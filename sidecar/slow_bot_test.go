//go:build unix

package sidecar_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"feishu-relay/httpapi"
	"feishu-relay/relay"
	"feishu-relay/sidecar"
)

// slowWebhook is a bot at INJECT_URL that answers a message when the test says so.
type slowWebhook struct {
	mu      sync.Mutex
	posts   []string
	answers map[string]chan int
}

func (b *bot) thinks(t *testing.T) *slowWebhook {
	s := &slowWebhook{answers: map[string]chan int{}}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	b.answer(func(in *relay.Inbound) int {
		id := fmt.Sprint(in.Metadata["relay_msg_id"])
		s.mu.Lock()
		s.posts = append(s.posts, id)
		s.mu.Unlock()
		select {
		case status := <-s.channel(id):
			return status
		case <-over:
			return http.StatusServiceUnavailable
		}
	})
	return s
}

func (s *slowWebhook) channel(id string) chan int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers[id] == nil {
		s.answers[id] = make(chan int, 10)
	}
	return s.answers[id]
}

func (s *slowWebhook) says(id relay.MessageID, status int) { s.channel(string(id)) <- status }

// posted waits until the bot was posted these messages, and no others.
func (s *slowWebhook) posted(ctx context.Context, t *testing.T, want ...relay.MessageID) {
	t.Helper()
	var got []string
	eventually(ctx, t, fmt.Sprintf("the bot is posted %v", want), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = slices.Clone(s.posts)
		return len(got) >= len(want)
	})
	for i, id := range want {
		if got[i] != string(id) || len(got) > len(want) {
			t.Fatalf("the bot was posted %v, want %v", got, want)
		}
	}
}

func (b *bot) inProgress(ctx context.Context, t *testing.T) []httpapi.Delivery {
	t.Helper()
	var list struct{ Deliveries []httpapi.Delivery }
	must(t, b.get(ctx, "/v1/deliveries", &list))
	return list.Deliveries
}

// settles posts to /v1/deliveries and checks the answer.
func (b *bot) settles(ctx context.Context, t *testing.T, id relay.MessageID, body string, status int) {
	t.Helper()
	url, err := b.side.url(ctx)
	must(t, err)
	resp, err := b.http.Post(url+"/v1/deliveries/"+string(id), "application/json", strings.NewReader(body))
	must(t, err)
	defer resp.Body.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(resp.Body)
	if resp.StatusCode != status {
		t.Errorf("%s settled with %s: %d %s, want %d", id, body, resp.StatusCode, text.Bytes(), status)
	}
	if status != http.StatusOK {
		return
	}
	var answer struct {
		RelayMsgID relay.MessageID `json:"relay_msg_id"`
		State      string
	}
	if err := json.Unmarshal(text.Bytes(), &answer); err != nil || answer.RelayMsgID != id || !strings.Contains(cmp.Or(body, `"delivered"`), `"`+answer.State+`"`) {
		t.Errorf("%s settled with %q: %s", id, body, text.Bytes())
	}
}

// slow is a cluster whose second bot is posted its messages.
func slow(t *testing.T, change func(*sidecar.Config)) (c *cluster, ctx context.Context, say func(chat string) relay.MessageID) {
	c = newCluster(t, setup{bots: 2, webhooks: []int{1}, change: func(i int, cfg *sidecar.Config) {
		if i == 1 {
			change(cfg)
		}
	}})
	ctx = limited(t)
	return c, ctx, func(chat string) relay.MessageID {
		t.Helper()
		id, err := c.bots[0].say(ctx, chat)
		must(t, err)
		return id
	}
}

// A bot that thinks is posted a message once, which is shown as in progress. The next message of the chat waits for the
// answer; other chats do not wait.
func TestSlowWebhook(t *testing.T) {
	t.Parallel()
	c, ctx, say := slow(t, asIs)
	b := c.bots[1]
	bot := b.thinks(t)
	first := say("oc_1")
	bot.posted(ctx, t, first)
	second, other := say("oc_1"), say("oc_2")
	bot.posted(ctx, t, first, other)
	bot.says(other, http.StatusOK)
	eventually(ctx, t, "the first message alone is in progress", func() bool {
		list := b.inProgress(ctx, t)
		return len(list) == 1 && list[0].RelayMsgID == first && list[0].Door == "webhook" && list[0].ChatID == "oc_1"
	})
	bot.posted(ctx, t, first, other)
	bot.says(first, http.StatusOK)
	bot.posted(ctx, t, first, other, second)
	bot.says(second, http.StatusOK)
	c.verify(ctx)
}

// A bot that answers 202 has the message and settles it later, over restarts of
// its sidecar.
func TestAcceptedByTheWebhook(t *testing.T) {
	t.Parallel()
	c, ctx, say := slow(t, func(*sidecar.Config) {})
	b := c.bots[1]
	bot := b.thinks(t)
	ids := make([]relay.MessageID, 5)
	for i := range ids { // each comes when the one before is accepted
		ids[i] = say("oc_1")
		bot.posted(ctx, t, ids[:i+1]...)
		if i == 1 {
			b.settles(ctx, t, ids[i], "", http.StatusOK) // before the 202 itself
		}
		if i < 4 {
			bot.says(ids[i], http.StatusAccepted)
		}
	}
	bot.says(ids[4], http.StatusOK)
	eventually(ctx, t, "the last is delivered", func() bool {
		return b.metric(ctx, t, "feishu_relay_delivered_total") == 2 && len(b.inProgress(ctx, t)) == 3
	})
	b.side.kill()
	b.side.start("")
	list := b.inProgress(ctx, t)
	if len(list) != 3 || list[0].RelayMsgID != ids[0] || list[1].RelayMsgID != ids[2] {
		t.Errorf("in progress after the restart: %+v", list)
	}
	b.settles(ctx, t, ids[0], `{"state":"delivered"}`, http.StatusOK)
	b.settles(ctx, t, ids[0], `{"state":"delivered"}`, http.StatusOK)
	b.settles(ctx, t, ids[0], `{"state":"refused"}`, http.StatusConflict)
	b.settles(ctx, t, ids[2], `{"state":"refused","reason":"not for me"}`, http.StatusOK)
	b.settles(ctx, t, ids[2], `{"state":"done"}`, http.StatusBadRequest)
	b.settles(ctx, t, "om_unknown", "", http.StatusNotFound)
	bot.posted(ctx, t, ids...)
	b.settles(ctx, t, ids[3], `{"state":"retry"}`, http.StatusOK)
	bot.posted(ctx, t, append(slices.Clone(ids), ids[3])...)
	bot.says(ids[3], http.StatusOK)
	eventually(ctx, t, "all are settled", func() bool { return len(b.inProgress(ctx, t)) == 0 })
	b.settles(ctx, t, ids[3], "", http.StatusOK)
	if n := b.metric(ctx, t, `feishu_relay_stopped_total{reason="undeliverable"}`); n != 1 {
		t.Errorf("%v messages are undeliverable, want the one that was refused", n)
	}
	c.quiet(ctx)
}

// What a bot that acknowledges did not acknowledge comes again on its next
// connection, also over a kill of the sidecar, and in order.
func TestUnacknowledgedOnTheStream(t *testing.T) {
	t.Parallel()
	c := prepare(t, setup{bots: 2})
	for _, b := range c.bots {
		b.side.start("")
	}
	ctx := limited(t)
	a, b := c.bots[0], c.bots[1]
	a.connect(t)
	var conn *websocket.Conn
	dial := func() {
		t.Helper()
		url, err := b.side.url(ctx)
		must(t, err)
		if conn != nil {
			_ = conn.CloseNow()
		}
		conn, _, err = websocket.Dial(ctx, url+"/v1/stream", nil)
		must(t, err)
		conn.SetReadLimit(4 << 20)
		t.Cleanup(func() { _ = conn.CloseNow() })
	}
	reads := func(want ...relay.MessageID) {
		t.Helper()
		for _, id := range want {
			_, data, err := conn.Read(ctx)
			must(t, err)
			var in relay.Inbound
			must(t, json.Unmarshal(data, &in))
			if got := fmt.Sprint(in.Metadata["relay_msg_id"]); got != string(id) {
				t.Fatalf("read %s, want %s", got, id)
			}
		}
	}
	acks := func(id relay.MessageID) {
		t.Helper()
		must(t, conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"ack":%q}`, id)))
		eventually(ctx, t, "the acknowledgement is noted", func() bool {
			return !slices.ContainsFunc(b.inProgress(ctx, t), func(p httpapi.Delivery) bool { return p.RelayMsgID == id })
		})
	}
	dial()
	c.ready(ctx)
	var ids []relay.MessageID
	for range 6 {
		id, err := a.say(ctx, "oc_1")
		must(t, err)
		ids = append(ids, id)
		if len(ids) == 1 {
			reads(id)
			acks(id)
		}
	}
	reads(ids[1:]...)
	acks(ids[2])
	dial()
	reads(ids[1], ids[3], ids[4], ids[5])
	b.side.kill()
	b.side.start("")
	dial()
	reads(ids[1], ids[3], ids[4], ids[5])
	for _, id := range []relay.MessageID{ids[1], ids[3], ids[4]} {
		acks(id)
	}
	b.settles(ctx, t, ids[5], "", http.StatusOK) // by the API
	if list := b.inProgress(ctx, t); len(list) > 0 {
		t.Errorf("still in progress: %+v", list)
	}
}
