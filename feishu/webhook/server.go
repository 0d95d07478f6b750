// Package webhook is between Feishu, which posts events (docs/feishu.md 2), and a bot that receives them, and can post
// injected events to the bot. Events take the path of package link's Events.
//
// A post is passed on byte for byte once it is proven to be Feishu's, by its signature, its token, or both, by the
// secrets of [Options]; an event that the tap replaces is encrypted and signed again. The bot's answer goes back to
// Feishu; without one Feishu gets 502 and posts again by its own schedule (docs/feishu.md 2.4). Feishu waits for 3 s.
// A bot may take longer, up to Options.Timeout: it gets the event once, since repeats are refused until it has
// answered, and are acknowledged and dropped after it has answered 200.
//
// # Hostile senders
//
// The port is open to the internet. A body has limits of time and size, and only a few large ones are read at a time. A
// signed timestamp may differ from the clock by at most an hour.
//
// # What is counted
//
// Beside what package link counts of events:
//
//	bot_away   the bot did not answer an event, and Feishu will post it again
//	challenge  Feishu verified the URL with a challenge, which is answered here
//	forged     a post could not be verified
//	too_large  a post was larger than 1 MiB
//	too_slow   the body of a post did not arrive within 5 s
//	too_many   a post was refused, since the bot works on 256, or 16 large ones are read
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
)

const (
	// EventPath and CardPath are where Feishu posts.
	EventPath = "/webhook/event"
	CardPath  = "/webhook/card"

	maxBody     = 1 << 20         // bytes of a body; a larger one is refused with 413
	readTimeout = 5 * time.Second // for a body; then its sender is dropped with 408. Feishu itself waits 3 s
	largeBody   = 64 << 10        // bytes above which a body is large. Nearly all events are smaller
	maxLarge    = 16              // large bodies that are read at a time; one more is refused with 503
	maxSkew     = time.Hour       // between a signed timestamp and the clock: a recorded post cannot be replayed later

	maxPosts = 256 // that the bot works on; one more is refused with 503

	warnFirst = 10               // posts that are refused as forged and logged one by one; later
	warnEvery = 10 * time.Second // one in this time is
)

// Options configures a server. What has no default here is required; of the two secrets one is.
type Options struct {
	*link.Events
	// BotURL is where the bot receives events and cards (BOT_WEBHOOK_URL).
	BotURL string
	// EncryptKey and VerificationToken are the app's (FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN). Every post must
	// match those that are set.
	EncryptKey, VerificationToken string
	// Timeout is how long the bot may take to answer; 0: 15 minutes. Feishu does not wait for it: it repeats the event,
	// which does not go to the bot again meanwhile.
	Timeout time.Duration
	// Transport posts to the bot; nil: one that uses no proxy.
	Transport http.RoundTripper
	// Verified is called with the app of every verified event.
	Verified func(appID string)
}

// Server receives Feishu's posts. Its methods are safe for concurrent use.
type Server struct {
	Options
	bot    *url.URL
	warned rate.Sometimes
	last   atomic.Pointer[bool] // whether the last post to the bot reached it

	large, posts chan struct{} // one element for each
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
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Minute
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: maxPosts, IdleConnTimeout: time.Minute}
	}
	return &Server{Options: o, bot: bot,
		warned: rate.Sometimes{First: warnFirst, Interval: warnEvery}, large: make(chan struct{}, maxLarge),
		posts: make(chan struct{}, maxPosts)}, nil
}

// Connected reports whether the last post to the bot reached it, or none was tried yet.
func (s *Server) Connected() bool { return s.last.Load() == nil || s.Reached() }

// Reached reports whether a post has reached the bot, the last one among them.
func (s *Server) Reached() bool { last := s.last.Load(); return last != nil && *last }

// reached records whether a post reached the bot.
func (s *Server) reached(reached bool) {
	if was := s.last.Swap(&reached); was == nil && !reached || was != nil && *was != reached {
		s.Logger.Info("the bot's webhook", "reached", reached)
	}
}

// isAway reports whether a status is that of a proxy whose bot cannot be reached.
func isAway(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable ||
		status == http.StatusGatewayTimeout
}

// ServeHTTP takes POST /webhook/event and /webhook/card; everything else is 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || (r.URL.Path != EventPath && r.URL.Path != CardPath) {
		answer(w, http.StatusNotFound, "only Feishu's posts are taken here")
		return
	}
	body, plain, e, err := s.receive(w, r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	if e.Type == typeChallenge { // docs/feishu.md 2.1
		s.Counter("challenge")
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(map[string]string{"challenge": e.Challenge}) // fails if Feishu has gone
		return
	}
	select {
	case s.posts <- struct{}{}:
		defer func() { <-s.posts }()
	default:
		s.refuse(w, errNoRoom)
		return
	}
	s.Verified(e.app())
	t := s.Take(plain)
	defer t.Settle(false) // unless it was settled before
	switch t.Verdict {
	case feishu.Keep:
		t.Settle(true)
		answer(w, http.StatusOK, "success")
	case feishu.Refuse:
		answer(w, http.StatusServiceUnavailable, "the event could not be stored")
	default:
		if t.Instead != nil {
			body = s.replace(r, body, t.Instead)
		}
		s.pass(w, r, body, t)
	}
}

// receive reads the body of a post and verifies it.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) (body, plain []byte, e envelope, err error) {
	reading := http.NewResponseController(w)
	_ = reading.SetReadDeadline(time.Now().Add(readTimeout)) // fails for a recorder in a test
	if r.ContentLength > maxBody {
		return nil, nil, e, &http.MaxBytesError{Limit: maxBody}
	}
	if r.ContentLength < 0 || r.ContentLength > largeBody {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		default:
			return nil, nil, e, errNoRoom
		}
	}
	if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return nil, nil, e, err
	}
	_ = reading.SetReadDeadline(time.Time{})
	plain, e, err = s.verify(r, body)
	return body, plain, e, err
}

// refuse answers a post that is not taken, and closes its connection without reading the rest of its body.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		s.Counter("too_large")
		answer(w, http.StatusRequestEntityTooLarge, "the body is too large")
	case errors.Is(err, errNoRoom):
		s.Counter("too_many")
		answer(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.Counter("too_slow")
		answer(w, http.StatusRequestTimeout, "the body came too slowly")
	case errors.Is(err, errForged):
		s.Counter("forged")
		s.warned.Do(func() { s.Logger.Warn("a post to the webhook was refused", "err", err) })
		answer(w, http.StatusForbidden, "this is not proven to be Feishu's") // the reason is for the log only
	default:
		answer(w, http.StatusBadRequest, "the body cannot be read")
	}
}

// pass posts an event to the bot, and answers Feishu with the bot's answer. The event is settled before Feishu gets
// it.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, body []byte, t *link.Taken) {
	// A post to the bot goes on when Feishu has stopped waiting.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.Timeout)
	defer cancel()
	proxy := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			u := *s.bot
			if u.RawQuery != "" && p.In.URL.RawQuery != "" {
				u.RawQuery += "&"
			}
			u.RawQuery += p.In.URL.RawQuery
			p.Out.URL, p.Out.Host = &u, ""
			p.Out.Body, p.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
		Transport: roundTripper(s.roundTrip),
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusOK {
				t.Got()
				t.Settle(true)
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			s.reached(false)
			s.Counter("bot_away")
			answer(w, http.StatusBadGateway, "the bot cannot be reached")
		},
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// roundTrip makes a post to the bot, and records whether it reached it.
func (s *Server) roundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.Transport.RoundTrip(req)
	if err == nil || req.Context().Err() == nil {
		s.reached(err == nil && !isAway(resp.StatusCode))
	}
	return resp, err
}

// answer answers in the SDKs' form: {"msg":"…"}.
func answer(w http.ResponseWriter, status int, msg string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"msg":%q}`, msg)
}

// Inject posts an event to the bot once, as Feishu would: encrypted and signed if there is a key. It returns nil when
// the bot answered 200, [feishu.AnswerError] for another status, [feishu.ErrNotInjected] when nothing was posted
// whole, [feishu.ErrInjectionEnded] when the connection ended without an answer, or the error of ctx, with which the
// post is closed.
func (s *Server) Inject(ctx context.Context, in feishu.Injection) error {
	var compact bytes.Buffer
	// Node signs what it serialises itself (docs/feishu.md 2.3)
	if err := json.Compact(&compact, in.Event); err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	body, header, err := s.seal(compact.Bytes())
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.bot.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post an event: %w", err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("X-Request-Id", rand.Text())
	maps.Copy(req.Header, header)
	status, err := Post(req, roundTripper(s.roundTrip), func() {
		s.Counter(map[bool]feishu.Counted{false: "injected", true: "redelivered"}[in.Again])
		if in.Written != nil {
			in.Written()
		}
	})
	switch {
	case err != nil:
		return err
	case isAway(status): // of a proxy in front of the bot
		return feishu.ErrNotInjected
	case status != http.StatusOK:
		s.Counter("ack_error")
		return &feishu.AnswerError{Code: status}
	}
	s.Counter("delivered")
	return nil
}

// Post makes a request to a bot once, and returns the status of the bot's answer. It calls written when the request was
// written whole. Without an answer it returns [feishu.ErrNotInjected] if the request was not written,
// [feishu.ErrInjectionEnded] if it was, or the error of its context.
func Post(req *http.Request, by http.RoundTripper, written func()) (status int, err error) {
	var wrote atomic.Bool
	ctx := req.Context()
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil && !wrote.Swap(true) {
				written()
			}
		}}))
	req.GetBody = nil // a connection that ends is not a reason to post again at once
	resp, err := by.RoundTrip(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil && wrote.Load():
		return 0, fmt.Errorf("%w: %w", feishu.ErrInjectionEnded, feishu.WithoutURL(err))
	case err != nil:
		return 0, fmt.Errorf("%w: %w", feishu.ErrNotInjected, feishu.WithoutURL(err))
	}
	feishu.Drain(resp.Body) // the answer's text does not matter
	return resp.StatusCode, nil
}

// seal returns the body of a post with an event, and the headers of its signature: encrypted and signed if there is a
// key.
func (s *Server) seal(event []byte) (body []byte, header http.Header, err error) {
	if s.EncryptKey == "" {
		return event, nil, nil
	}
	if body, err = feishu.Encrypt(s.EncryptKey, event); err != nil {
		return nil, nil, fmt.Errorf("encrypt an event: %w", err)
	}
	timestamp, nonce := strconv.FormatInt(time.Now().Unix(), 10), rand.Text()
	return body, http.Header{
		"X-Lark-Request-Timestamp": {timestamp},
		"X-Lark-Request-Nonce":     {nonce},
		"X-Lark-Signature":         {feishu.Sign(timestamp, nonce, s.EncryptKey, body)},
	}, nil
}

// replace returns the body of Feishu's post with another event, and changes its headers accordingly.
func (s *Server) replace(r *http.Request, body, event []byte) []byte {
	sealed, header, err := s.seal(event)
	if err != nil {
		s.Logger.Error("an event passes unchanged", "err", err)
		return body
	}
	maps.Copy(r.Header, header)
	return sealed
}

const typeChallenge = "url_verification"

// envelope is what is read of a post, in either schema (docs/feishu.md 2.1, 2.2).
type envelope struct {
	Encrypt   string `json:"encrypt"`
	Type      string `json:"type"`
	Token     string `json:"token"`
	Challenge string `json:"challenge"`
	Header    struct {
		AppID string `json:"app_id"`
		Token string `json:"token"`
	} `json:"header"`
	Event struct {
		AppID string `json:"app_id"` // of the 1.0 schema
	} `json:"event"`
}

func (e *envelope) app() string   { return cmp.Or(e.Header.AppID, e.Event.AppID) }
func (e *envelope) token() string { return cmp.Or(e.Header.Token, e.Token) }

// errForged is wrapped by the errors of a post that could not be verified.
var (
	errForged    = errors.New("forged")
	errNoJSON    = fmt.Errorf("%w: the body is not JSON", errForged)
	errEncrypted = fmt.Errorf("%w: the body is encrypted, and FEISHU_ENCRYPT_KEY is not set", errForged)
	errDecrypt   = fmt.Errorf("%w: the body was not encrypted with FEISHU_ENCRYPT_KEY", errForged)
	errSignature = fmt.Errorf("%w: the signature is not one of FEISHU_ENCRYPT_KEY", errForged)
	errToken     = fmt.Errorf("%w: the token is not FEISHU_VERIFICATION_TOKEN", errForged)
	errTimestamp = fmt.Errorf("%w: the signed timestamp is more than an hour from this machine's clock; "+
		"if the post is Feishu's, set the clock", errForged)

	errNoRoom = errors.New("too many posts at once")
)

// isFresh reports whether the timestamp of a post, in Unix seconds, is near the clock's.
func isFresh(timestamp string) bool {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	return err == nil && time.Since(time.Unix(seconds, 0)).Abs() <= maxSkew
}

// verify checks that a post is Feishu's (docs/feishu.md 2.3) and returns its decrypted contents. With an encrypt key
// the signature must be right, except that an encrypted challenge need not have one; with a verification token the
// token must match. The callbacks of old cards are signed with the verification token, and contain another token. A
// signature is checked before anything is parsed or decrypted.
func (s *Server) verify(r *http.Request, body []byte) (plain []byte, e envelope, err error) {
	old := r.URL.Path == CardPath && s.oldCard(r.Header, body)
	signature, timestamp := r.Header.Get("X-Lark-Signature"), r.Header.Get("X-Lark-Request-Timestamp")
	switch signed := s.EncryptKey != "" && signature != ""; {
	case (signed || old) && !isFresh(timestamp):
		return nil, e, errTimestamp
	case signed && !old && !same(signature, feishu.Sign(timestamp, r.Header.Get("X-Lark-Request-Nonce"), s.EncryptKey,
		body)):
		return nil, e, errSignature
	}
	if json.Unmarshal(body, &e) != nil {
		return nil, e, errNoJSON
	}
	plain = body
	encrypted := e.Encrypt != ""
	if encrypted {
		if s.EncryptKey == "" {
			return nil, e, errEncrypted
		}
		if plain, err = feishu.Decrypt(s.EncryptKey, body); err != nil {
			return nil, e, errDecrypt
		}
		e = envelope{}
		if json.Unmarshal(plain, &e) != nil {
			return nil, e, errDecrypt
		}
	}
	switch {
	case old:
	case s.EncryptKey != "" && signature == "" && !(encrypted && e.Type == typeChallenge):
		return nil, e, errSignature
	case s.VerificationToken != "" && !same(e.token(), s.VerificationToken):
		return nil, e, errToken
	}
	return plain, e, nil
}

// oldCard reports whether a callback of a card is signed in the way that was used before card.action.trigger: with
// SHA-1 and the verification token.
func (s *Server) oldCard(h http.Header, body []byte) bool {
	if s.VerificationToken == "" {
		return false
	}
	sum := sha1.New()
	sum.Write([]byte(h.Get("X-Lark-Request-Timestamp") + h.Get("X-Lark-Request-Nonce") + s.VerificationToken))
	sum.Write(body)
	return same(h.Get("X-Lark-Signature"), hex.EncodeToString(sum.Sum(nil)))
}

func same(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// Counted is all that the Counter of a Server's Events gets.
var Counted = append(slices.Clip(link.Counted[:12]),
	"bot_away", "challenge", "forged", "too_large", "too_slow", "too_many")
