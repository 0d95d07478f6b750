// Package send sends the messages of a bot that does not speak Feishu's protocol: as texts, or as posts
// if they have markdown, with real mentions for "@Name", cut into pieces of the size that Feishu takes, at
// the rate that it allows, and each once.
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
	"slices"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/internal/wait"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

// Bounds of a send.
const (
	// pieceTime is how long one piece may take, including waits for Feishu's limits;
	// then the send ends with an error.
	pieceTime = time.Minute
	// maxAgain is how often a piece is tried again after temporary errors.
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
	book    *feishu.Directory // has the bots that can be mentioned, and learns which chats the bot is in
	count   func(feishu.Counted)
	app     *rate.Limiter
	chats   *lru.Cache[relay.ChatID, *chat]
	backoff time.Duration // before the first further attempt; doubles
}

// New returns a sender. count gets the values of Counted.
func New(api *feishu.API, book *feishu.Directory, count func(feishu.Counted)) *Sender {
	chats, _ := lru.New[relay.ChatID, *chat](maxChats) // fails only for a size below 1
	return &Sender{api: api, book: book, count: count, app: rate.NewLimiter(appRate, appRate), chats: chats,
		backoff: 500 * time.Millisecond}
}

// Message is a message to be sent.
type Message struct {
	ChatID relay.ChatID

	// Content is plain text or markdown. "@Name" of a bot in the
	// Book, or of a mention below, becomes a real mention; at-tags in
	// it stay unchanged.
	Content string

	// ReplyTo is the message that is answered, "" for none. If it is gone, the
	// message is sent to the chat. InThread answers in its topic, and opens one
	// if there is none.
	ReplyTo  relay.MessageID
	InThread bool

	// IdempotencyKey makes a repeat of the same send harmless for an hour: Feishu
	// sends each piece once. Empty: every send is a new one.
	IdempotencyKey string

	// Mentions are people and bots whose names may be in Content, by their
	// open_ids in this app's name space.
	Mentions []relay.Mention
}

// Send sends m, as several messages if it is long. If Feishu asks to wait it waits, at most a minute for each piece.
// A repeat with the same IdempotencyKey sends only what was not sent.
//
// sent is called with each message as soon as it was accepted, before the next is sent. Its error does not stop the
// send, but is part of the result.
func (s *Sender) Send(ctx context.Context, m Message, sent func(feishu.Message) error) error {
	if m.ChatID == "" {
		return ErrNoChat
	}
	pieces, err := compose(m.Content, s.tagger(m.Mentions))
	if err != nil {
		return err
	}
	ch := s.chat(m.ChatID)
	if err := ch.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer ch.turn.Release(1)
	key := cmp.Or(m.IdempotencyKey, rand.Text())
	var failed error // of sent
	for i, out := range pieces {
		out.Chat, out.ReplyTo, out.InThread, out.UUID = m.ChatID, m.ReplyTo, m.InThread, pieceID(key, m.ChatID, i)
		piece, err := s.piece(ctx, ch, &out)
		if err != nil {
			s.count("send_failed")
			return fmt.Errorf("sent %d of %d messages: %w", i, len(pieces), errors.Join(err, failed))
		}
		s.count("sent")
		m.ReplyTo = out.ReplyTo
		failed = errors.Join(failed, sent(piece))
	}
	return failed
}

// pieceID returns the uuid of piece i: the same for a repeat, at most 50
// characters (docs/feishu.md 5).
func pieceID(key string, chat relay.ChatID, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", key, chat, i))
	return hex.EncodeToString(sum[:20])
}

// piece sends one message: as a reply, or to the chat if the message that it replies to is
// gone; then it clears out.ReplyTo.
func (s *Sender) piece(ctx context.Context, ch *chat, out *feishu.Outgoing) (feishu.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, pieceTime)
	defer cancel()
	m, err := s.deliver(ctx, ch, *out)
	gone := slices.Contains([]int{codeRecalled, codeTargetGone, codeDeleted}, feishu.CodeOf(err))
	if gone && out.ReplyTo != "" {
		s.count("reply_gone")
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

// deliver repeats the call until it succeeds, fails permanently, or ctx is done. Its
// uuid makes a repeat harmless if the answer before was lost.
func (s *Sender) deliver(ctx context.Context, ch *chat, out feishu.Outgoing) (m feishu.Message, err error) {
	tries := 0 // beside those that Feishu's limits have refused
	for n := 0; ; n++ {
		if late := errors.Join(ch.rate.Wait(ctx), s.app.Wait(ctx)); late != nil {
			return m, errors.Join(err, late)
		}
		if m, err = s.api.SendMessage(ctx, out); err == nil {
			return m, nil
		}
		pause := wait.Doubled(s.backoff, pieceTime/6, n)
		call, answered := errors.AsType[*feishu.CallError](err)
		switch code := feishu.CodeOf(err); {
		case answered && (call.Status == http.StatusTooManyRequests || code == codeFrequency || code == codeGateway):
			s.count("rate_limited")
			pause = cmp.Or(call.Later, pause)
		case answered && call.Status < http.StatusInternalServerError && code != codeStillSent && !call.BadToken(),
			errors.Is(err, feishu.ErrNotAccepted) && !answered, errors.Is(err, feishu.ErrNoToken), tries == maxAgain,
			ctx.Err() != nil:
			return m, err
		default:
			s.count("retried")
			tries++
		}
		if wait.Sleep(ctx, pause) != nil {
			return m, fmt.Errorf("%w, and no time is left to try again", err)
		}
	}
}

// Feishu takes 5 messages a second in a group, from all of its bots together,
// and 50 a second from an app (docs/feishu.md 6.3).
const (
	chatRate = 5
	appRate  = 50
	maxChats = 10_000 // whose rate is remembered; the one unused for longest starts again
)

// chat makes the sends to a chat wait for each other, so that the pieces of one message are not
// mixed with those of the next.
type chat struct {
	rate *rate.Limiter
	turn *semaphore.Weighted // held by the send in progress
}

func (s *Sender) chat(id relay.ChatID) *chat {
	fresh := &chat{rate: rate.NewLimiter(chatRate, chatRate), turn: semaphore.NewWeighted(1)}
	if known, ok, _ := s.chats.PeekOrAdd(id, fresh); ok {
		s.chats.Get(id) // used just now
		return known
	}
	return fresh
}

// tagger returns what turns the "@Name"s of a text into at-tags (docs/feishu.md 5.1): those of the mentions, and of the
// bots in the Book if no mention has the name. A name of several, or of the bot itself, stays plain text.
func (s *Sender) tagger(mentions []relay.Mention) func(text string) string {
	self := s.book.Self().OpenID
	var all []mention.Agent
	add := func(id relay.OpenID, names ...string) {
		if id != "" && id != self {
			all = append(all, mention.Agent{ID: string(id), Names: names})
		}
	}
	for _, m := range mentions {
		id := m.OpenID
		if id == "" && m.AgentName != "" {
			bot, _ := s.book.Agent(m.AgentName, "", m.Name)
			id = bot.OpenID
		}
		add(id, m.Name, string(m.AgentName), m.Key)
	}
	given := mention.NewDirectory(all)
	for _, b := range s.book.Bots() {
		add(b.OpenID, slices.DeleteFunc([]string{b.Name, string(b.Agent)}, func(name string) bool {
			who, rest := given.Prefix(name)
			return who != "" && rest == ""
		})...)
	}
	named := mention.NewDirectory(all)
	return func(text string) string {
		var out strings.Builder
		end := 0
		for _, hit := range named.Plain(text) {
			if hit.Name != hit.Agent { // an open_id is not a name
				out.WriteString(text[end:hit.From])
				out.WriteString(content.Named{OpenID: relay.OpenID(hit.Agent), Name: hit.Name}.Tag())
				end = hit.To
			}
		}
		return out.String() + text[end:]
	}
}

// Counted is all that count gets:
//
//	sent          a piece was accepted
//	send_failed   a piece was not sent
//	rate_limited  Feishu asked to wait
//	retried       a piece was tried again after an error
//	reply_gone    the message to reply to is gone: sent to the chat instead
var Counted = []feishu.Counted{"sent", "send_failed", "rate_limited", "retried", "reply_gone"}
