// Package webhook is between Feishu, which posts events (docs/feishu.md 2), and
// a bot that receives them, and can post injected events to the bot. An event's path to the
// bot, and that of the bot's answer to Feishu, is event.go.
//
// A post is passed on byte for byte once it is proven to be Feishu's, by its
// signature, its token, or both, by the secrets of [Options]; an event that the
// tap replaces is encrypted and signed again. The bot's
// answer goes back to Feishu; without one Feishu gets 502 and posts
// again by its own schedule (docs/feishu.md 2.4). Feishu waits for 3 s. A bot may take
// longer, up to Options.Timeout: it gets the event once, since repeats are refused
// until it has answered, and are acknowledged and dropped after it has answered 200.
//
// # Hostile senders
//
// The port is open to the internet. A post with a wrong header is
// refused before its body is read; a body has limits of time and size, and all bodies
// share a budget of memory, in which the largest that is not verified makes room.
// Only a verified post counts among those that the bot works on. A signed timestamp may differ from the
// clock by at most an hour.
package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

const (
	// EventPath and CardPath are where Feishu posts.
	EventPath = "/webhook/event"
	CardPath  = "/webhook/card"

	maxPosts     = 256 // that the bot works on; one more is refused with 503, and Feishu posts it again
	maxInjecting = 256 // injected posts that the bot has not answered; one more fails with [conn.ErrBusy]
	// calls of the tap beyond feishu.AckHold, and follow-ups that wait; with as many an event passes without
	// the tap, or without its follow-up
	maxTasks  = 64
	warnFirst = 10               // posts that are refused as forged and logged one by one; later
	warnEvery = 10 * time.Second // one in this time is
)

// Options configures a server. What has no default here is required; of the two secrets one is.
type Options struct {
	conn.Options
	// BotURL is where the bot receives events and cards (BOT_WEBHOOK_URL).
	BotURL string
	// EncryptKey and VerificationToken are the app's (FEISHU_ENCRYPT_KEY,
	// FEISHU_VERIFICATION_TOKEN). Every post must match those that are set.
	EncryptKey, VerificationToken string
	// Timeout is how long the bot may take to answer; 0: 15 minutes. Feishu does not
	// wait for it: it repeats the event, which does not go to the bot again meanwhile.
	Timeout time.Duration
	// Client posts to the bot; nil: one that uses no proxy. Redirects are not
	// followed.
	Client *http.Client
	// Verified is called with the app of every verified event.
	Verified func(appID string)
}

// Server receives Feishu's posts. Its methods are safe for concurrent use.
type Server struct {
	Options
	bot    *url.URL
	client *http.Client
	tap    conn.Tap
	bodies budget
	warned rate.Sometimes
	away   atomic.Bool // the last post to the bot failed
	known  atomic.Bool // a post has reached the bot

	verifying  chan struct{} // one element for each body that is being verified
	posts      chan struct{} // one element for each of Feishu's posts that the bot works on
	injections *conn.Injections
}

// New makes a server. It starts nothing.
func New(o Options) (*Server, error) {
	bot, err := url.Parse(o.BotURL)
	if err != nil || bot.Host == "" || (bot.Scheme != "http" && bot.Scheme != "https") {
		return nil, errors.New("BOT_WEBHOOK_URL must be the http or https address of the bot's webhook")
	}
	if o.EncryptKey == "" && o.VerificationToken == "" {
		return nil, errors.New(
			"a webhook needs FEISHU_ENCRYPT_KEY or FEISHU_VERIFICATION_TOKEN, or anybody could post events")
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Minute
	}
	if o.Answered == nil {
		o.Answered = dedup.Memory(0)
	}
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{
			DisableCompression: true, MaxIdleConnsPerHost: maxPosts, IdleConnTimeout: time.Minute,
		}}
	}
	return &Server{
		Options: o, bot: bot, client: feishu.WithoutRedirects(o.Client),
		tap: conn.Tap{Options: o.Options, Default: feishu.Pass, Patience: feishu.AckHold, MaxSlow: maxTasks,
			MaxTasks: maxTasks, Workers: maxTasks, Load: new(conn.Load), Running: new(sync.WaitGroup)},
		bodies: budget{left: maxBodies, verified: maxVerified}, warned: rate.Sometimes{First: warnFirst, Interval: warnEvery},
		verifying: make(chan struct{}, maxVerify), posts: make(chan struct{}, maxPosts),
		injections: conn.NewInjections(maxInjecting, o.Counter, o.Logger),
	}, nil
}

// Connected reports whether the last post to the bot reached it, or none was
// tried yet.
func (s *Server) Connected() bool { return !s.away.Load() }

// Reached reports whether a post has reached the bot, the last one among them.
func (s *Server) Reached() bool { return s.known.Load() && !s.away.Load() }

// reached records whether a post reached the bot.
func (s *Server) reached(status int, err error) {
	away := err != nil || isAway(status)
	if !away {
		s.known.Store(true)
	}
	if s.away.Swap(away) != away {
		s.Logger.Info("the bot's webhook", "reached", !away)
	}
}

// isAway reports whether a status is that of a proxy whose bot cannot be reached.
func isAway(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout
}

// What a webhook counts, beside what package conn counts.
const (
	// the bot did not answer an event, and Feishu will post it again
	countedBotAway   feishu.Counted = "bot_away"
	countedChallenge feishu.Counted = "challenge" // Feishu verified the URL with a challenge
	countedForged    feishu.Counted = "forged"    // a post could not be verified
	// a post was larger than 1 MiB, or than 4 KiB without its signature
	countedTooLarge feishu.Counted = "too_large"
	// the body of a post did not arrive within 5 s, or had to make room for others
	countedTooSlow feishu.Counted = "too_slow"
	// a post was refused, since the bot works on 256, or the memory for bodies is full
	countedTooMany feishu.Counted = "too_many"
	// the follow-up of an event was not done when Feishu got its answer
	countedAfterLate feishu.Counted = "after_late"
)

// Counted is all that Options.Counter gets.
var Counted = slices.Concat(conn.Counted, []feishu.Counted{
	countedBotAway, countedChallenge, countedForged, countedTooLarge, countedTooSlow, countedTooMany, countedAfterLate,
})

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
