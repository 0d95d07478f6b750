package feishu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// callTimeout is how long one call may take.
	callTimeout = 10 * time.Second
	// tokenMargin is how long before its end a token is no longer used.
	tokenMargin = 3 * time.Minute
)

// Codes of a token that is no longer good, or never was (docs/feishu.md 6.2).
var badToken = []int{99991663, 99991671, 99991668}

// get calls path below /open-apis and returns the data of the answer.
func get[T any](ctx context.Context, a *API, path string, query url.Values) (data T, err error) {
	body, err := a.call(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return data, err
	}
	if data, err = ReadAnswer[T](body); err != nil {
		return data, fmt.Errorf("GET %s: %w", path, err)
	}
	return data, nil
}

// call calls path and returns the answer, which Feishu has accepted. With a
// token that turns out bad it tries again with another.
func (a *API) call(ctx context.Context, method, path string, query url.Values, body []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err = a.withToken(func() (token string, err error) {
		if token, err = a.token(ctx); err == nil {
			answer, err = a.do(ctx, method, path, query, token, body)
		}
		return token, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return answer, nil
}

// withToken makes a call, which returns the token that it used, and makes it again with another token where Feishu
// does not take the first.
func (a *API) withToken(call func() (token string, err error)) error {
	var refused error
	for range 2 {
		token, err := call()
		if errors.Is(err, ErrNoToken) && refused != nil {
			return fmt.Errorf("%w: %w", err, refused)
		}
		if e, ok := errors.AsType[*CallError](err); !ok || !e.BadToken() {
			return err
		}
		refused = err
		a.forget(token)
	}
	return refused
}

// do makes one call and returns the body of an answer with code 0.
func (a *API) do(ctx context.Context, method, path string, query url.Values, token string, body []byte) ([]byte,
	error) {
	req, err := a.request(ctx, method, path, query, token, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	res, err := a.client.Do(req)
	if err != nil {
		return nil, WithoutURL(err)
	}
	defer res.Body.Close()
	return readBody(res)
}

// request returns a request for path below /open-apis.
func (a *API) request(ctx context.Context, method, path string, query url.Values, token string, body []byte) (
	*http.Request, error) {
	target := a.base + "/open-apis/" + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the base URL is not a URL")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}

// CallError is an answer of Feishu's that does not accept a call.
type CallError struct {
	Status int           // of HTTP
	Later  time.Duration // in which Feishu wants no more calls; 0: it did not say, or more than an hour
	Err    error         // with a [*CodeError] in it where Feishu said why
}

func (e *CallError) Error() string { return e.Err.Error() }
func (e *CallError) Unwrap() error { return e.Err }

// BadToken reports whether Feishu did not take the token.
func (e *CallError) BadToken() bool { return slices.Contains(badToken, CodeOf(e.Err)) }

// readBody returns the body of an answer with code 0; any other answer is a [*CallError].
func readBody(res *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if _, err = ReadAnswer[any](data); err == nil {
		return data, nil
	}
	refused := &CallError{Status: res.StatusCode, Err: err}
	if CodeOf(err) == 0 && res.StatusCode != http.StatusOK {
		refused.Err = fmt.Errorf("HTTP %d", res.StatusCode)
	}
	// docs/feishu.md 6.3
	seconds, err := strconv.ParseFloat(res.Header.Get("X-Ogw-Ratelimit-Reset"), 64)
	if err == nil && seconds > 0 && seconds < 3600 {
		refused.Later = time.Duration(seconds * float64(time.Second))
	}
	return nil, refused
}

// token returns the bot's token, else one fetched with the app's credentials.
func (a *API) token(ctx context.Context) (string, error) {
	if token, ok := a.known(); ok {
		return token, nil
	}
	if !a.Ready() {
		return "", ErrNoToken
	}
	select {
	case a.fetching <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-a.fetching }()
	if token, ok := a.known(); ok {
		return token, nil // somebody else fetched it meanwhile
	}
	return a.fetch(ctx)
}

func (a *API) known() (token string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen != "" {
		return a.seen, true
	}
	return a.fetched, a.fetched != "" && time.Now().Before(a.until)
}

func (a *API) forget(token string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == token {
		a.seen = ""
	}
	if a.fetched == token {
		a.fetched = ""
	}
}

// fetch gets a token for the app's credentials (docs/feishu.md 6.1): one that has at
// least half an hour left.
func (a *API) fetch(ctx context.Context) (string, error) {
	a.mu.Lock()
	appID, appSecret := a.appID, a.appSecret
	a.mu.Unlock()
	if appSecret == "" {
		return "", ErrNoToken
	}
	body, err := a.do(ctx, http.MethodPost, "auth/v3/tenant_access_token/internal", nil, "",
		compact(map[string]string{"app_id": appID, "app_secret": appSecret}))
	if err != nil {
		return "", fmt.Errorf("fetch a token: %w", err)
	}
	var out struct {
		Token  string `json:"tenant_access_token"`
		Expire int    `json:"expire"` // seconds
	}
	if err := lenient(body, &out); err != nil || out.Token == "" {
		return "", errors.New("fetch a token: the answer holds none")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fetched = out.Token
	a.until = time.Now().Add(time.Duration(out.Expire)*time.Second - tokenMargin)
	return a.fetched, nil
}
