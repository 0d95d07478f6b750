// Package send sends in Feishu what a bot says that knows no Feishu: as text or as a post where it
// has markdown, with real mentions in place of "@Name", cut into pieces that Feishu takes, not faster
// than it allows, and not twice.
package send

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

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

// Errors of [Sender.Send] before anything was sent.
var (
	ErrNoChat  = errors.New("no chat to send to")
	ErrNoText  = errors.New("nothing to send")
	ErrTooLong = fmt.Errorf("longer than %d messages", maxPieces)
)

// Codes of answers to a send (docs/feishu.md 6.2).
const (
	codeRecalled   = 230011
	codeFrequency  = 230020
	codeStillSent  = 230049
	codeDeleted    = 230110
	codeTargetGone = 231003
	codeGateway    = 99991400
)

// Sender sends for one bot. It may be used by many goroutines.
type Sender struct {
	api     *feishu.API
	book    *feishu.Book // knows the bots that can be mentioned, and learns of chats
	count   func(feishu.Counted)
	limits  *limits
	backoff time.Duration // before the first further attempt; doubles
}

// New returns a sender. count gets the values of Counted.
func New(api *feishu.API, book *feishu.Book, count func(feishu.Counted)) *Sender {
	return &Sender{api: api, book: book, count: count, limits: newLimits(), backoff: 500 * time.Millisecond}
}

// Message is what the bot wants to send.
type Message struct {
	ChatID relay.ChatID

	// Content is what the bot says, plain or markdown. "@Name" of a bot in the
	// Book, or of a mention below, becomes a real mention; at-tags that the bot
	// wrote itself stay as they are.
	Content string

	// ReplyTo is the message that is answered, "" for none. If it is gone, the
	// message is sent to the chat. InThread answers in its topic, and opens one
	// if there is none.
	ReplyTo  relay.MessageID
	InThread bool

	// IdempotencyKey makes a repeat of the same send harmless for an hour: Feishu
	// sends nothing twice. Empty: every send is a new one.
	IdempotencyKey string

	// Mentions are people and bots whose names may stand in Content, by their
	// open_ids in this app's name space.
	Mentions []relay.Mention
}

// Error says how far a send came. A repeat with the same IdempotencyKey
// sends only the rest.
type Error struct {
	Sent, Pieces int
	Err          error // wraps *feishu.CodeError where Feishu refused
}

func (e *Error) Error() string {
	return fmt.Sprintf("sent %d of %d messages: %v", e.Sent, e.Pieces, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Send sends m, as several messages if it is long, and returns those that
// Feishu accepted, also beside an error, which then is an [*Error]. Where
// Feishu asks to wait it waits, at most a minute for each piece.
//
// sent is called with each message as soon as it was accepted, before the next
// is sent. What it returns stops nothing, since the bot's words go out first,
// but is part of the error. It may be nil.
func (s *Sender) Send(ctx context.Context, m Message, sent func(feishu.Message) error) ([]feishu.Message, error) {
	if m.ChatID == "" {
		return nil, ErrNoChat
	}
	contents, err := compose(m.Content, s.names(m.Mentions).tagger())
	if err != nil {
		return nil, err
	}
	ch := s.limits.of(m.ChatID)
	select {
	case ch.turn <- struct{}{}:
		defer func() { <-ch.turn }()
	case <-ctx.Done():
		return nil, &Error{Pieces: len(contents), Err: ctx.Err()}
	}
	key := cmp.Or(m.IdempotencyKey, rand.Text())
	var accepted []feishu.Message
	var unheard error // of sent
	for i, c := range contents {
		out := feishu.Outgoing{Chat: m.ChatID, ReplyTo: m.ReplyTo, InThread: m.InThread, Type: c.kind, Content: c.json,
			UUID: pieceID(key, m.ChatID, i)}
		piece, err := s.piece(ctx, ch, &out)
		m.ReplyTo = out.ReplyTo
		if err != nil {
			s.count(countedSendFailed)
			return accepted, &Error{len(accepted), len(contents), errors.Join(err, unheard)}
		}
		s.count(countedSent)
		accepted = append(accepted, piece)
		if sent != nil {
			unheard = errors.Join(unheard, sent(piece))
		}
	}
	if unheard != nil {
		return accepted, &Error{len(accepted), len(contents), unheard}
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
// gone; then out is no reply any more.
func (s *Sender) piece(ctx context.Context, ch *chat, out *feishu.Outgoing) (feishu.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, pieceTime)
	defer cancel()
	m, err := s.deliver(ctx, ch, *out)
	if code := feishu.CodeOf(err); out.ReplyTo != "" && (code == codeRecalled || code == codeTargetGone || code == codeDeleted) {
		s.count(countedReplyGone)
		out.ReplyTo = ""
		m, err = s.deliver(ctx, ch, *out)
	}
	if err != nil {
		if feishu.CodeOf(err) == feishu.CodeNotInChat {
			s.book.LeftChat(out.Chat)
		}
		return m, err
	}
	m.ChatID = cmp.Or(m.ChatID, out.Chat)
	m.Type = cmp.Or(m.Type, out.Type)
	s.book.SawChat(m.ChatID, "")
	return m, nil
}

// deliver makes the call until it succeeds, fails for good, or ctx is done. The
// uuid in it makes a repeat harmless whose first answer was lost.
func (s *Sender) deliver(ctx context.Context, ch *chat, out feishu.Outgoing) (feishu.Message, error) {
	var err error // the last answer's
	backoff := s.backoff
	for again := 0; ; {
		if late := s.limits.wait(ctx, ch); late != nil {
			return feishu.Message{}, errors.Join(err, late)
		}
		var m feishu.Message
		if m, err = s.api.SendMessage(ctx, out); err == nil {
			return m, nil
		}
		pause := backoff
		switch later, limited := limit(err); {
		case limited:
			s.count(countedRateLimited)
			pause = cmp.Or(later, backoff)
		case mayPass(err) && again < maxAgain && ctx.Err() == nil:
			s.count(countedRetried)
			again++
		default:
			return m, err
		}
		if wait.Sleep(ctx, pause) != nil {
			return m, fmt.Errorf("%w, and no time is left to try again", err)
		}
		backoff = min(2*backoff, pieceTime/6)
	}
}

// limit reports whether Feishu wants fewer calls, and how long it wants none; 0: it did not say.
func limit(err error) (later time.Duration, limited bool) {
	call, ok := errors.AsType[*feishu.CallError](err)
	code := feishu.CodeOf(err)
	if !ok || call.Status != http.StatusTooManyRequests && code != codeFrequency && code != codeGateway {
		return 0, false
	}
	if call.Later > pieceTime {
		return 0, true
	}
	return call.Later, true
}

// mayPass reports whether the error of a call may be gone at the next attempt.
func mayPass(err error) bool {
	if call, ok := errors.AsType[*feishu.CallError](err); ok {
		return call.Status >= http.StatusInternalServerError || feishu.CodeOf(err) == codeStillSent || call.BadToken()
	}
	return !errors.Is(err, feishu.ErrNotAccepted) && !errors.Is(err, feishu.ErrNoToken)
}
