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
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/sony/gobreaker/v2"
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
	// The breaker opens after breakAfter calls in a row that got no answer. It then
	// refuses every call for breakFor, and lets one through as a probe.
	breakAfter = 5
	breakFor   = time.Minute
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
	breaker *gobreaker.CircuitBreaker[string]
	retryAt atomic.Pointer[time.Time] // when an open breaker lets a probe through
	asking  singleflight.Group        // by question
	cache   *lru.Cache[string, verdict]
}

// verdict is an answer of the model.
type verdict struct {
	allow bool
	until time.Time // when it is too old for the cache
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
	l := &LLM{client: newClient(o), timeout: o.Timeout, log: o.Logger, slots: make(chan struct{}, MaxCalls), cache: cache}
	var last error // of a call; the breaker's own lock guards it
	l.breaker = gobreaker.NewCircuitBreaker[string](gobreaker.Settings{
		Timeout:     breakFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakAfter },
		IsSuccessful: func(err error) bool {
			last = err
			e, ok := errors.AsType[*callError](err)
			return err == nil || ok && e.answered
		},
		OnStateChange: func(_ string, _, to gobreaker.State) {
			l.retryAt.Store(new(time.Now().Add(breakFor)))
			switch to {
			case gobreaker.StateOpen:
				l.log.Warn("the judge fails repeatedly and is not called for a while", "err", last)
			case gobreaker.StateClosed:
				l.log.Info("judge answers again")
			}
		},
	})
	return l, nil
}

// Judge implements [policy.Judge]. Equal questions within five minutes are
// asked once. An answer that comes after ctx is done still reaches the cache.
func (l *LLM) Judge(ctx context.Context, q policy.Question) (allow bool, err error) {
	data, question := promptOf(q)
	sum := sha256.Sum256([]byte(question + "\x00" + data))
	key := string(sum[:])
	if v, ok := l.cache.Get(key); ok && time.Now().Before(v.until) {
		return v.allow, nil
	}
	asked := l.asking.DoChan(key, func() (any, error) {
		// Others may wait for the same call, so the end of the first caller's ctx
		// must not end it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
		defer cancel()
		until := time.Now().Add(cacheTTL)
		allow, err := l.call(ctx, delimited(data, question))
		if err == nil {
			l.cache.Add(key, verdict{allow, until})
		}
		return allow, err
	})
	select {
	case r := <-asked:
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
	if l.breaker.State() == gobreaker.StateOpen {
		return false, ErrOpen
	}
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return false, fmt.Errorf("wait for one of %d calls: %w", MaxCalls, ctx.Err())
	}
	text, err := l.breaker.Execute(func() (string, error) { return l.client.ask(ctx, prompt) })
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return false, ErrOpen
	case err != nil:
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

// Breaker states, as in State.Breaker.
const (
	BreakerClosed = "closed" // calls are made
	BreakerOpen   = "open"   // calls are refused until State.RetryAt
	BreakerProbe  = "probe"  // one call is let through, the others are refused
)

// State is the state of an [LLM], for health and status pages.
type State struct {
	Model    string    `json:"model"`
	Breaker  string    `json:"breaker"`            // BreakerClosed, BreakerOpen or BreakerProbe
	Failures int       `json:"failures,omitempty"` // calls in a row without an answer, while closed
	RetryAt  time.Time `json:"retry_at,omitzero"`  // when an open breaker lets the next call through
	Calls    int       `json:"calls"`              // running, at most MaxCalls
}

// State returns the judge's current state.
func (l *LLM) State() State {
	s := State{Model: l.client.model, Breaker: BreakerClosed, Calls: len(l.slots)}
	switch l.breaker.State() {
	case gobreaker.StateOpen:
		s.Breaker, s.RetryAt = BreakerOpen, *l.retryAt.Load()
	case gobreaker.StateHalfOpen:
		s.Breaker = BreakerProbe
	default:
		s.Failures = int(l.breaker.Counts().ConsecutiveFailures)
	}
	return s
}
