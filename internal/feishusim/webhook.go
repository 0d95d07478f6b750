package feishusim

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"feishu-relay/feishu"
)

// connectWithin is how long a webhook may take to accept a connection (docs/feishu.md 2).
const connectWithin = 2 * time.Second

// newWebhookClient returns a client without redirects and proxies.
func newWebhookClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: connectWithin}).DialContext,
			MaxIdleConnsPerHost: 8,
			IdleConnTimeout:     30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post sends an event to the webhook, and handles the answer.
func (s *Server) post(p *pending, d *Delivery) {
	s.mu.Lock()
	a := p.app.App
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.AckTimeout)
	defer cancel()
	status, err := s.postTo(ctx, a, p.body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if err == nil && s.fault(FaultNoAck, a.ID) == nil {
		d.Acked = status
		s.settled(p.app, d)
		return
	}
	if p.try == d {
		s.missed(p)
	}
}

// postTo sends a body as Feishu does: encrypted and signed if the app has a key.
func (s *Server) postTo(ctx context.Context, a App, body []byte) (status int, err error) {
	if a.EncryptKey != "" {
		if body, err = feishu.Encrypt(a.EncryptKey, body); err != nil {
			return 0, fmt.Errorf("encrypt the event: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.WebhookURL, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("webhook URL: %w", err)
	}
	now, nonce := strconv.FormatInt(time.Now().Unix(), 10), newID("", 8)
	for key, value := range map[string]string{
		"Content-Type":             "application/json;charset=utf-8",
		"X-Request-Id":             newID("", 16),
		"X-Tt-Logid":               newID("", 16),
		"X-Lark-Request-Timestamp": now,
		"X-Lark-Request-Nonce":     nonce,
		"X-Lark-Signature":         feishu.Sign(now, nonce, a.EncryptKey, body),
	} {
		req.Header.Set(key, value)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
