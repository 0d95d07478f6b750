package connector

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
)

// Bounds of a send.
const (
	// pieceTime is how long one piece may take, waits for Feishu's limits
	// included; then the send ends with an error.
	pieceTime = time.Minute
	// maxAgain is how often a piece is tried again after errors that may pass.
	maxAgain = 3
)

// Errors of [Connector.Send] before anything was sent.
var (
	ErrNoChat  = errors.New("no chat to send to")
	ErrNoText  = errors.New("nothing to send")
	ErrTooLong = fmt.Errorf("longer than %d messages", maxPieces)
)

// Send is a message that the bot wants to send.
type Send struct {
	ChatID relay.ChatID

	// Content is what the bot says, plain or markdown. "@Name" of a bot in the
	// Book, or of a mention below, becomes a real mention; at-tags that the bot
	// wrote itself stay as they are.
	Content string

	// ReplyTo is the message that is answered, "" for none. If it is gone, the
	// message is sent to the chat. InThread answers in its topic, and opens one
	// where there is none.
	ReplyTo  relay.MessageID
	InThread bool

	// IdempotencyKey makes a repeat of the same send harmless for an hour: Feishu
	// sends nothing twice. Empty: every send is a new one.
	IdempotencyKey string

	// Mentions are people and bots whose names may stand in Content, by their
	// open_ids in this app's name space.
	Mentions []relay.Mention
}

// SendError says how far a send came. A repeat with the same IdempotencyKey
// sends only the rest.
type SendError struct {
	Sent, Pieces int
	Err          error // wraps *feishu.CodeError where Feishu refused
}

func (e *SendError) Error() string {
	return fmt.Sprintf("sent %d of %d messages: %v", e.Sent, e.Pieces, e.Err)
}

func (e *SendError) Unwrap() error { return e.Err }

// Send sends s, as several messages if it is long, and returns those that
// Feishu accepted, also beside an error, which then is a [*SendError]. Where
// Feishu asks to wait it waits, at most a minute for each piece.
//
// sent is called with each message as soon as it was accepted, before the next
// is sent. What it returns stops nothing, since the bot's words go out first,
// but is part of the error. It may be nil.
func (c *Connector) Send(ctx context.Context, s Send, sent func(feishu.Message) error) ([]feishu.Message, error) {
	if s.ChatID == "" {
		return nil, ErrNoChat
	}
	bodies, err := compose(s.Content, c.tagger(s.Mentions))
	if err != nil {
		return nil, err
	}
	ch := c.limits.of(s.ChatID)
	select {
	case ch.turn <- struct{}{}:
		defer func() { <-ch.turn }()
	case <-ctx.Done():
		return nil, &SendError{Pieces: len(bodies), Err: ctx.Err()}
	}
	key := cmp.Or(s.IdempotencyKey, rand.Text())
	var accepted []feishu.Message
	var unheard error // of sent
	for i, b := range bodies {
		m, err := c.piece(ctx, ch, &s, b, pieceID(key, s.ChatID, i))
		if err != nil {
			c.opts.Counter("send_failed")
			return accepted, &SendError{len(accepted), len(bodies), errors.Join(err, unheard)}
		}
		c.opts.Counter("sent")
		accepted = append(accepted, m)
		if sent != nil {
			unheard = errors.Join(unheard, sent(m))
		}
	}
	if unheard != nil {
		return accepted, &SendError{len(accepted), len(bodies), unheard}
	}
	return accepted, nil
}

// pieceID is the uuid of the piece number i: the same for a repeat, at most 50
// characters (docs/feishu.md 5).
func pieceID(key string, chat relay.ChatID, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", key, chat, i))
	return hex.EncodeToString(sum[:20])
}

// piece sends one message: as a reply, or to the chat when what it replies to is
// gone; then also the pieces that follow, for which s is changed.
func (c *Connector) piece(ctx context.Context, ch *chat, s *Send, b content, uuid string) (feishu.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, pieceTime)
	defer cancel()
	var m feishu.Message
	var err error
	if s.ReplyTo != "" {
		m, err = c.deliver(ctx, ch, reply(s, b, uuid))
		if gone(err) {
			c.opts.Counter("reply_gone")
			s.ReplyTo = ""
		}
	}
	if s.ReplyTo == "" {
		m, err = c.deliver(ctx, ch, create(s, b, uuid))
	}
	if err != nil {
		if code, ok := errors.AsType[*feishu.CodeError](err); ok && code.Code == feishu.CodeNotInChat {
			c.opts.Book.LeftChat(s.ChatID)
		}
		return m, err
	}
	m.ChatID = cmp.Or(m.ChatID, s.ChatID)
	m.Type = cmp.Or(m.Type, b.kind)
	c.opts.Book.SawChat(m.ChatID, "")
	return m, nil
}

// gone reports whether the message to reply to no longer exists.
func gone(err error) bool {
	code, ok := errors.AsType[*feishu.CodeError](err)
	return ok && (code.Code == codeRecalled || code.Code == codeTargetGone || code.Code == codeDeleted)
}

// The two calls of docs/feishu.md 5.
func create(s *Send, b content, uuid string) *larkcore.ApiReq {
	return &larkcore.ApiReq{
		ApiPath:     "/open-apis/im/v1/messages",
		QueryParams: larkcore.QueryParams{"receive_id_type": {"chat_id"}},
		Body: map[string]any{
			"receive_id": s.ChatID, "msg_type": b.kind, "content": b.json, "uuid": uuid,
		},
	}
}

func reply(s *Send, b content, uuid string) *larkcore.ApiReq {
	return &larkcore.ApiReq{
		ApiPath:    "/open-apis/im/v1/messages/:message_id/reply",
		PathParams: larkcore.PathParams{"message_id": string(s.ReplyTo)},
		Body: map[string]any{
			"msg_type": b.kind, "content": b.json, "reply_in_thread": s.InThread, "uuid": uuid,
		},
	}
}

// deliver makes the call until it succeeds, fails for good, or ctx is done. The
// uuid in it makes a repeat harmless whose first answer was lost.
func (c *Connector) deliver(ctx context.Context, ch *chat, req *larkcore.ApiReq) (feishu.Message, error) {
	var m feishu.Message
	var err error // the last answer's
	backoff := c.times.backoff
	for again := 0; ; {
		if late := c.limits.wait(ctx, ch); late != nil {
			return m, errors.Join(err, late)
		}
		m, err = c.call(ctx, req)
		pause := backoff
		if limited, ok := errors.AsType[*limitedError](err); ok {
			c.opts.Counter("rate_limited")
			pause = cmp.Or(limited.after, backoff)
		} else if _, ok := errors.AsType[*passingError](err); ok && again < maxAgain && ctx.Err() == nil {
			c.opts.Counter("retried")
			again++
		} else {
			return m, err
		}
		if wait.Sleep(ctx, pause) != nil {
			return m, fmt.Errorf("%w, and no time is left to try again", err)
		}
		backoff = min(2*backoff, pieceTime/6)
	}
}
