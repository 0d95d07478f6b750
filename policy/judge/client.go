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
	// connectTimeout bounds dialling if Options.HTTPClient is nil.
	connectTimeout = 2 * time.Second
	// maxResponse is the most bytes of a response that are read; the rest is
	// cut off, and the call fails as unreadable.
	maxResponse = 1 << 20
	// retryWait is the pause before the one retry, which is made only if at
	// least minBudget of the time is left after it.
	retryWait = 300 * time.Millisecond
	minBudget = time.Second
	// oneWord is enough for YES or NO. A reasoning model needs more: once
	// recognised as one, it gets thinking.
	oneWord  = 16
	thinking = 2048
)

// Requirements of an endpoint, as bits; each is found out once and remembered.
const (
	wantsCompletionTokens = 1 << iota // max_completion_tokens, not max_tokens
	wantsNoTemperature
	wantsRoom // a reasoning model: it needs more tokens
)

// client asks one model. It is safe for concurrent use.
type client struct {
	api   *openai.Client
	model string
	key   string
	wants atomic.Uint32
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
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// ask returns the model's answer. Its errors may be logged; a [callError] tells
// whether the endpoint failed.
func (c *client) ask(ctx context.Context, prompt string) (string, error) {
	retried := false
	for {
		wants := c.wants.Load()
		res, err := c.api.CreateChatCompletion(ctx, c.request(prompt, wants))
		if err == nil && cutShort(res) {
			if wants&wantsRoom == 0 {
				c.wants.Or(wantsRoom)
				continue
			}
			return "", errThinks
		}
		if err == nil {
			if len(res.Choices) == 0 {
				return "", &callError{text: "the answer holds no choice"}
			}
			return res.Choices[0].Message.Content, nil
		}
		if more := complaint(err, wants); more != 0 {
			c.wants.Or(more)
			continue // at most once for each bit
		}
		end, limited := ctx.Deadline()
		if retried || !temporary(err) || limited && time.Until(end) < retryWait+minBudget || wait.Sleep(ctx, retryWait) != nil {
			return "", c.explain(ctx, err)
		}
		retried = true
	}
}

func (c *client) request(prompt string, wants uint32) openai.ChatCompletionRequest {
	r := openai.ChatCompletionRequest{
		Model: c.model,
		Messages: []openai.ChatCompletionMessage{
			{Role: openai.ChatMessageRoleSystem, Content: systemPrompt},
			{Role: openai.ChatMessageRoleUser, Content: prompt},
		},
	}
	room := oneWord
	if wants&wantsRoom != 0 {
		room = thinking
	}
	if wants&wantsCompletionTokens != 0 {
		r.MaxCompletionTokens = max(room, thinking) // it counts reasoning tokens as well
	} else {
		r.MaxTokens = room //lint:ignore SA1019 servers other than OpenAI's know no other name
	}
	if wants&wantsNoTemperature == 0 {
		r.Temperature = math.SmallestNonzeroFloat32 // the library omits a zero
	}
	return r
}

// cutShort reports whether an answer ended before its first word.
func cutShort(res openai.ChatCompletionResponse) bool {
	return len(res.Choices) > 0 && res.Choices[0].FinishReason == openai.FinishReasonLength &&
		strings.TrimSpace(res.Choices[0].Message.Content) == ""
}

// complaint returns the requirement named in a refusal of the endpoint, or of
// the library for a model it knows, if it is not in wants yet.
func complaint(err error, wants uint32) uint32 {
	text := ""
	switch {
	case errors.Is(err, openai.ErrReasoningModelMaxTokensDeprecated):
		text = "max_tokens"
	case errors.Is(err, openai.ErrReasoningModelLimitationsOther), errors.Is(err, openai.ErrReasoningSamplingUnsupported):
		text = "temperature"
	default:
		if s := status(err); s != http.StatusBadRequest && s != http.StatusUnprocessableEntity {
			return 0
		}
		text = err.Error()
	}
	switch {
	case strings.Contains(text, "max_tokens") && wants&wantsCompletionTokens == 0:
		return wantsCompletionTokens
	case strings.Contains(text, "temperature") && wants&wantsNoTemperature == 0:
		return wantsNoTemperature
	}
	return 0
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

// temporary reports whether a refusal is worth a retry.
func temporary(err error) bool {
	s := status(err)
	return s == http.StatusTooManyRequests || s >= 500
}

// works reports whether the endpoint works, even if this question failed.
func works(err error) bool {
	e, ok := errors.AsType[*callError](err)
	return err == nil || ok && e.answered
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

var errThinks = &callError{answered: true, text: "the model spent its tokens before its first word: " +
	"it thinks before it answers, set OPENAI_MODEL to one that does not"}

// explain turns the library's error, which may quote the prompt, the answer or
// the key, into one that quotes none.
func (c *client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &callError{text: "no answer in time", err: ctx.Err()}
	}
	if s := status(err); s != 0 {
		answered := s == http.StatusBadRequest || s == http.StatusRequestEntityTooLarge || s == http.StatusUnprocessableEntity
		return &callError{text: fmt.Sprintf("the endpoint answered HTTP %d%s", s, hint(s)), answered: answered}
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

func hint(status int) string {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ": check OPENAI_API_KEY"
	case http.StatusNotFound:
		return ": check OPENAI_BASE_URL and OPENAI_MODEL"
	case http.StatusTooManyRequests:
		return ": the key's rate or quota is used up"
	}
	return ""
}
