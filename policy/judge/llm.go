package judge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"feishu-relay/policy"
)

// DefaultModel is the model if Options.Model is empty.
const DefaultModel = "gpt-4o-mini"

const (
	// MaxCalls is how many calls run at once; others wait within their timeout.
	MaxCalls = 8
	// cacheSize is how many answers are cached, each for cacheTTL; beyond it the
	// least recently used one is dropped.
	cacheSize = 1024
	cacheTTL  = 5 * time.Minute
)

// Errors of [LLM.Judge], besides those of the call.
var (
	// ErrOpen: the endpoint failed several times in a row and is not called for
	// now.
	ErrOpen = errors.New("the judge's endpoint failed repeatedly and is not asked for now")
	// ErrAnswer: the model answered something other than YES or NO.
	ErrAnswer = errors.New("the model answered neither YES nor NO")
)

// Options of an [LLM].
type Options struct {
	APIKey     string        // required
	BaseURL    string        // of the endpoint, with its version: "https://host/v1"; "" is OpenAI's
	Model      string        // "" is DefaultModel
	Timeout    time.Duration // of one call with its retry; 0 is policy.DefaultTimeout
	HTTPClient *http.Client  // nil is one with a short dial timeout
	Logger     *slog.Logger  // nil discards
}

// LLM is a judge that asks a language model. It is safe for concurrent use and
// owns no goroutine except the running calls, each of which ends within
// Options.Timeout even if no caller waits for it any more.
type LLM struct {
	client  *client
	timeout time.Duration
	log     *slog.Logger
	slots   chan struct{} // one for each running call
	flight  singleflight.Group
	cache   *lru.Cache[string, verdict]
	breaker breaker
}

type verdict struct {
	allow bool
	until time.Time
}

// New checks the options and returns a judge. It makes no call.
func New(o Options) (*LLM, error) {
	o.APIKey = strings.TrimSpace(o.APIKey)
	if o.APIKey == "" {
		return nil, errors.New("judge: the API key is missing")
	}
	if o.BaseURL != "" {
		u, err := url.Parse(o.BaseURL)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, errors.New("judge: the base URL is not an http or https URL")
		}
	}
	o.Model = cmp.Or(o.Model, DefaultModel)
	if o.Timeout <= 0 {
		o.Timeout = policy.DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	cache, err := lru.New[string, verdict](cacheSize)
	if err != nil {
		return nil, fmt.Errorf("judge: make cache: %w", err)
	}
	return &LLM{client: newClient(o), timeout: o.Timeout, log: o.Logger,
		slots: make(chan struct{}, MaxCalls), cache: cache}, nil
}

// Judge implements [policy.Judge]. Equal questions within five minutes are
// asked once. An answer that comes after ctx is done still reaches the cache.
func (l *LLM) Judge(ctx context.Context, q policy.Question) (allow bool, err error) {
	data, question := promptOf(q)
	sum := sha256.Sum256([]byte(strings.Join([]string{l.client.model, promptVersion, question, data}, "\x00")))
	key := string(sum[:])
	if v, ok := l.cache.Get(key); ok && time.Now().Before(v.until) {
		return v.allow, nil
	}
	result := l.flight.DoChan(key, func() (any, error) {
		// Other callers may wait for the same call, so the end of the first
		// caller's ctx must not end it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
		defer cancel()
		allow, err := l.call(ctx, delimited(data, question))
		if err == nil {
			l.cache.Add(key, verdict{allow, time.Now().Add(cacheTTL)})
		}
		return allow, err
	})
	select {
	case r := <-result:
		if r.Err != nil {
			return false, fmt.Errorf("judge: %w", r.Err)
		}
		return r.Val.(bool), nil
	case <-ctx.Done():
		return false, fmt.Errorf("judge: %w", ctx.Err())
	}
}

// call asks the model once there is room, unless the breaker is open.
func (l *LLM) call(ctx context.Context, prompt string) (allow bool, err error) {
	if l.breaker.refuses() {
		return false, ErrOpen
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return false, fmt.Errorf("wait for one of %d calls: %w", MaxCalls, ctx.Err())
	}
	round, ok := l.breaker.begin() // it may have opened during the wait
	if !ok {
		return false, ErrOpen
	}
	text, err := l.client.ask(ctx, prompt)
	failed, isCall := errors.AsType[*callError](err)
	answered := err == nil || isCall && failed.answered
	if l.breaker.end(round, answered) {
		if answered {
			l.log.Info("judge answers again")
		} else {
			l.log.Warn("the judge fails repeatedly and is not called for a while", "err", err)
		}
	}
	if err != nil {
		return false, err
	}
	return parse(text)
}

// parse reads the one word. It accepts spaces, quotes around it and a full
// stop, but not a second word.
func parse(text string) (allow bool, err error) {
	const around = " \t\r\n\"'`"
	word := strings.Trim(text, around)
	word = strings.Trim(strings.TrimSuffix(word, "."), around)
	switch {
	case len(word) == len("YES") && strings.EqualFold(word, "YES"):
		return true, nil
	case len(word) == len("NO") && strings.EqualFold(word, "NO"):
		return false, nil
	}
	return false, ErrAnswer
}

// State is the state of an [LLM], for health and status pages.
type State struct {
	Model    string    `json:"model"`
	Breaker  string    `json:"breaker"`            // BreakerClosed, BreakerOpen or BreakerProbe
	Failures int       `json:"failures,omitempty"` // calls in a row without an answer
	RetryAt  time.Time `json:"retry_at,omitzero"`  // when an open breaker lets the next call through
	Calls    int       `json:"calls"`              // running, at most MaxCalls
}

// State returns the judge's current state.
func (l *LLM) State() State {
	s := State{Model: l.client.model, Calls: len(l.slots)}
	s.Breaker, s.Failures, s.RetryAt = l.breaker.snapshot()
	return s
}
