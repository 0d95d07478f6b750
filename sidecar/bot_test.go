//go:build unix

package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/internal/sse"
	"feishu-relay/relay"
)

// nothingYet is the Last-Event-ID of a bot that was given nothing so far: an
// unknown id asks for all that is kept.
const nothingYet = "0"

// bot is a program that knows the local API and nothing else. What it is told
// is noted in the history.
type bot struct {
	name string
	side *process
	h    *history
	http *http.Client

	flaky atomic.Bool      // it drops its stream now and then
	sent  map[string]int   // messages by chat
	mu    sync.Mutex       // guards sent
	last  string           // Last-Event-ID; of the goroutine that reads
	hook  *httptest.Server // nil: it reads the stream
}

func newBot(name string, h *history) *bot {
	// Connections to an earlier life of the sidecar are of no use.
	return &bot{name: name, h: h, sent: map[string]int{}, last: nothingYet,
		http: &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Second}}}
}

// readStream reads GET /v1/stream until ctx is done. It comes back whenever the
// connection or the sidecar ends, and says then what it got last.
func (b *bot) readStream(ctx context.Context) {
	var abandoned io.Closer // not read any more, and still open
	defer func() { closeIf(abandoned) }()
	for ctx.Err() == nil {
		url, life, err := b.side.present(ctx)
		if err != nil {
			return
		}
		body, err := b.open(ctx, url)
		closeIf(abandoned)
		abandoned = nil
		if err != nil {
			breathe(ctx)
			continue
		}
		if b.consume(body, life) {
			abandoned = body
			continue
		}
		closeIf(body)
	}
}

func closeIf(c io.Closer) {
	if c != nil {
		_ = c.Close() // only read
	}
}

// breathe keeps a client whose server is gone from spinning until the end of
// the process was noticed.
func breathe(ctx context.Context) {
	t := time.NewTimer(10 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (b *bot) open(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/stream", nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Last-Event-ID", b.last)
	resp, err := b.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("stream answered %d", resp.StatusCode), resp.Body.Close())
	}
	return resp.Body, nil
}

// consume reads events until the stream ends, or until the bot has had enough
// of it: then it reports true, and whatever else is in the connection is lost.
func (b *bot) consume(body io.Reader, life int) (enough bool) {
	for e, err := range sse.Read(body) {
		if err != nil {
			break
		}
		var in relay.Inbound
		if e.Kind != "message" || json.Unmarshal(e.Data, &in) != nil {
			continue
		}
		b.h.got(b.name, life, &in)
		b.last = e.ID
		if b.flaky.Load() && rand.IntN(25) == 0 {
			return true
		}
	}
	return false
}

// listen starts the bot's webhook and returns its INJECT_URL. Each life of the
// sidecar appends its number to that.
func (b *bot) listen() string {
	b.hook = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in relay.Inbound
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		life, err := strconv.Atoi(path.Base(r.URL.Path))
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		b.h.got(b.name, life, &in)
	}))
	return b.hook.URL
}

// sizes of messages in bytes, and how many of 100 have it.
var sizes = []struct{ bytes, share int }{{400, 80}, {4 << 10, 15}, {64 << 10, 5}}

// padding has what is awkward in JSON, in a line, in an event.
const padding = "请看 \"this\"\\ <b>&amp;</b>\r\n\tdata: 😀 {\"relay_msg_id\":\"no\"} "

func (b *bot) message(chat string) (id relay.MessageID, content string) {
	b.mu.Lock()
	b.sent[chat]++
	n := b.sent[chat]
	b.mu.Unlock()
	size, pick := 0, rand.IntN(100)
	for _, s := range sizes {
		if pick -= s.share; pick < 0 {
			size = s.bytes
			break
		}
	}
	head := fmt.Sprintf("%s/%s/%d ", b.name, chat, n)
	return relay.MessageID(fmt.Sprintf("om_%s_%s_%04d", b.name, chat, n)),
		head + strings.Repeat(padding, max(1, (size-len(head))/len(padding))) + "."
}

// count is how many messages the bot has sent to a chat.
func (b *bot) count(chat string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent[chat]
}

// say reports a message until it is accepted, and returns its id.
func (b *bot) say(ctx context.Context, chat string) (relay.MessageID, error) {
	id, content := b.message(chat)
	return id, b.sayThis(ctx, chat, id, content, nil)
}

// sayThis is say with fields beside the usual ones.
func (b *bot) sayThis(ctx context.Context, chat string, id relay.MessageID, content string, more map[string]any) error {
	body := map[string]any{"chat_id": chat, "content": content, "message_id": id, "ts": time.Now().UnixMilli(),
		"metadata": map[string]string{"chat_type": "group"}}
	maps.Copy(body, more)
	b.h.sending(id, b.name, chat, content)
	if err := b.insist(ctx, "/v1/outbound", body); err != nil {
		return err
	}
	b.h.accepted(id)
	return nil
}

// hear reports a user's message until it is accepted.
func (b *bot) hear(ctx context.Context, chat, user string, n int) error {
	id := relay.MessageID(fmt.Sprintf("om_%s_%s_%04d", user, chat, n))
	content := fmt.Sprintf("%s/%s/%d .", user, chat, n)
	if err := b.insist(ctx, "/v1/inbound", map[string]any{"chat_id": chat, "content": content, "sender": user,
		"message_id": id, "ts": time.Now().UnixMilli(), "chat_type": "group"}); err != nil {
		return err
	}
	b.h.reported(id, user, chat, content)
	return nil
}

// insist posts until the answer is 202, over the ends of the sidecar.
func (b *bot) insist(ctx context.Context, route string, body any) error {
	for {
		status, _, err := b.post(ctx, route, body)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%s did not answer within %s", route, answerWithin)
		case err == nil && status == http.StatusAccepted:
			return nil
		case err == nil && status < 500:
			return fmt.Errorf("%s answered %d", route, status)
		}
		breathe(ctx)
	}
}

// post posts once and returns the status and the code of an error.
func (b *bot) post(ctx context.Context, route string, body any) (status int, code string, err error) {
	url, err := b.side.url(ctx)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+route, bytes.NewReader(data))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	var answer struct{ Error struct{ Code string } }
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer.Error.Code, err
}

// get reads a JSON answer.
func (b *bot) get(ctx context.Context, route string, into any) error {
	url, err := b.side.url(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+route, nil)
	if err != nil {
		return err
	}
	resp, err := b.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %d", route, resp.StatusCode)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// metric is the value of a series in /metrics (see series).
func (b *bot) metric(ctx context.Context, t *testing.T, name string) float64 {
	t.Helper()
	url, err := b.side.url(ctx)
	must(t, err)
	return series(httpGet(t, url+"/metrics"), name)
}
