package link

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

// Reconnecting. Feishu proposes up to 150 s, in which a bot receives nothing and events wait for their second
// delivery; the pauses grow while connections keep breaking.
const (
	reconnectFirst = 1500 * time.Millisecond // about, after a connection that lasted
	reconnectMost  = 20 * time.Second
	lasted         = time.Minute
	refusedPause   = time.Minute // between attempts that only a person can make succeed
)

// Connector keeps a long connection to Feishu for a bot that has none. Its methods may be called from many goroutines.
type Connector struct {
	events  *Events
	count   func(feishu.Counted)
	base    *url.URL
	app     larkws.BootstrapRequest
	refused func(error)
	client  *http.Client
	current atomic.Pointer[link]
}

// NewConnector makes a connector of an app at base, which is FEISHU_BASE_URL. Events are asked about one after
// another, in the order of their arrival; of Pass and Keep Feishu gets an acknowledgement. refused is called with a
// refusal that a person has to fix, and how. Nothing is connected before Run.
func NewConnector(base *url.URL, appID, appSecret string, events *Events, refused func(error)) *Connector {
	own := &Events{Tap: events.Tap, Undecided: refuse, Answered: events.Answered, Logger: events.Logger,
		Counter: func(what feishu.Counted) { events.Counter(cmp.Or(connectorNames[what], what)) }}
	return &Connector{events: own, count: events.Counter, base: base, refused: refused,
		app: larkws.BootstrapRequest{AppID: appID, AppSecret: appSecret},
		// It follows no redirects, since clients of Feishu cannot rely on them for a POST (docs/feishu.md 7.1).
		client: feishu.WithoutRedirects(&http.Client{
			Transport: feishu.FindSilence(http.DefaultTransport.(*http.Transport).Clone())})}
}

func refuse([]byte) (feishu.Verdict, []byte) { return feishu.Refuse, nil }

// Connected reports whether the long connection is up.
func (c *Connector) Connected() bool { return c.current.Load() != nil }

// Codes of the bootstrap's answer (docs/feishu.md 1.1).
const (
	codeNoCredential = 1000040344
	codeWrongDomain  = 1000040351 // a Feishu app at Lark, or the reverse
)

// fixDomain is how to fix codeWrongDomain.
const fixDomain = "set FEISHU_BASE_URL to https://open.larksuite.com for a Lark app, " +
	"https://open.feishu.cn for a Feishu app"

// fixOf returns how a person fixes a refusal of the app's connection, which no further attempt changes; "": err is
// none.
func fixOf(err error) string {
	switch feishu.CodeOf(err) {
	case 0, larkws.SystemBusy, larkws.InternalError:
		return ""
	case larkws.ExceedConnLimit:
		return "another program holds connections of this app (at most 50): stop it"
	case codeWrongDomain:
		return fixDomain
	case codeNoCredential, larkws.AuthFailed, http.StatusForbidden:
		return "check FEISHU_APP_ID and FEISHU_APP_SECRET, and that the app is self-built and published"
	}
	return "check the app's events settings: long connection must be chosen"
}

// Run keeps the long connection open until ctx is done, and returns the error of ctx. If Feishu refuses the app, it
// tries again every minute.
//
// The frames are the SDK's, its client is not used: it answers every event of a type it has no handler for with 500,
// so that Feishu delivers it for 7 hours, handles events side by side, in any order, and can lose a fragment by it
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
		if fix := fixOf(err); fix != "" {
			pause = refusedPause
			c.count("refused")
			c.events.Logger.Error("Feishu refused the long connection", "err", err, "fix", fix, "again_in", pause.String())
			c.refused(fmt.Errorf("%w; %s", err, fix))
		} else {
			c.events.Logger.Warn("the long connection ended", "err", err, "again_in", pause.Round(time.Millisecond).String())
		}
		_ = wait.Sleep(ctx, pause)
	}
	return ctx.Err()
}

// bootstrap makes the call that returns the address of a long connection (docs/feishu.md 1.1).
func (c *Connector) bootstrap(ctx context.Context) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, _ := json.Marshal(c.app) // it never fails for texts
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(larkws.GenEndpointUri).String(),
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Locale": {"zh"}, "Content-Type": {"application/json"},
		"User-Agent": {larkcore.UserAgent("")}}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
}

// connect opens one connection and carries its events until it ends.
func (c *Connector) connect(ctx context.Context) error {
	answer, err := c.bootstrap(ctx)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	endpoint, config, err := parseEndpoint(answer)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	_, ping, _ := shorten(config, 0) // without a config it is the default
	l := c.events.newLink(endpoint, c.app.AppID, ping)
	defer l.cut()
	if resp, err := l.dial(ctx, c.client, endpoint); err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint.Host, handshakeError(resp, err))
	}
	c.current.Store(l)
	c.count("connected")
	c.events.Logger.Info("the long connection is open", "host", endpoint.Host)
	defer func() {
		c.current.Store(nil)
		c.count("disconnected")
	}()
	defer context.AfterFunc(ctx, func() { l.end(stopped) })()
	return l.run()
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
	case code == larkws.AuthFailed && auth == larkws.ExceedConnLimit:
		return &feishu.CodeError{Code: auth, Msg: msg}
	case code == http.StatusForbidden:
		return &feishu.CodeError{Code: code, Msg: msg}
	}
	return fmt.Errorf("handshake refused: %s (code %d)", msg, code)
}

// connectorNames are what a connector counts in the place of what is counted of events to a bot.
var connectorNames = map[feishu.Counted]feishu.Counted{"passed": "event", "kept": "event", "refused": "event_refused",
	"untapped": "event_refused", "tap_slow": "event_late"}
