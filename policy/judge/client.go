package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"feishu-relay/internal/wait"
)

const (
	connectTimeout = 2 * time.Second // dialling, if Options.HTTPClient is nil
	maxResponse    = 1 << 20         // bytes of a response; the rest is cut off, and the call fails as unreadable
	// retryWait is the pause before the one retry, which is made only if at
	// least minBudget of the time is left after it.
	retryWait = 300 * time.Millisecond
	minBudget = time.Second
)

// client asks one model. It is safe for concurrent use.
type client struct {
	api        *openai.Client
	model      string
	key        string
	unmeasured atomic.Bool // the model refuses a temperature, as those do that think first
}

func newClient(o Options) *client {
	config := openai.DefaultConfig(o.APIKey)
	if o.BaseURL != "" {
		config.BaseURL = strings.TrimRight(o.BaseURL, "/")
	}
	inner := o.HTTPClient
	if inner == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
		transport.MaxIdleConnsPerHost = MaxCalls
		inner = &http.Client{Transport: transport}
	}
	config.HTTPClient = wholeBody{inner}
	return &client{api: openai.NewClientWithConfig(config), model: o.Model, key: o.APIKey}
}

// wholeBody reads each response to its end, at most maxResponse bytes, so that
// the connection can be reused.
type wholeBody struct{ client *http.Client }

func (w wholeBody) Do(req *http.Request) (*http.Response, error) {
	res, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, err
}

// ask returns the model's answer. Its errors may be logged; a [callError] tells
// whether the endpoint failed.
func (c *client) ask(ctx context.Context, prompt string) (string, error) {
	retried := false
	for {
		// There is no limit of tokens: models differ in its name, and those that think need thousands.
		r := openai.ChatCompletionRequest{Model: c.model, Messages: []openai.ChatCompletionMessage{
			{Role: openai.ChatMessageRoleSystem, Content: systemPrompt},
			{Role: openai.ChatMessageRoleUser, Content: prompt},
		}}
		if !c.unmeasured.Load() {
			r.Temperature = math.SmallestNonzeroFloat32 // the library omits a zero
		}
		res, err := c.api.CreateChatCompletion(ctx, r)
		if err == nil && len(res.Choices) == 0 {
			return "", &callError{text: "the answer holds no choice"}
		}
		if err == nil {
			return res.Choices[0].Message.Content, nil
		}
		if refusesTemperature(err) && c.unmeasured.CompareAndSwap(false, true) {
			continue
		}
		end, limited := ctx.Deadline()
		short := limited && time.Until(end) < retryWait+minBudget
		if s := status(err); retried || short || s != http.StatusTooManyRequests && s < 500 || wait.Sleep(ctx, retryWait) != nil {
			return "", c.explain(ctx, err)
		}
		retried = true
	}
}

// refusesTemperature reports whether an endpoint, or the library for a model that it knows, takes no temperature.
func refusesTemperature(err error) bool {
	return errors.Is(err, openai.ErrReasoningModelLimitationsOther) ||
		errors.Is(err, openai.ErrReasoningSamplingUnsupported) ||
		understood(status(err)) && strings.Contains(err.Error(), "temperature")
}

// status is the HTTP status of a refusal, 0 for other errors.
func status(err error) int {
	if e, ok := errors.AsType[*openai.APIError](err); ok {
		return e.HTTPStatusCode
	}
	if e, ok := errors.AsType[*openai.RequestError](err); ok {
		return e.HTTPStatusCode
	}
	return 0
}

// understood reports whether an endpoint works that answers with status, and only this question failed.
func understood(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge ||
		status == http.StatusUnprocessableEntity
}

// callError is the error of a call without a verdict.
type callError struct {
	text string
	// answered: the endpoint works and only this question failed. Then the
	// breaker stays closed, since no message text must be able to open it.
	answered bool
	err      error // context errors, for errors.Is
}

func (e *callError) Error() string { return e.text }

func (e *callError) Unwrap() error { return e.err }

// explain turns the library's error, which may quote the prompt, the answer or
// the key, into one that quotes none.
func (c *client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &callError{text: "no answer in time", err: ctx.Err()}
	}
	if s := status(err); s != 0 {
		hint := ""
		switch s {
		case http.StatusUnauthorized, http.StatusForbidden:
			hint = ": check OPENAI_API_KEY"
		case http.StatusNotFound:
			hint = ": check OPENAI_BASE_URL and OPENAI_MODEL"
		case http.StatusTooManyRequests:
			hint = ": the key's rate or quota is used up"
		}
		return &callError{text: fmt.Sprintf("the endpoint answered HTTP %d%s", s, hint), answered: understood(s)}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		return &callError{text: "call the endpoint: " + strings.ReplaceAll(clip(e.Err.Error(), 200), c.key, "[key]")}
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return &callError{text: "the endpoint's answer is no JSON: check OPENAI_BASE_URL"}
	}
	return &callError{text: fmt.Sprintf("call the endpoint: error of type %T", err)}
}
