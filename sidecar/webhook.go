package sidecar

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"feishu-relay/core"
	"feishu-relay/deliver"
	"feishu-relay/feishu"
	"feishu-relay/feishu/webhook"
	"feishu-relay/relay"
)

// Bounds of a post to INJECT_URL.
const (
	webhookFirst = 250 * time.Millisecond // pause before the next post, doubled up to
	webhookMax   = 15 * time.Second
)

// webhookDoor posts inbound messages to INJECT_URL.
type webhookDoor struct {
	url     string
	secret  Secret // INJECT_SECRET; "": posts are not signed
	client  *http.Transport
	reached atomic.Bool // the last post reached the bot
	tried   atomic.Bool
}

func newWebhook(target string, secret Secret) *webhookDoor {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 16
	transport.Proxy = nil // the bot is a neighbour; its messages are no proxy's business
	return &webhookDoor{url: target, secret: secret, client: transport}
}

var _ core.Channel = (*webhookDoor)(nil)

// Name implements [core.Channel], as the following do.
func (*webhookDoor) Name() string                        { return doorWebhook }
func (*webhookDoor) Conn() uint64                        { return 1 } // only a post tells
func (*webhookDoor) Changed() <-chan struct{}            { return nil }
func (w *webhookDoor) Present() bool                     { return w.reached.Load() }
func (*webhookDoor) Serial() bool                        { return true }
func (*webhookDoor) Pauses() (first, most time.Duration) { return webhookFirst, webhookMax }

// Write posts a message once. The bot has it with 2xx, settles it later with 202, and refuses it with 4xx other than
// 408 and 429.
func (w *webhookDoor) Write(ctx context.Context, in *core.Input, _ bool, written func()) error {
	refused := func(format string, args ...any) error {
		return &core.ResultError{Result: deliver.Refused, Err: fmt.Errorf(format, args...)}
	}
	body, err := relay.Marshal(in.Inbound)
	if err != nil {
		return refused("encode inbound message: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return refused("INJECT_URL cannot be requested")
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("Idempotency-Key", headerSafe(string(in.ID)))
	if w.secret != "" {
		timestamp := strconv.FormatInt(time.Now().Unix(), 10)
		req.Header.Set("X-Relay-Timestamp", timestamp)
		req.Header.Set("X-Relay-Signature", postSignature(w.secret, timestamp, body))
	}
	code, err := webhook.Post(req, w.client, func() {
		w.note(true)
		written()
	})
	if ctx.Err() == nil {
		w.note(err == nil)
	}
	switch {
	case err != nil:
		return injectionError(fmt.Errorf("post to INJECT_URL: %w", err))
	case code == http.StatusAccepted:
		return &core.ResultError{Result: deliver.Accepted, Err: errors.New("the bot answers later")}
	case code >= 200 && code < 300:
		return nil
	case feishu.IsRefusal(code):
		return refused("INJECT_URL answered %d", code)
	default:
		return fmt.Errorf("INJECT_URL answered %d", code)
	}
}

// postSignature proves to the bot that a post is its sidecar's.
func postSignature(secret Secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

func (w *webhookDoor) note(reached bool) {
	w.tried.Store(true)
	w.reached.Store(reached)
}

// away reports whether the last post found no bot.
func (w *webhookDoor) away() bool { return w.tried.Load() && !w.reached.Load() }

// headerSafe keeps visible ASCII.
func headerSafe(text string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return -1
	}, text)
}
