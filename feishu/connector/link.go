package connector

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
	"time"

	"github.com/coder/websocket"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
)

// Codes of the bootstrap's answer (docs/feishu.md 1.1).
const (
	codeAuthFailed   = larkws.AuthFailed
	codeConnLimit    = larkws.ExceedConnLimit
	codeNoCredential = 1000040344
	codeWrongDomain  = 1000040351
)

// Reconnecting. Feishu proposes up to 150 s, in which a bot is deaf and events
// wait for their second delivery; a link that keeps breaking is tried again
// ever more slowly.
const (
	reconnectFirst = 1500 * time.Millisecond // about, after a link that lasted
	reconnectMost  = 20 * time.Second
	lasted         = time.Minute
)

// Run keeps the long connection up until ctx is done, whose error it returns.
// An app that Feishu refuses is tried again every minute.
//
// The frames are the SDK's, its client is not used: it answers every event of a
// type it has no handler for with 500, so that Feishu delivers it for 7 hours,
// handles events side by side, in any order, and can lose a fragment by it
// (docs/feishu.md 1.5, 1.6).
func (c *Connector) Run(ctx context.Context) error {
	pauses := wait.NewBackoff(reconnectFirst, reconnectMost)
	pause := time.Duration(0)
	for ; ctx.Err() == nil && !c.opts.WebhookOnly; _ = wait.Sleep(ctx, pause) {
		start := time.Now()
		err := c.connect(ctx)
		if ctx.Err() != nil {
			break
		}
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			c.opts.Counter("refused")
			c.log.Error("Feishu refuses the long connection", "err", err, "mend", refused.Mend(), "again_in", c.times.refused)
			pause = c.times.refused
			continue
		}
		if time.Since(start) >= lasted {
			pauses.Reset()
		}
		pause = pauses.Next()
		c.log.Warn("the long connection ended", "err", err, "again_in", pause)
	}
	<-ctx.Done()
	return ctx.Err()
}

// connect opens one connection and serves it until it ends.
func (c *Connector) connect(ctx context.Context) error {
	endpoint, conf, err := c.bootstrap(ctx)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	service, _ := strconv.ParseInt(endpoint.Query().Get(larkws.ServiceID), 10, 32) // absent is 0
	conn, err := c.dial(ctx, endpoint)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint.Host, err)
	}
	defer conn.CloseNow() //nolint:errcheck // it has ended

	c.connected.Store(true)
	c.opts.Counter("connected")
	c.log.Info("the long connection is up", "host", endpoint.Host)
	defer func() {
		c.connected.Store(false)
		c.opts.Counter("disconnected")
	}()
	s := newSession(c, conn, int32(service))
	s.configure(conf)
	return s.serve(ctx)
}

// bootstrap asks where to connect (docs/feishu.md 1.1).
func (c *Connector) bootstrap(ctx context.Context) (*url.URL, larkws.ClientConfig, error) {
	var conf larkws.ClientConfig
	body, err := json.Marshal(larkws.BootstrapRequest{AppID: c.opts.AppID, AppSecret: c.opts.AppSecret})
	if err != nil {
		return nil, conf, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.opts.BaseURL+larkws.GenEndpointUri,
		bytes.NewReader(body))
	if err != nil {
		return nil, conf, err
	}
	req.Header.Set("Locale", "zh")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", larkcore.UserAgent(""))
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, conf, feishu.WithoutURL(err)
	}
	defer resp.Body.Close()
	var answer larkws.EndpointResp
	err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer)
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, conf, fmt.Errorf("HTTP status %d, code %d", resp.StatusCode, answer.Code)
	case err != nil:
		return nil, conf, errors.New("the answer is no JSON")
	}
	switch answer.Code {
	case larkws.OK:
	case larkws.SystemBusy, larkws.InternalError:
		return nil, conf, fmt.Errorf("%s (code %d)", cmp.Or(answer.Msg, "system busy"), answer.Code)
	default:
		return nil, conf, &RefusedError{Code: answer.Code, Msg: answer.Msg}
	}
	if answer.Data == nil {
		return nil, conf, errors.New("the answer names no address")
	}
	if answer.Data.ClientConfig != nil {
		conf = *answer.Data.ClientConfig
	}
	endpoint, err := url.Parse(answer.Data.Url)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "wss" && endpoint.Scheme != "ws" {
		return nil, conf, errors.New("the answer names no WebSocket address")
	}
	return endpoint, conf, nil
}

// dial opens the WebSocket; a refusal is read from its headers (docs/feishu.md 1.2).
func (c *Connector) dial(ctx context.Context, endpoint *url.URL) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, endpoint.String(), &websocket.DialOptions{HTTPClient: c.client})
	if err == nil {
		conn.SetReadLimit(maxMessage)
		return conn, nil
	}
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, feishu.WithoutURL(err)
	}
	code, _ := strconv.Atoi(resp.Header.Get(larkws.HeaderHandshakeStatus))
	code = cmp.Or(code, resp.StatusCode)
	auth, _ := strconv.Atoi(resp.Header.Get(larkws.HeaderHandshakeAuthErrCode))
	msg := resp.Header.Get(larkws.HeaderHandshakeMsg)
	switch {
	case code == codeAuthFailed && auth == codeConnLimit:
		return nil, &RefusedError{Code: auth, Msg: msg}
	case code == http.StatusForbidden:
		return nil, &RefusedError{Code: code, Msg: msg}
	}
	return nil, fmt.Errorf("handshake refused: %s (code %d)", msg, code)
}
