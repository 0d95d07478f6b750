package sidecar

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// door hands messages to the bot.
type door interface {
	// Deliver returns nil when the bot has in, and an error that wraps
	// errRefused when it will never take it. It waits for a bot that is away until ctx is
	// done.
	Deliver(ctx context.Context, in relay.Inbound) error
	// Try is Deliver for those who do not wait for a bot that is away.
	Try(ctx context.Context, in relay.Inbound) error
}

var errRefused = errors.New("the bot refused the message")

// Bounds of a webhook delivery.
const (
	webhookTimeout  = 2 * time.Minute        // for one answer: some bots think before they answer
	webhookLast     = finishDelivery * 4 / 5 // for an answer under way when the sidecar stops or the message gets too old
	webhookFirst    = 250 * time.Millisecond // pause before the next try, doubled up to
	webhookMax      = 15 * time.Second
	webhookMaxReply = 64 << 10 // bytes of an answer that are read, so that the connection stays usable
)

// webhookDoor posts inbound messages to INJECT_URL.
type webhookDoor struct {
	url    string
	client *http.Client
	log    *slog.Logger
	failed func(error)
	away   atomic.Bool // the last try of all found no bot
}

func newWebhook(target string, log *slog.Logger, failed func(error)) *webhookDoor {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.Proxy = nil // the bot is a neighbour; its messages are no proxy's business
	return &webhookDoor{url: target, log: log, failed: failed, client: &http.Client{
		Transport: transport,
		Timeout:   webhookTimeout,
		// A redirected POST turns into a GET without the message.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

var _ door = (*webhookDoor)(nil)

// Deliver posts in until the bot answers 2xx (delivered) or 4xx other than 408
// and 429 (refused for good).
func (w *webhookDoor) Deliver(ctx context.Context, in relay.Inbound) error {
	pause := webhookFirst
	for {
		err := w.Try(ctx, in)
		if err == nil || errors.Is(err, errRefused) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, webhookMax)
	}
}

// Try posts in once.
func (w *webhookDoor) Try(ctx context.Context, in relay.Inbound) error {
	body, err := relay.Marshal(in)
	if err != nil {
		return fmt.Errorf("%w: encode inbound message: %w", errRefused, err)
	}
	id, _ := in.Metadata["relay_msg_id"].(relay.MessageID)
	err = w.post(ctx, body, id)
	switch {
	case err == nil || errors.Is(err, errRefused):
		if w.away.Swap(false) {
			w.log.Info("the bot takes messages again")
		}
	case ctx.Err() == nil:
		w.failed(err)
		if !w.away.Swap(true) { // once an outage
			w.log.Warn("the bot does not take messages; they wait for it", keyMsg, id, keyErr, err)
		}
	}
	return err
}

// post is not cut short at once when ctx ends: the bot may have taken the
// message, and it would be given it again.
func (w *webhookDoor) post(ctx context.Context, body []byte, id relay.MessageID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	ctx, cancel := withGrace(ctx, webhookLast)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%w: INJECT_URL cannot be requested", errRefused)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("Idempotency-Key", headerSafe(string(id)))
	resp, err := w.client.Do(req)
	if err != nil {
		return fmt.Errorf("post to INJECT_URL: %w", feishu.WithoutURL(err))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, webhookMaxReply)) // the answer's text does not matter
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests:
		return fmt.Errorf("%w: INJECT_URL answered %d", errRefused, code)
	default:
		return fmt.Errorf("INJECT_URL answered %d", code)
	}
}

// withGrace returns a context that ends a while after ctx does.
func withGrace(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		last := time.NewTimer(grace)
		defer last.Stop()
		select {
		case <-last.C:
			cancel()
		case <-later.Done():
		}
	})
	return later, func() {
		stop()
		cancel()
	}
}

// headerSafe keeps visible ASCII.
func headerSafe(text string) string {
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		if text[i] > ' ' && text[i] < 0x7f {
			out = append(out, text[i])
		}
	}
	return string(out)
}
