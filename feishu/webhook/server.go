package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
)

const (
	// EventPath and CardPath are where Feishu posts.
	EventPath = "/webhook/event"
	CardPath  = "/webhook/card"

	maxPosts     = 256 // that the bot works on; one more is refused with 503, and Feishu posts it again
	maxTasks     = 64  // calls of the tap, and of what it wants done; an event beyond passes unseen, or without that
	verifyWithin = 800 * time.Millisecond
	warnFirst    = 10               // posts that are refused as forged and logged one by one; later
	warnEvery    = 10 * time.Second // one in this time is
)

// Options configures a server. BotURL and one of the two secrets are required.
type Options struct {
	// BotURL is where the bot receives events and cards (BOT_WEBHOOK_URL).
	BotURL string
	// EncryptKey and VerificationToken are the app's (FEISHU_ENCRYPT_KEY,
	// FEISHU_VERIFICATION_TOKEN). What is set is demanded of every post.
	EncryptKey, VerificationToken string
	// Timeout is how long the bot may take to answer; 0: 15 minutes. Feishu does not
	// wait for it: it repeats the event, which the bot is not given again meanwhile.
	Timeout time.Duration
	// Answered are the events that the bot has answered with 200, which it is not given again;
	// nil: those since New. The caller closes it.
	Answered *dedup.Window
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
	// Admitted is called for each post that was proven to be Feishu's; nil: nothing.
	Admitted func(*http.Request)
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
	bodies budget
	warned rate.Sometimes
	tasks  chan struct{} // one element for each task under way
	away   atomic.Bool   // the last post to the bot failed
	known  atomic.Bool   // a post has reached the bot

	verifying chan struct{} // one element for each body that is being verified
	posts     chan struct{} // one element for each of Feishu's posts that the bot works on
	injecting chan struct{} // one element for each post of ours under way
}

// New makes a server. It starts nothing.
func New(o Options) (*Server, error) {
	bot, err := url.Parse(o.BotURL)
	if err != nil || bot.Host == "" || (bot.Scheme != "http" && bot.Scheme != "https") {
		return nil, errors.New("BOT_WEBHOOK_URL must be the http or https address of the bot's webhook")
	}
	if o.EncryptKey == "" && o.VerificationToken == "" {
		return nil, errors.New(
			"a webhook needs FEISHU_ENCRYPT_KEY or FEISHU_VERIFICATION_TOKEN, or anybody could post events")
	}
	s := &Server{
		Options: o, bot: bot, log: o.Logger,
		bodies: budget{left: maxBodies, verified: maxVerified}, verifying: make(chan struct{}, maxVerify),
		warned: rate.Sometimes{First: warnFirst, Interval: warnEvery},
		posts:  make(chan struct{}, maxPosts),
		tasks:  make(chan struct{}, maxTasks), injecting: make(chan struct{}, maxInjecting),
	}
	if s.Timeout <= 0 {
		s.Timeout = 15 * time.Minute
	}
	if s.Answered == nil {
		s.Answered = dedup.Memory(0)
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
	if s.Admitted == nil {
		s.Admitted = func(*http.Request) {}
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
	reading := http.NewResponseController(w)
	p := s.bodies.begin(func() { _ = reading.SetReadDeadline(time.Unix(1, 0)) }) // a writer in a test has no deadlines
	defer p.release()
	_ = reading.SetReadDeadline(time.Now().Add(readTimeout))
	plain, e, err := s.receive(r, p)
	if err != nil {
		s.refuse(w, err)
		return
	}
	_ = reading.SetReadDeadline(time.Time{})
	s.Admitted(r)
	select {
	case s.posts <- struct{}{}:
		defer func() { <-s.posts }()
	default:
		s.Counter("too_many")
		answer(w, http.StatusServiceUnavailable, "too many posts at once")
		return
	}
	if e.Type == typeChallenge {
		s.Counter("challenge")
		s.challenge(w, r, p.data, e.Challenge)
		return
	}
	deadline := time.Now().Add(feishu.AckHold)
	app := e.app()
	s.Verified(app)
	settle, ok := s.claim(w, e.key())
	if !ok {
		return
	}
	defer settle(false) // unless it was settled before
	var do func()
	seen := true
	if s.Own(app) {
		var v feishu.Verdict
		var instead []byte
		switch v, instead, do, seen = s.verdict(plain); v {
		case feishu.Keep:
			s.Counter("kept")
			if do != nil {
				(&task{s: s, do: do, done: make(chan struct{})}).wait(deadline)
			}
			answer(w, http.StatusOK, "success")
			return
		case feishu.Refuse:
			s.Counter("refused")
			answer(w, http.StatusServiceUnavailable, "the event could not be stored")
			return
		}
		if instead != nil {
			s.replace(r, p, instead)
		}
	}
	if s.pass(w, r, p.data, do, deadline, settle) && !seen {
		s.guard(func() { s.Passed(plain) })
	}
}

// receive reads the body of r into p and verifies it. Without an error p is kept until it is released.
func (s *Server) receive(r *http.Request, p *body) (plain []byte, e envelope, err error) {
	most, err := s.admit(r)
	if err != nil {
		return nil, e, err
	}
	if err := p.read(r.Body, most); err != nil {
		return nil, e, err
	}
	select {
	case s.verifying <- struct{}{}:
		defer func() { <-s.verifying }()
	case <-p.dropped:
	}
	if !p.keep() {
		return nil, e, errNoRoom
	}
	return s.verify(r, p.data)
}

// refuse answers a post that was not received, and closes its connection: the rest of its body does not matter.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	switch {
	case errors.Is(err, errTooLarge):
		s.Counter("too_large")
		answer(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, errNoRoom):
		s.Counter("too_many")
		answer(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.Counter("too_slow")
		answer(w, http.StatusRequestTimeout, "the body came too slowly")
	case errors.Is(err, errForged):
		s.Counter("forged")
		s.warned.Do(func() { s.log.Warn("a post to the webhook is refused", "err", err) })
		answer(w, http.StatusForbidden, "this is not proven to be Feishu's") // why does not concern strangers
	default:
		answer(w, http.StatusBadRequest, "the body cannot be read")
	}
}

// claim takes an event for this post, so that the bot works on it once. settle is called with whether
// the bot has answered it with 200; only the first call counts. Where ok is false claim has answered the post.
func (s *Server) claim(w http.ResponseWriter, key string) (settle func(handled bool), ok bool) {
	if key == "" {
		return func(bool) {}, true
	}
	switch s.Answered.Claim(key) {
	case dedup.Done:
		s.Counter("repeated")
		answer(w, http.StatusOK, "success")
		return nil, false
	case dedup.Pending:
		s.Counter("in_progress")
		answer(w, http.StatusServiceUnavailable, "the bot works on this event")
		return nil, false
	}
	var once sync.Once
	return func(handled bool) {
		once.Do(func() {
			err := s.Answered.Settle(key, handled)
			if handled {
				err = errors.Join(err, s.Answered.Flush())
			}
			if err != nil {
				s.log.Warn("an answered event may be given to the bot again after a restart", "err", err)
			}
		})
	}, true
}

// answer speaks as the SDKs do: {"msg":"…"}.
func answer(w http.ResponseWriter, status int, msg string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"msg":%q}`, msg)
}

// verdict asks the tap about an event. seen is false where the tap has not decided.
func (s *Server) verdict(event []byte) (v feishu.Verdict, instead []byte, do func(), seen bool) {
	if s.Tap == nil {
		return feishu.Pass, nil, nil, true
	}
	type reply struct {
		v       feishu.Verdict
		instead []byte
		do      func()
	}
	said := make(chan reply, 1)
	if !s.start(func() {
		var a reply // Pass, should the tap panic
		defer func() { said <- a }()
		a.v, a.instead, a.do = s.Tap(event)
	}) {
		s.Counter("untapped")
		return feishu.Pass, nil, nil, false
	}
	patience := time.NewTimer(feishu.AckHold)
	defer patience.Stop()
	select {
	case a := <-said:
		return a.v, a.instead, a.do, true
	case <-patience.C:
	}
	s.Counter("tap_slow")
	s.log.Warn("the tap is slow: an event goes to the bot unseen", "limit", feishu.AckHold)
	return feishu.Pass, nil, func() {
		if a := <-said; a.do != nil {
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
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout
}

// detached outlives the request that ctx belongs to: what has reached the bot is
// not called off because Feishu has stopped waiting.
func detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
