// Package connector keeps the long connection to Feishu of a bot that knows no Feishu.
//
// [Connector.Run] keeps it up and asks a tap about each event, which stores it; Feishu gets its
// acknowledgement for what the tap took, of whatever type. What the bot says goes out by package send.
package connector

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
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

	Logger  *slog.Logger
	Counter func(feishu.Counted) // its values are in Counted
}

// Connector is a bot's connection to Feishu. Its methods may be called from
// many goroutines.
type Connector struct {
	opts      Options
	client    *http.Client
	connected atomic.Bool
	tap       conn.Tap
	refused   time.Duration // between attempts that only a person can make succeed
}

// maxSlow is how many calls of the tap may be slow before further events are refused
// at once.
const maxSlow = 64

// New checks opts; nothing is connected before Run.
func New(opts Options) (*Connector, error) {
	base, err := url.Parse(opts.BaseURL)
	switch {
	case err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		return nil, errors.New("connector: FEISHU_BASE_URL must be an http or https URL")
	case opts.AppID == "" || opts.AppSecret == "":
		return nil, errors.New("connector: FEISHU_APP_ID and FEISHU_APP_SECRET are needed")
	case opts.Tap == nil:
		return nil, errors.New("connector: no tap")
	}
	opts.BaseURL = strings.TrimRight(opts.BaseURL, "/")
	c := &Connector{
		opts:    opts,
		refused: time.Minute,
		// It follows no redirects, since clients of Feishu cannot rely on them for a POST (docs/feishu.md 7.1).
		client: &http.Client{
			Transport:     feishu.FindSilence(http.DefaultTransport.(*http.Transport).Clone()),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	c.tap = conn.Tap{
		Decide:  func(event []byte) (feishu.Verdict, []byte, func()) { return opts.Tap(event), nil, nil },
		Default: feishu.Refuse, Patience: feishu.AckHold, MaxSlow: maxSlow, Load: new(conn.Load), Log: opts.Logger,
		Running: new(sync.WaitGroup),
		Report: func(what feishu.Counted) {
			switch what {
			case conn.TapSlow:
				opts.Counter(countedEventLate)
			case conn.TapSkipped:
				opts.Counter(countedEventRefused)
			}
		},
	}
	return c, nil
}

// Connected reports whether the long connection is up.
func (c *Connector) Connected() bool { return c.connected.Load() }

// RefusedError is an answer of Feishu to the app's attempt to connect that no
// further attempt changes: somebody has to fix it.
type RefusedError struct {
	Code int // of the answer, or its HTTP status
	Msg  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("Feishu refuses the connection: %s (code %d)", e.Msg, e.Code)
}

// Fix says what to do about it.
func (e *RefusedError) Fix() string {
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
