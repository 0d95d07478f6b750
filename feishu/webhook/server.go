package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"feishu-relay/feishu"
)

const (
	// EventPath and CardPath are where Feishu posts.
	EventPath = "/webhook/event"
	CardPath  = "/webhook/card"

	maxBody      = 20 << 20         // a post's body; a larger one is refused with 413
	maxPosts     = 64               // side by side; one more is refused with 503, and Feishu posts it again
	maxTasks     = 64               // calls of the tap, and of what it wants done; an event beyond passes unseen, or without that
	readTimeout  = 10 * time.Second // for the body; Feishu itself gives up after 3 s
	botTimeout   = 30 * time.Second // for the bot's answer; Feishu is gone by then, but the bot may finish
	verifyWithin = 800 * time.Millisecond
)

// Options configures a server. BotURL and one of the two secrets are required.
type Options struct {
	// BotURL is where the bot receives events and cards (BOT_WEBHOOK_URL).
	BotURL string
	// EncryptKey and VerificationToken are the app's (FEISHU_ENCRYPT_KEY,
	// FEISHU_VERIFICATION_TOKEN). What is set is demanded of every post.
	EncryptKey, VerificationToken string
	// Client posts to the bot; nil: one that uses no proxy. Redirects are not
	// followed.
	Client *http.Client
	// Tap sees the events on their way to the bot; nil: nobody does. A panic in
	// it, or taking longer than [feishu.AckHold], is as good as [feishu.Pass].
	Tap feishu.EventTap
	// Passed is given an event that the bot took unseen, since Tap was slow or too
	// many of its calls are under way. What Tap stores of it all the same is not to be
	// delivered to the bot. nil: nobody is told.
	Passed func(event []byte)
	// Own reports whether an app is the sidecar's own; the events of others pass
	// untapped. nil: all are.
	Own func(appID string) bool
	// Verified is told the app of every event that was proven to be Feishu's.
	Verified func(appID string)
	// Logger is told of what goes wrong, never of contents; nil: nobody is.
	Logger *slog.Logger
	// Counter counts for metrics; the package comment has its words.
	Counter func(event string)
}

// Server receives Feishu's posts. Its methods are safe for concurrent use.
type Server struct {
	Options
	bot    *url.URL
	client *http.Client
	log    *slog.Logger
	posts  chan struct{} // one element for each post under way
	tasks  chan struct{} // one element for each task under way
	away   atomic.Bool   // the last post to the bot failed
	known  atomic.Bool   // a post has reached the bot

	injecting chan struct{} // one element for each post of ours under way
}

// New makes a server. It starts nothing.
func New(o Options) (*Server, error) {
	bot, err := url.Parse(o.BotURL)
	if err != nil || bot.Host == "" || (bot.Scheme != "http" && bot.Scheme != "https") {
		return nil, errors.New("BOT_WEBHOOK_URL must be the http or https address of the bot's webhook")
	}
	if o.EncryptKey == "" && o.VerificationToken == "" {
		return nil, errors.New("a webhook needs FEISHU_ENCRYPT_KEY or FEISHU_VERIFICATION_TOKEN, or anybody could post events")
	}
	s := &Server{
		Options: o, bot: bot, log: o.Logger,
		posts: make(chan struct{}, maxPosts),
		tasks: make(chan struct{}, maxTasks), injecting: make(chan struct{}, maxInjecting),
	}
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{
			DisableCompression: true, MaxIdleConnsPerHost: maxPosts, IdleConnTimeout: time.Minute,
		}}
	}
	client := *o.Client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.client = &client
	if s.Own == nil {
		s.Own = func(string) bool { return true }
	}
	if s.Passed == nil {
		s.Passed = func([]byte) {}
	}
	if s.Verified == nil {
		s.Verified = func(string) {}
	}
	if s.Counter == nil {
		s.Counter = func(string) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}

// Connected reports whether the last post to the bot reached it, or none was
// tried yet.
func (s *Server) Connected() bool { return !s.away.Load() }

// Reached reports whether a post has reached the bot, the last one among them.
func (s *Server) Reached() bool { return s.known.Load() && !s.away.Load() }

// ServeHTTP takes POST /webhook/event and /webhook/card; everything else is 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || (r.URL.Path != EventPath && r.URL.Path != CardPath) {
		answer(w, http.StatusNotFound, "only Feishu's posts are taken here")
		return
	}
	select {
	case s.posts <- struct{}{}:
		defer func() { <-s.posts }()
	default:
		s.Counter("too_many")
		answer(w, http.StatusServiceUnavailable, "too many posts at once")
		return
	}
	body, ok := s.read(w, r)
	if !ok {
		return
	}
	plain, e, err := s.verify(r, body)
	if err != nil {
		s.Counter("forged")
		s.log.Warn("a post to the webhook is refused", "err", err)
		answer(w, http.StatusForbidden, "this is not proven to be Feishu's") // why is nothing for strangers
		return
	}
	if e.Type == typeChallenge {
		s.Counter("challenge")
		s.challenge(w, r, body, e.Challenge)
		return
	}
	deadline := time.Now().Add(feishu.AckHold)
	app := e.app()
	s.Verified(app)
	var do func()
	seen := true
	if s.Own(app) {
		var v feishu.Verdict
		switch v, do, seen = s.verdict(plain); v {
		case feishu.Keep:
			s.Counter("kept")
			answer(w, http.StatusOK, "success")
			return
		case feishu.Refuse:
			s.Counter("refused")
			answer(w, http.StatusServiceUnavailable, "the event could not be stored")
			return
		}
	}
	if s.pass(w, r, body, do, deadline) && !seen {
		s.guard(func() { s.Passed(plain) })
	}
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	deadline := http.NewResponseController(w)
	_ = deadline.SetReadDeadline(time.Now().Add(readTimeout)) // a writer in a test has none
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		s.Counter("too_large")
		answer(w, http.StatusRequestEntityTooLarge, "the body is too large")
		return nil, false
	}
	if err != nil {
		answer(w, http.StatusBadRequest, "the body cannot be read")
		return nil, false
	}
	_ = deadline.SetReadDeadline(time.Time{})
	return body, true
}

// answer speaks as the SDKs do: {"msg":"…"}.
func answer(w http.ResponseWriter, status int, msg string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"msg":%q}`, msg)
}

// verdict asks the tap about an event. seen is false where the tap has not decided.
func (s *Server) verdict(event []byte) (v feishu.Verdict, do func(), seen bool) {
	if s.Tap == nil {
		return feishu.Pass, nil, true
	}
	type reply struct {
		v  feishu.Verdict
		do func()
	}
	said := make(chan reply, 1)
	if !s.start(func() {
		var a reply // Pass, should the tap panic
		defer func() { said <- a }()
		a.v, a.do = s.Tap(event)
	}) {
		s.Counter("untapped")
		return feishu.Pass, nil, false
	}
	patience := time.NewTimer(feishu.AckHold)
	defer patience.Stop()
	select {
	case a := <-said:
		return a.v, a.do, true
	case <-patience.C:
	}
	s.Counter("tap_slow")
	s.log.Warn("the tap is slow: an event goes to the bot unseen", "limit", feishu.AckHold)
	return feishu.Pass, func() {
		if a := <-said; a.v == feishu.Pass && a.do != nil {
			a.do()
		}
	}, false
}

// start runs a task of the tap's in the background, unless too many run.
func (s *Server) start(task func()) bool {
	select {
	case s.tasks <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() {
			<-s.tasks
		}()
		s.guard(task)
	}()
	return true
}

// guard runs what the tap's side gave us.
func (s *Server) guard(do func()) {
	defer func() {
		if p := recover(); p != nil {
			s.Counter("panic")
			s.log.Error("a panic was caught; the bot's traffic goes on", "kind", fmt.Sprintf("%T", p))
		}
	}()
	do()
}

// reached notes how a post to the bot went.
func (s *Server) reached(status int, err error) {
	away := err != nil || isAway(status)
	if !away {
		s.known.Store(true)
	}
	if s.away.Swap(away) != away {
		s.log.Info("the bot's webhook", "reached", !away)
	}
}

// isAway tells what a proxy in front of the bot says when the bot is not there.
func isAway(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// detached outlives the request that ctx belongs to: what has reached the bot is
// not called off because Feishu has stopped waiting.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
