package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

// Inject posts an event to the bot once, as Feishu would: encrypted and signed
// if there is a key. It returns nil when the bot answered 200,
// [feishu.AnswerError] for another status, [feishu.ErrNotInjected] when nothing
// was posted whole, [feishu.ErrInjectionEnded] when the connection ended without
// an answer, or the error of ctx, with which the post is closed.
func (s *Server) Inject(ctx context.Context, in feishu.Injection) error {
	var compact bytes.Buffer
	// Node signs what it serialises itself (docs/feishu.md 2.3)
	if err := json.Compact(&compact, in.Event); err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	body, header, err := s.seal(compact.Bytes())
	if err != nil {
		return err
	}
	wait, err := s.injections.Begin(in)
	if err != nil {
		return err
	}
	return wait.End(s.injected(ctx, wait, body, header))
}

// injected posts an event, and returns why the bot has not answered it.
func (s *Server) injected(ctx context.Context, wait *conn.Waiting, body []byte, header http.Header) error {
	var wrote atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil && !wrote.Swap(true) {
				wait.Written(nil)
			}
		},
	})
	req, err := http.NewRequestWithContext(traced, http.MethodPost, s.bot.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post an event: %w", err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("X-Request-Id", wait.ID)
	maps.Copy(req.Header, header)
	req.GetBody = nil // a connection that ends is not a reason to post again at once
	resp, err := s.do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil && wrote.Load():
		return feishu.ErrInjectionEnded
	case err != nil:
		return feishu.ErrNotInjected
	}
	feishu.Drain(resp.Body)
	if isAway(resp.StatusCode) { // of a proxy in front of the bot
		return feishu.ErrNotInjected
	}
	s.injections.Answered(wait.ID, resp.StatusCode)
	return nil
}

// seal returns the body of a post with an event, and the headers of its signature:
// encrypted and signed if there is a key.
func (s *Server) seal(event []byte) (body []byte, header http.Header, err error) {
	if s.EncryptKey == "" {
		return event, nil, nil
	}
	if body, err = feishu.Encrypt(s.EncryptKey, event); err != nil {
		return nil, nil, fmt.Errorf("encrypt an event: %w", err)
	}
	timestamp, nonce := strconv.FormatInt(time.Now().Unix(), 10), rand.Text()
	return body, http.Header{
		"X-Lark-Request-Timestamp": {timestamp},
		"X-Lark-Request-Nonce":     {nonce},
		"X-Lark-Signature":         {feishu.Sign(timestamp, nonce, s.EncryptKey, body)},
	}, nil
}

// replace replaces the event in Feishu's post.
func (s *Server) replace(r *http.Request, p *body, event []byte) {
	data, header, err := s.seal(event)
	if err != nil {
		s.Logger.Error("an event passes unchanged", "err", err)
		return
	}
	p.data = data
	maps.Copy(r.Header, header)
}
