// Package connector keeps a long connection to Feishu for a bot that does not speak Feishu's protocol.
//
// [Connector.Run] keeps it open and asks a tap about each event, which stores it; Feishu gets an
// acknowledgement for each event that the tap took, of any type. Package send sends the bot's messages.
package connector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
	"feishu-relay/internal/wait"
)

// Options are the app of the connection and the receiver of its events. All are required.
type Options struct {
	BaseURL          string // FEISHU_BASE_URL, without a path
	AppID, AppSecret string

	// Tap sees every event, as the JSON of its envelope. For Pass or Keep the event
	// is acknowledged; Refuse makes Feishu deliver it
	// again. Tap is called for one event after another, in the order of their
	// arrival, unless it takes longer than [feishu.AckHold]. A panic refuses.
	Tap func(event []byte) feishu.Verdict

	Logger  *slog.Logger
	Counter func(feishu.Counted) // its values are in Counted
	Refused func(error)          // called with a refusal that a person has to fix, and how; may be nil
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

// maxSlow is how many calls of the tap may be slow at a time; then further events are refused
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
		client: feishu.WithoutRedirects(&http.Client{
			Transport: feishu.FindSilence(http.DefaultTransport.(*http.Transport).Clone()),
		}),
	}
	c.tap = conn.Tap{Default: feishu.Refuse, Patience: feishu.AckHold, MaxSlow: maxSlow, Load: new(conn.Load),
		Running: new(sync.WaitGroup),
		Options: conn.Options{
			Tap:    func(event []byte) (feishu.Verdict, []byte, func()) { return opts.Tap(event), nil, nil },
			Logger: opts.Logger,
			Counter: func(what feishu.Counted) {
				switch what {
				case conn.TapSlow:
					opts.Counter(countedEventLate)
				case conn.TapSkipped:
					opts.Counter(countedEventRefused)
				}
			},
		}}
	return c, nil
}

// Connected reports whether the long connection is up.
func (c *Connector) Connected() bool { return c.connected.Load() }

// RefusedError is a refusal of the app's connection that no
// further attempt changes: a person has to fix it.
type RefusedError struct {
	Code int // of the answer, or its HTTP status
	Msg  string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("Feishu refuses the connection: %s (code %d)", e.Msg, e.Code)
}

// Fix returns how to fix it.
func (e *RefusedError) Fix() string {
	switch e.Code {
	case codeConnLimit:
		return "another program holds connections of this app (at most 50): stop it"
	case conn.CodeWrongDomain:
		return conn.FixDomain
	case codeNoCredential, codeAuthFailed, http.StatusForbidden:
		return "check FEISHU_APP_ID and FEISHU_APP_SECRET, and that the app is self-built and published"
	}
	return "check the app's events settings: long connection must be chosen"
}

// Codes of the bootstrap's answer (docs/feishu.md 1.1).
const (
	codeAuthFailed   = larkws.AuthFailed
	codeConnLimit    = larkws.ExceedConnLimit
	codeNoCredential = 1000040344
)

// Reconnecting. Feishu proposes up to 150 s, in which a bot receives nothing and events
// wait for their second delivery; the pauses grow while connections keep breaking.
const (
	reconnectFirst = 1500 * time.Millisecond // about, after a connection that lasted
	reconnectMost  = 20 * time.Second
	lasted         = time.Minute

	pingDefault  = 2 * time.Minute
	pingShortest = time.Second
	pingLongest  = time.Hour
	silenceGrace = 10 * time.Second // beyond two pings, as the SDK has it
)

// Run keeps the long connection open until ctx is done, and returns the error of ctx.
// If Feishu refuses the app, it tries again every minute.
//
// The frames are the SDK's, its client is not used: it answers every event of a
// type it has no handler for with 500, so that Feishu delivers it for 7 hours,
// handles events side by side, in any order, and can lose a fragment by it
// (docs/feishu.md 1.5, 1.6).
func (c *Connector) Run(ctx context.Context) error {
	pauses := wait.NewBackoff(reconnectFirst, reconnectMost)
	pause := time.Duration(0)
	for ; ctx.Err() == nil; _ = wait.Sleep(ctx, pause) {
		start := time.Now()
		err := c.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			c.opts.Counter(countedRefused)
			c.opts.Logger.Error("Feishu refused the long connection", "err", err, "mend", refused.Fix(),
				"again_in", c.refused.String())
			if c.opts.Refused != nil {
				c.opts.Refused(fmt.Errorf("%w; %s", refused, refused.Fix()))
			}
			pause = c.refused
			continue
		}
		if time.Since(start) >= lasted {
			pauses.Reset()
		}
		pause = pauses.Next()
		c.opts.Logger.Warn("the long connection ended", "err", err, "again_in", pause.Round(time.Millisecond).String())
	}
	<-ctx.Done()
	return ctx.Err()
}

// connect opens one connection and reads it until it ends.
func (c *Connector) connect(ctx context.Context) error {
	endpoint, err := c.bootstrap(ctx)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	ws, err := c.dial(ctx, endpoint.URL)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint.URL.Host, err)
	}
	defer ws.CloseNow() //nolint:errcheck // it has ended
	c.connected.Store(true)
	c.opts.Counter(countedConnected)
	c.opts.Logger.Info("the long connection is open", "host", endpoint.URL.Host)
	defer func() {
		c.connected.Store(false)
		c.opts.Counter(countedDisconnected)
	}()
	s := &session{c: c, ws: ws, service: conn.ServiceID(endpoint.URL)}
	s.ping.Store(int64(pingDefault))
	s.pieces.Dropped = func([][]byte) {
		c.opts.Counter(countedBadFrame)
		c.opts.Logger.Warn("an incomplete event was dropped; Feishu delivers it again")
	}
	s.configure(endpoint.Config)
	return s.run(ctx)
}

// bootstrap asks Feishu for the address of the connection (docs/feishu.md 1.1).
func (c *Connector) bootstrap(ctx context.Context) (endpoint conn.Endpoint, err error) {
	body, err := json.Marshal(larkws.BootstrapRequest{AppID: c.opts.AppID, AppSecret: c.opts.AppSecret})
	if err != nil {
		return endpoint, err
	}
	ctx, cancel := context.WithTimeout(ctx, conn.CallTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.opts.BaseURL+conn.BootstrapPath, bytes.NewReader(body))
	if err != nil {
		return endpoint, err
	}
	req.Header.Set("Locale", "zh")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", larkcore.UserAgent(""))
	resp, err := c.client.Do(req)
	if err != nil {
		return endpoint, feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, conn.MaxAnswer))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	if err != nil {
		return endpoint, err
	}
	endpoint, err = conn.ParseEndpoint(answer)
	e, ok := errors.AsType[*feishu.CodeError](err)
	if ok && e.Code != larkws.SystemBusy && e.Code != larkws.InternalError {
		err = &RefusedError{e.Code, e.Msg}
	}
	return endpoint, err
}

// dial opens the WebSocket; a refusal is read from its headers (docs/feishu.md 1.2).
func (c *Connector) dial(ctx context.Context, endpoint *url.URL) (*websocket.Conn, error) {
	ws, resp, err := conn.Dial(ctx, c.client, endpoint, nil)
	if resp == nil {
		return ws, err
	}
	code, _ := strconv.Atoi(resp.Header.Get(larkws.HeaderHandshakeStatus))
	code = cmp.Or(code, resp.StatusCode)
	auth, _ := strconv.Atoi(resp.Header.Get(larkws.HeaderHandshakeAuthErrCode))
	msg := resp.Header.Get(larkws.HeaderHandshakeMsg)
	switch {
	case code == codeAuthFailed && auth == codeConnLimit:
		return nil, &RefusedError{auth, msg}
	case code == http.StatusForbidden:
		return nil, &RefusedError{code, msg}
	}
	return nil, fmt.Errorf("handshake refused: %s (code %d)", msg, code)
}

// session is one open connection. Its frames are read one by one, so that the
// events of a chat keep their order.
type session struct {
	c       *Connector
	ws      *websocket.Conn
	service int32
	ping    atomic.Int64 // a time.Duration
	pieces  conn.Pieces
}

// configure reads the settings that Feishu sends, if there are any. Only the ping interval is used; an
// invalid one is the default.
func (s *session) configure(config []byte) {
	var settings larkws.ClientConfig
	if json.Unmarshal(config, &settings) != nil {
		return
	}
	every := time.Duration(settings.PingInterval) * time.Second
	if every < pingShortest || every > pingLongest {
		every = pingDefault
	}
	s.ping.Store(int64(every))
}

// run reads the connection until it ends, and returns why.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var pings sync.WaitGroup
	pings.Go(func() { cancel(s.pings(ctx)) })
	cancel(s.read(ctx))
	_ = s.ws.CloseNow() // a ping that is being written ends
	pings.Wait()
	return context.Cause(ctx)
}

// pings writes a ping at once and then at the interval that Feishu wants.
func (s *session) pings(ctx context.Context) error {
	ping, err := larkws.NewPingFrame(s.service).Marshal()
	for err == nil {
		if err = conn.Write(s.ws, websocket.MessageBinary, ping); err == nil {
			err = wait.Sleep(ctx, time.Duration(s.ping.Load()))
		}
	}
	return err
}

// read handles one frame after another. A connection that is silent for two pings is dead.
func (s *session) read(ctx context.Context) error {
	for {
		quiet, cancel := context.WithTimeoutCause(ctx, 2*time.Duration(s.ping.Load())+silenceGrace,
			errors.New("nothing came from Feishu for two pings"))
		kind, data, err := s.ws.Read(quiet)
		silent := context.Cause(quiet)
		cancel()
		if err != nil {
			return cmp.Or(silent, err)
		}
		f, ok := conn.ParseFrame(data)
		switch {
		case !ok || kind != websocket.MessageBinary:
			s.c.opts.Counter(countedBadFrame)
		case f.IsPong():
			s.configure(f.Payload)
		case f.IsData():
			err = s.event(f)
		}
		if err != nil {
			return err
		}
	}
}

// event handles a frame of an event. With the last one it asks the tap and acknowledges the event to Feishu.
func (s *session) event(f *conn.Frame) error {
	start := time.Now()
	frames, event, ok := s.pieces.Add(f)
	if !ok {
		s.c.opts.Counter(countedBadFrame)
		s.c.opts.Logger.Warn("dropped a frame of Feishu's that does not belong to its event")
	}
	if frames == nil {
		return nil
	}
	code := http.StatusInternalServerError // Feishu delivers the event again
	switch d := s.c.tap.Ask(event); {
	case d.Verdict != feishu.Refuse:
		s.c.opts.Counter(countedEvent)
		code = http.StatusOK
	case d.Seen:
		s.c.opts.Counter(countedEventRefused)
	}
	ack, err := f.With(fmt.Appendf(nil, `{"code":%d,"headers":null,"data":null}`, code), // docs/feishu.md 1.6
		larkws.Header{Key: larkws.HeaderBizRt, Value: strconv.FormatInt(time.Since(start).Milliseconds(), 10)})
	if err != nil {
		return err
	}
	return conn.Write(s.ws, websocket.MessageBinary, ack)
}

// What a connector counts.
const (
	countedConnected    feishu.Counted = "connected"     // a long connection was opened
	countedDisconnected feishu.Counted = "disconnected"  // a long connection ended
	countedRefused      feishu.Counted = "refused"       // Feishu refused the app, which a person has to fix
	countedEvent        feishu.Counted = "event"         // an event was acknowledged
	countedEventRefused feishu.Counted = "event_refused" // an event was not stored; Feishu delivers it again
	countedEventLate    feishu.Counted = "event_late"    // the tap took too long, Feishu delivers it again
	// an invalid frame or piece of an event, or an event with missing pieces
	countedBadFrame feishu.Counted = "bad_frame"
)

// Counted is all that Options.Counter gets.
var Counted = []feishu.Counted{
	countedConnected, countedDisconnected, countedRefused, countedEvent, countedEventRefused,
	countedEventLate, countedBadFrame,
}
