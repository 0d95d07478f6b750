// Package connector holds a bot's Feishu connection for it: the third way to
// join a bot to its sidecar, for bots that know no Feishu.
//
// [Connector.Run] keeps the long connection up and hands each event to a tap,
// which stores it; Feishu gets its acknowledgement for what the tap took, of
// whatever type. [Connector.Send] sends the bot's answers: as text or as a post
// where they hold markdown, with real mentions in place of "@Name", cut into
// pieces that Feishu takes, not faster than it allows, and not twice.
//
// # Counters
//
// Options.Counter is called with one of
//
//	connected      a long connection was opened
//	disconnected   it ended
//	refused        Feishu refused the app, which somebody has to mend
//	event          an event was acknowledged
//	event_refused  an event was not stored; Feishu delivers it again
//	event_late     the tap took too long, Feishu delivers it again
//	bad_frame      a frame or fragment that makes no sense, or a fragment too many
//	sent           a piece was accepted
//	send_failed    a piece was given up
//	rate_limited   Feishu asked to wait
//	retried        a piece was tried again after an error
//	reply_gone     the message to reply to is gone: sent to the chat instead
package connector

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"

	"feishu-relay/feishu"
)

// Options say whose connection is held, and who gets its events.
type Options struct {
	BaseURL          string // FEISHU_BASE_URL, without a path
	AppID, AppSecret string

	// Tap sees every event, as the JSON of its envelope. What it answers with
	// Pass or Keep is on disk and acknowledged; Refuse makes Feishu deliver it
	// again. It is called for one event after another, in the order of their
	// arrival, unless it is slower than Feishu waits. A panic refuses.
	Tap func(event []byte) feishu.Verdict

	// Book knows the bots that can be mentioned, and learns of chats.
	Book *feishu.Book

	// WebhookOnly opens no long connection: events come by webhook, and only
	// Send is used.
	WebhookOnly bool

	Logger  *slog.Logger       // nil discards
	Counter func(event string) // nil counts nothing; see the package comment
}

// Connector is a bot's connection to Feishu. Its methods may be called from
// many goroutines.
type Connector struct {
	opts      Options
	log       *slog.Logger
	client    *http.Client     // bootstrap and WebSocket
	api       *larkcore.Config // the calls of the REST API
	tokens    atomic.Int64     // part of the SDK's cache key: a refused token is not used again
	limits    *limits
	connected atomic.Bool
	taps      chan struct{} // a slot for each tap that is running
	times     times
}

// times are the waits that tests shorten.
type times struct {
	answer  time.Duration // until an event that is not stored yet is refused
	refused time.Duration // between attempts that only a person can make succeed
	backoff time.Duration // before the first further attempt; doubles
}

// maxTaps is how many late taps may still run before further events are refused
// at once.
const maxTaps = 64

// maxAnswer bounds the answer to a call; a longer one is cut and unreadable.
const maxAnswer = 4 << 20

// callTime bounds one call, the bootstrap and the WebSocket handshake too.
const callTime = 15 * time.Second

// New checks opts; nothing is connected before Run.
func New(opts Options) (*Connector, error) {
	base, err := url.Parse(opts.BaseURL)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		return nil, errors.New("connector: FEISHU_BASE_URL must be an http or https URL")
	case opts.AppID == "" || opts.AppSecret == "":
		return nil, errors.New("connector: FEISHU_APP_ID and FEISHU_APP_SECRET are needed")
	case opts.Tap == nil || opts.Book == nil:
		return nil, errors.New("connector: no tap or no book")
	}
	opts.BaseURL = strings.TrimRight(opts.BaseURL, "/")
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Counter == nil {
		opts.Counter = func(string) {}
	}
	c := &Connector{
		opts:   opts,
		log:    opts.Logger,
		client: newClient(),
		limits: newLimits(),
		taps:   make(chan struct{}, maxTaps),
		times:  times{answer: feishu.AckHold, refused: time.Minute, backoff: 500 * time.Millisecond},
	}
	c.api = newAPI(opts, c.client)
	return c, nil
}

// newClient follows no redirects, since clients of Feishu cannot rely on them
// for a POST (docs/feishu.md 7.1).
func newClient() *http.Client {
	return &http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Connected reports whether the long connection is up. Without one it is
// always true.
func (c *Connector) Connected() bool { return c.opts.WebhookOnly || c.connected.Load() }

// RefusedError is an answer of Feishu to the app's attempt to connect that no
// further attempt changes: somebody has to mend it.
type RefusedError struct {
	Code int // of the answer, or its HTTP status
	Msg  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("Feishu refuses the connection: %s (code %d)", e.Msg, e.Code)
}

// Mend says what to do about it.
func (e *RefusedError) Mend() string {
	switch e.Code {
	case codeConnLimit:
		return "another program holds connections of this app (at most 50): stop it"
	case codeWrongDomain:
		return "set FEISHU_BASE_URL to https://open.larksuite.com for a Lark app, https://open.feishu.cn for a Feishu app"
	case codeNoCredential, codeAuthFailed, http.StatusForbidden:
		return "check FEISHU_APP_ID and FEISHU_APP_SECRET, and that the app is self-built and published"
	}
	return "check the app's events settings: long connection must be chosen"
}
