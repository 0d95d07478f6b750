package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
)

const (
	injectTimeout = time.Minute      // for the bot's answer: many think inside their handler
	awayWait      = time.Second      // until a bot that is away is tried again; doubled each time,
	maxAwayWait   = 15 * time.Second // up to this
	slowWait      = 15 * time.Second // until a bot that failed is; then
	longWait      = 5 * time.Minute
)

// Inject posts an event, the JSON of its 2.0 envelope, to the bot as Feishu
// would: encrypted and signed where there is a key. It returns nil once the bot
// has answered 200, and else not before ctx is done. A bot that is away is tried
// again soon, one that failed after 15 s and then every 5 minutes, each time
// with the same event.
func (s *Server) Inject(ctx context.Context, event []byte) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, event); err != nil { // Node signs what it serialises itself (FEISHU.md 2.3)
		return fmt.Errorf("encode an event: %w", err)
	}
	away, failed := awayWait, slowWait
	for word := "injected"; ; word = "redelivered" {
		status, written, err := s.deliver(ctx, compact.Bytes())
		if err != nil {
			return err
		}
		if written {
			s.Counter(word)
		}
		var wait time.Duration
		switch {
		case status == http.StatusOK:
			s.Counter("delivered")
			return nil
		case written:
			s.Counter("ack_error")
			s.log.Warn("the bot could not handle an event of ours; it gets it again", "status", status)
			wait, failed = failed, longWait
			away = awayWait
		default:
			wait, away = away, min(2*away, maxAwayWait)
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// deliver posts an event once. written says that the bot may have it, be it that it
// did not answer and the status is 0.
func (s *Server) deliver(ctx context.Context, event []byte) (status int, written bool, err error) {
	body := event
	if s.EncryptKey != "" {
		if body, err = feishu.Encrypt(s.EncryptKey, event); err != nil {
			return 0, false, fmt.Errorf("encrypt an event: %w", err)
		}
	}
	limited, cancel := context.WithTimeout(ctx, injectTimeout)
	defer cancel()
	var wrote atomic.Bool
	limited = httptrace.WithClientTrace(limited, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { wrote.Store(i.Err == nil) },
	})
	req, err := http.NewRequestWithContext(limited, http.MethodPost, s.bot.String(), bytes.NewReader(body))
	if err != nil {
		return 0, false, fmt.Errorf("post an event: %w", err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("X-Request-Id", rand.Text())
	if s.EncryptKey != "" {
		timestamp, nonce := strconv.FormatInt(time.Now().Unix(), 10), rand.Text()
		req.Header.Set("X-Lark-Request-Timestamp", timestamp)
		req.Header.Set("X-Lark-Request-Nonce", nonce)
		req.Header.Set("X-Lark-Signature", feishu.Sign(timestamp, nonce, s.EncryptKey, body))
	}
	resp, err := s.client.Do(req)
	if ctx.Err() != nil && err != nil {
		return 0, false, ctx.Err()
	}
	if err != nil {
		s.reached(0, err)
		return 0, wrote.Load(), nil
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxChallenge)) // so that the connection can be used again
	s.reached(resp.StatusCode, nil)
	return resp.StatusCode, !isAway(resp.StatusCode), nil
}
