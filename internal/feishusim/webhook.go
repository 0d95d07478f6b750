package feishusim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"feishu-relay/feishu"
)

// Timeouts of a webhook (docs/feishu.md 2).
const (
	challengeWithin = time.Second
	connectWithin   = 2 * time.Second
	maxHookAnswer   = 64 << 10
)

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
	status, _, err := s.postTo(ctx, a, p.body)
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
func (s *Server) postTo(ctx context.Context, a App, body []byte) (status int, answer []byte, err error) {
	if a.EncryptKey != "" {
		if body, err = feishu.Encrypt(a.EncryptKey, body); err != nil {
			return 0, nil, fmt.Errorf("encrypt the event: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.WebhookURL, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("webhook URL: %w", err)
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
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxHookAnswer))
	return resp.StatusCode, answer, err
}

// Verify sends the url_verification challenge to an app's webhook, like
// Feishu's console when a URL is entered.
func (s *Server) Verify(ctx context.Context, app string) error {
	s.mu.Lock()
	known := s.apps[app]
	if known == nil || known.WebhookURL == "" {
		s.mu.Unlock()
		return fmt.Errorf("app %.60q has no webhook", app)
	}
	a := known.App
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, challengeWithin)
	defer cancel()
	challenge := newID("", 16)
	body := compact(map[string]string{"challenge": challenge, "token": a.VerificationToken, "type": "url_verification"})
	status, answer, err := s.postTo(ctx, a, []byte(body))
	if err != nil {
		return fmt.Errorf("challenge: %w", err)
	}
	var got struct {
		Challenge string `json:"challenge"`
	}
	if json.Unmarshal(answer, &got) != nil || status != http.StatusOK || got.Challenge != challenge {
		return fmt.Errorf("challenge: answered with status %d and not with the challenge", status)
	}
	return nil
}
