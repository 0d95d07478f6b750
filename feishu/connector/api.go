package connector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"

	"feishu-relay/feishu"
)

// newAPI prepares the SDK's calls, which bring their own tokens. The services
// of the SDK are left out: two calls need none of them.
func newAPI(opts Options, client *http.Client) *larkcore.Config {
	conf := &larkcore.Config{
		BaseUrl:          opts.BaseURL,
		AppId:            opts.AppID,
		AppSecret:        opts.AppSecret,
		AppType:          larkcore.AppTypeSelfBuilt,
		EnableTokenCache: true,
		HttpClient:       doer{client},
		Logger:           sdkLog{opts.Logger},
	}
	larkcore.NewSerialization(conf)
	return conf
}

// doer bounds the SDK's calls, and keeps URLs out of its errors.
type doer struct{ client *http.Client }

func (d doer) Do(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), callTime)
	resp, err := d.client.Do(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, feishu.WithoutURL(err)
	}
	resp.Body = body{io.LimitReader(resp.Body, maxAnswer), resp.Body, cancel}
	return resp, nil
}

// body ends its call's time when it is closed.
type body struct {
	io.Reader
	io.Closer
	cancel context.CancelFunc
}

func (b body) Close() error {
	defer b.cancel()
	return b.Closer.Close()
}

// sdkLog takes what the SDK logs: its errors come back to the caller, too.
type sdkLog struct{ log *slog.Logger }

func (l sdkLog) say(ctx context.Context, args []any) { l.log.DebugContext(ctx, fmt.Sprint(args...)) }

func (l sdkLog) Debug(ctx context.Context, args ...any) { l.say(ctx, args) }
func (l sdkLog) Info(ctx context.Context, args ...any)  { l.say(ctx, args) }
func (l sdkLog) Warn(ctx context.Context, args ...any)  { l.say(ctx, args) }
func (l sdkLog) Error(ctx context.Context, args ...any) { l.say(ctx, args) }

// Codes of answers to a send (docs/feishu.md 6.2).
const (
	codeRecalled   = 230011
	codeFrequency  = 230020
	codeStillSent  = 230049
	codeDeleted    = 230110
	codeTargetGone = 231003
	codeGateway    = 99991400
)

// codesToken say that the token is not valid, or no longer.
var codesToken = []int{99991663, 99991668, 99991671}

// limitedError is Feishu's wish to be asked later.
type limitedError struct {
	after time.Duration // 0: it did not say
	err   error
}

func (e *limitedError) Error() string { return e.err.Error() }
func (e *limitedError) Unwrap() error { return e.err }

// passingError is one that may be gone at the next attempt.
type passingError struct{ err error }

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

// call makes one call to send a message, and sorts its failure.
func (c *Connector) call(ctx context.Context, req *larkcore.ApiReq) (feishu.Message, error) {
	req.HttpMethod = http.MethodPost
	req.SupportedAccessTokenTypes = []larkcore.AccessTokenType{larkcore.AccessTokenTypeTenant}
	epoch := c.tokens.Load()
	resp, err := larkcore.Request(ctx, req, c.api, larkcore.WithTenantKey(strconv.FormatInt(epoch, 10)))
	if err != nil {
		if code, ok := errors.AsType[larkcore.CodeError](err); ok { // of the token
			err := &feishu.CodeError{Code: code.Code, Msg: code.Msg}
			if code.Code == codeGateway {
				return feishu.Message{}, &limitedError{err: err}
			}
			return feishu.Message{}, err
		}
		return feishu.Message{}, &passingError{fmt.Errorf("no usable answer from Feishu: %w", err)}
	}
	m, err := answer(resp)
	if code, ok := errors.AsType[*feishu.CodeError](err); ok && slices.Contains(codesToken, code.Code) {
		c.tokens.CompareAndSwap(epoch, epoch+1)
		err = &passingError{err}
	}
	return m, err
}

// answer reads Feishu's answer to a send.
func answer(resp *larkcore.ApiResp) (feishu.Message, error) {
	m, err := feishu.ParseSent(resp.RawBody)
	var code int
	if e, ok := errors.AsType[*feishu.CodeError](err); ok {
		code = e.Code
	} else if err != nil {
		err = fmt.Errorf("HTTP status %d: %w", resp.StatusCode, err)
	}
	switch {
	case err == nil && m.ID == "":
		return m, errors.New("accepted, but the answer names no message")
	case err == nil:
		return m, nil
	case resp.StatusCode == http.StatusTooManyRequests, code == codeFrequency, code == codeGateway:
		return m, &limitedError{reset(resp.Header), err}
	case resp.StatusCode >= http.StatusInternalServerError, code == codeStillSent:
		return m, &passingError{err}
	}
	return m, err
}

// reset is how long Feishu wants to be left alone, in seconds; 0: not said.
func reset(header http.Header) time.Duration {
	s, err := strconv.ParseFloat(strings.TrimSpace(header.Get("X-Ogw-Ratelimit-Reset")), 64)
	if err != nil || s <= 0 || s > pieceTime.Seconds() {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}
