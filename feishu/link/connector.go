package link

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

// Reconnecting. Feishu proposes up to 150 s, in which a bot receives nothing and events wait for their second delivery;
// the pauses grow while connections keep breaking.
const (
	reconnectFirst = 1500 * time.Millisecond // about, after a connection that lasted
	reconnectMost  = 20 * time.Second
	lasted         = time.Minute
	refusedPause   = time.Minute // between attempts that only a person can make succeed
)

// Connector keeps a long connection to Feishu for a bot that has none. Its methods may be called from many goroutines.
type Connector struct {
	events           *Events
	count            func(feishu.Counted)
	base             string
	appID, appSecret string
	refused          func(error)
	client           *http.Client
	current          atomic.Pointer[link]
}

// NewConnector makes a connector of an app at base, which is FEISHU_BASE_URL without a path. Events are asked about one
// after another, in the order of their arrival; of Pass and Keep Feishu gets an acknowledgement. refused is called with
// a refusal that a person has to fix, and how. Nothing is connected before Run.
func NewConnector(base, appID, appSecret string, events *Events, refused func(error)) (*Connector, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("connector: FEISHU_BASE_URL must be an http or https URL")
	case appID == "" || appSecret == "":
		return nil, errors.New("connector: FEISHU_APP_ID and FEISHU_APP_SECRET are needed")
	}
	own := &Events{Tap: events.Tap, Undecided: feishu.Refuse, Answered: events.Answered, Logger: events.Logger,
		Counter: func(what feishu.Counted) { events.Counter(cmp.Or(connectorNames[what], what)) }}
	return &Connector{events: own, count: events.Counter, base: strings.TrimRight(base, "/"), appID: appID, appSecret: appSecret, refused: refused,
		// It follows no redirects, since clients of Feishu cannot rely on them for a POST (docs/feishu.md 7.1).
		client: feishu.WithoutRedirects(&http.Client{
			Transport: feishu.FindSilence(http.DefaultTransport.(*http.Transport).Clone())})}, nil
}

// Connected reports whether the long connection is up.
func (c *Connector) Connected() bool { return c.current.Load() != nil }

// Reconnect ends the long connection; another one is opened.
func (c *Connector) Reconnect() {
	if l := c.current.Load(); l != nil {
		l.end(deaf)
	}
}

// RefusedError is a refusal of the app's connection that no further attempt changes: a person has to fix it.
type RefusedError struct {
	Code int // of the answer, or its HTTP status
	Msg  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("Feishu refuses the connection: %s (code %d)", e.Msg, e.Code)
}

// Codes of the bootstrap's answer (docs/feishu.md 1.1).
const (
	codeAuthFailed   = larkws.AuthFailed
	codeConnLimit    = larkws.ExceedConnLimit
	codeNoCredential = 1000040344
	codeWrongDomain  = 1000040351 // a Feishu app at Lark, or the reverse
)

// fixDomain is how to fix codeWrongDomain.
const fixDomain = "set FEISHU_BASE_URL to https://open.larksuite.com for a Lark app, " +
	"https://open.feishu.cn for a Feishu app"

// Fix returns how to fix it.
func (e *RefusedError) Fix() string {
	switch e.Code {
	case codeConnLimit:
		return "another program holds connections of this app (at most 50): stop it"
	case codeWrongDomain:
		return fixDomain
	case codeNoCredential, codeAuthFailed, http.StatusForbidden:
		return "check FEISHU_APP_ID and FEISHU_APP_SECRET, and that the app is self-built and published"
	}
	return "check the app's events settings: long connection must be chosen"
}

// Run keeps the long connection open until ctx is done, and returns the error of ctx. If Feishu refuses the app, it
// tries again every minute.
//
// The frames are the SDK's, its client is not used: it answers every event of a type it has no handler for with 500, so
// that Feishu delivers it for 7 hours, handles events side by side, in any order, and can lose a fragment by it
// (docs/feishu.md 1.5, 1.6).
func (c *Connector) Run(ctx context.Context) error {
	pauses := wait.NewBackoff(reconnectFirst, reconnectMost)
	for ctx.Err() == nil {
		start := time.Now()
		err := c.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(start) >= lasted {
			pauses.Reset()
		}
		pause := pauses.Next()
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			pause = refusedPause
			c.count(Refused) // of the app, which a person has to fix
			c.events.Logger.Error("Feishu refused the long connection", "err", err, "fix", refused.Fix(),
				"again_in", pause.String())
			c.refused(fmt.Errorf("%w; %s", refused, refused.Fix()))
		} else {
			c.events.Logger.Warn("the long connection ended", "err", err, "again_in", pause.Round(time.Millisecond).String())
		}
		_ = wait.Sleep(ctx, pause)
	}
	return ctx.Err()
}

// connect opens one connection and carries its events until it ends.
func (c *Connector) connect(ctx context.Context) error {
	endpoint, config, err := c.bootstrap(ctx)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	_, ping, _ := shorten(config, 0) // without a config it is the default
	l := c.events.newLink(endpoint, c.appID, ping)
	defer l.drop()
	if resp, err := l.dial(ctx, c.client, endpoint); err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint.Host, handshakeError(resp, err))
	}
	c.current.Store(l)
	c.count(countedConnected)
	c.events.Logger.Info("the long connection is open", "host", endpoint.Host)
	defer func() {
		c.current.Store(nil)
		c.count(countedDisconnected)
	}()
	defer context.AfterFunc(ctx, func() { l.end(stopped) })()
	return l.run()
}

// bootstrap asks Feishu for the address of the connection (docs/feishu.md 1.1).
func (c *Connector) bootstrap(ctx context.Context) (endpoint *url.URL, config json.RawMessage, err error) {
	body, err := json.Marshal(larkws.BootstrapRequest{AppID: c.appID, AppSecret: c.appSecret})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+bootstrapPath, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Locale", "zh")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", larkcore.UserAgent(""))
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, nil, feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	if err != nil {
		return nil, nil, err
	}
	endpoint, config, err = parseEndpoint(answer)
	e, ok := errors.AsType[*feishu.CodeError](err)
	if ok && e.Code != larkws.SystemBusy && e.Code != larkws.InternalError {
		err = &RefusedError{e.Code, e.Msg}
	}
	return endpoint, config, err
}

// handshakeError is err, or the refusal in the header of Feishu's response (docs/feishu.md 1.2).
func handshakeError(resp *http.Response, err error) error {
	if resp == nil {
		return err
	}
	code, _ := strconv.Atoi(resp.Header.Get(larkws.HeaderHandshakeStatus))
	code = cmp.Or(code, resp.StatusCode)
	auth, _ := strconv.Atoi(resp.Header.Get(larkws.HeaderHandshakeAuthErrCode))
	msg := resp.Header.Get(larkws.HeaderHandshakeMsg)
	switch {
	case code == codeAuthFailed && auth == codeConnLimit:
		return &RefusedError{auth, msg}
	case code == http.StatusForbidden:
		return &RefusedError{code, msg}
	}
	return fmt.Errorf("handshake refused: %s (code %d)", msg, code)
}

// What a connector counts.
const (
	countedDisconnected feishu.Counted = "disconnected"  // a long connection ended
	countedEvent        feishu.Counted = "event"         // an event was acknowledged
	countedEventRefused feishu.Counted = "event_refused" // an event was not stored; Feishu delivers it again
	countedEventLate    feishu.Counted = "event_late"    // the tap took too long, Feishu delivers it again
)

// connectorNames are what a connector counts in the place of what is counted of events to a bot.
var connectorNames = map[feishu.Counted]feishu.Counted{Passed: countedEvent, Kept: countedEvent,
	Refused: countedEventRefused, TapSkipped: countedEventRefused, TapSlow: countedEventLate}

// CountedByConnector is all that the Counter of a Connector's Events gets.
var CountedByConnector = []feishu.Counted{countedConnected, countedDisconnected, Refused, countedEvent,
	countedEventRefused, countedEventLate, countedBadFrame, countedUpstreamClosed, countedSilent, countedDeaf, countedStopped,
	TapPanicked}
