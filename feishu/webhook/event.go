package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

const (
	// challengeTime is for the bot to answer a challenge, for which Feishu waits 1 s (docs/feishu.md 2.1).
	challengeTime = 800 * time.Millisecond
	maxChallenge  = 64 << 10 // bytes of the bot's answer to it; a longer one is cut
)

// ServeHTTP takes POST /webhook/event and /webhook/card; everything else is 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || (r.URL.Path != EventPath && r.URL.Path != CardPath) {
		answer(w, http.StatusNotFound, "only Feishu's posts are taken here")
		return
	}
	reading := http.NewResponseController(w)
	p := s.bodies.begin(func() { _ = reading.SetReadDeadline(time.Unix(1, 0)) }) // fails for a recorder in a test
	defer p.release()
	_ = reading.SetReadDeadline(time.Now().Add(readTimeout))
	plain, e, err := s.receive(r, p)
	if err != nil {
		s.refuse(w, err)
		return
	}
	_ = reading.SetReadDeadline(time.Time{})
	select {
	case s.posts <- struct{}{}:
		defer func() { <-s.posts }()
	default:
		s.Counter(countedTooMany)
		answer(w, http.StatusServiceUnavailable, "too many posts at once")
		return
	}
	if e.Type == typeChallenge {
		s.Counter(countedChallenge)
		s.challenge(w, r, p.data, e.Challenge)
		return
	}
	s.Verified(e.app())
	d := s.tap.Ask(plain)
	defer d.Settle(false) // unless it was settled before
	switch {
	case d.Verdict == feishu.Keep:
		s.Counter(conn.Kept)
		s.finish(d)
		d.Settle(true)
		answer(w, http.StatusOK, "success")
	case d.Verdict == feishu.Refuse:
		s.Counter(conn.Refused)
		answer(w, http.StatusServiceUnavailable, "the event could not be stored")
	default:
		if d.Instead != nil {
			s.replace(r, p, d.Instead)
		}
		if s.pass(w, r, p.data, d) && !d.Seen {
			s.tap.Missed(plain)
		}
	}
}

// finish waits for the follow-up of an event, which the bot has or does not get.
func (s *Server) finish(d *conn.Decision) {
	if !d.Wait() {
		s.Counter(countedAfterLate)
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

// refuse answers a post that was not received, and closes its connection without reading the rest of its body.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Connection", "close")
	switch {
	case errors.Is(err, errTooLarge):
		s.Counter(countedTooLarge)
		answer(w, http.StatusRequestEntityTooLarge, err.Error())
	case errors.Is(err, errNoRoom):
		s.Counter(countedTooMany)
		answer(w, http.StatusServiceUnavailable, err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.Counter(countedTooSlow)
		answer(w, http.StatusRequestTimeout, "the body came too slowly")
	case errors.Is(err, errForged):
		s.Counter(countedForged)
		s.warned.Do(func() { s.Logger.Warn("a post to the webhook was refused", "err", err) })
		answer(w, http.StatusForbidden, "this is not proven to be Feishu's") // the reason is for the log only
	default:
		answer(w, http.StatusBadRequest, "the body cannot be read")
	}
}

// pass posts an event to the bot, and answers Feishu with the bot's answer after the event's follow-up.
// pass reports whether the bot answered 200, and settles the event with that before Feishu gets the answer.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, body []byte, d *conn.Decision) (took bool) {
	// A post to the bot goes on when Feishu has stopped waiting.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.Timeout)
	defer cancel()
	resp, err := s.post(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				d.Begin()
			}
		},
	}), r, body)
	if err != nil {
		s.reached(0, err)
		s.Counter(countedBotAway)
		answer(w, http.StatusBadGateway, "the bot cannot be reached")
		return false
	}
	defer resp.Body.Close()
	took = resp.StatusCode == http.StatusOK
	s.Counter(conn.Passed)
	s.finish(d)
	d.Settle(took)
	feishu.CopyHeader(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // Feishu posts again if it does not get all
	return took
}

// challenge lets the bot answer a challenge, and answers it itself if the bot
// does not: Feishu waits for 1 s (docs/feishu.md 2.1).
func (s *Server) challenge(w http.ResponseWriter, r *http.Request, body []byte, challenge string) {
	ctx, cancel := context.WithTimeout(r.Context(), challengeTime)
	defer cancel()
	resp, err := s.post(ctx, r, body)
	if err == nil {
		defer resp.Body.Close()
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(resp.Body, maxChallenge)); err == nil {
			feishu.CopyHeader(w.Header(), resp.Header)
			w.Header().Del("Content-Length")
			w.WriteHeader(resp.StatusCode)
			_, _ = w.Write(text)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(map[string]string{"challenge": challenge})
}

// post sends a post of Feishu to the bot.
func (s *Server) post(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target(r.URL.RawQuery), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	feishu.ForwardHeader(req.Header, r.Header)
	return s.do(req)
}

// do makes a post to the bot, and records whether it reached it.
func (s *Server) do(req *http.Request) (*http.Response, error) {
	resp, err := s.client.Do(req)
	switch {
	case err == nil:
		s.reached(resp.StatusCode, nil)
	case req.Context().Err() == nil:
		s.reached(0, err)
	}
	return resp, err
}

// target returns the bot's address with the query of Feishu's post added.
func (s *Server) target(rawQuery string) string {
	u := *s.bot
	switch {
	case u.RawQuery == "":
		u.RawQuery = rawQuery
	case rawQuery != "":
		u.RawQuery += "&" + rawQuery
	}
	return u.String()
}

// answer answers in the SDKs' form: {"msg":"…"}.
func answer(w http.ResponseWriter, status int, msg string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"msg":%q}`, msg)
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
)

// maxSkew is how far a signed timestamp may differ from the clock: a recorded post cannot be replayed later.
const maxSkew = time.Hour

// admit checks the header of a post, before the body is read, and
// returns how many bytes the body may have.
func (s *Server) admit(r *http.Request) (most int, err error) {
	most = maxBody
	if s.EncryptKey != "" {
		switch signature := r.Header.Get("X-Lark-Signature"); {
		case signature == "":
			most = maxUnsigned
		case len(signature) != 2*sha256.Size && !(len(signature) == 2*sha1.Size && r.URL.Path == CardPath):
			return 0, errSignature
		case !isFresh(r.Header):
			return 0, errTimestamp
		}
	}
	if r.ContentLength > int64(most) {
		return 0, errTooLarge
	}
	return most, nil
}

// isFresh reports whether the timestamp of a post, in Unix seconds, is near the clock's.
func isFresh(h http.Header) bool {
	seconds, err := strconv.ParseInt(h.Get("X-Lark-Request-Timestamp"), 10, 64)
	return err == nil && time.Since(time.Unix(seconds, 0)).Abs() <= maxSkew
}

// verify checks that a post is Feishu's (docs/feishu.md 2.3) and returns its
// decrypted contents. With an encrypt key the signature must be right, except
// that an encrypted challenge need not have one; with a verification token the token must match. The
// callbacks of old cards are signed with the verification token, and contain another token.
// A signature is checked before anything is parsed or decrypted.
func (s *Server) verify(r *http.Request, body []byte) (plain []byte, e envelope, err error) {
	old := r.URL.Path == CardPath && s.oldCard(r.Header, body)
	if old && !isFresh(r.Header) {
		return nil, e, errTimestamp
	}
	signature := r.Header.Get("X-Lark-Signature")
	if s.EncryptKey != "" && signature != "" && !old {
		want := feishu.Sign(r.Header.Get("X-Lark-Request-Timestamp"), r.Header.Get("X-Lark-Request-Nonce"), s.EncryptKey,
			body)
		if !same(signature, want) {
			return nil, e, errSignature
		}
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

// oldCard reports whether a callback of a card is signed in the way that was
// used before card.action.trigger: with SHA-1 and the verification token.
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

// Bounds of what posts hold in memory.
const (
	maxBody     = 1 << 20         // bytes of a body; a larger one is refused with 413
	maxUnsigned = 4 << 10         // bytes of a body without a signature, where posts are signed: a challenge
	maxBodies   = 8 << 20         // bytes of all bodies that are not verified; beyond, some make room
	maxVerified = 32 << 20        // bytes of all bodies that are being verified, or are and wait for the bot
	firstRead   = 4 << 10         // bytes that a post holds from the start; so maxBodies bounds their number, too
	maxVerify   = 4               // bodies that are verified at a time; the others wait
	readTimeout = 5 * time.Second // for a body; then its sender is dropped with 408. Feishu itself waits 3 s
)

var (
	errTooLarge = errors.New("the body is too large")
	errNoRoom   = errors.New("too many posts at once")
)

// budget is the memory for all bodies. Feishu's own posts are small, and are read and
// verified within milliseconds. So a post that needs more than is left takes the memory of unverified ones that
// began before it or hold at least as much: first of the largest, of several the oldest.
type budget struct {
	mu       sync.Mutex
	left     int     // guarded by mu
	verified int     // left for verified bodies; guarded by mu
	waiting  []*body // not verified yet, oldest first; guarded by mu
}

// body is the body of one post.
type body struct {
	of      *budget
	data    []byte
	held    int           // guarded by of.mu
	kept    int           // guarded by of.mu
	dropped chan struct{} // closed when it had to make room; guarded by of.mu
	cut     func()        // ends its reading
}

// begin returns a body to be read. cut ends its reading from another goroutine.
func (b *budget) begin(cut func()) *body {
	p := &body{of: b, dropped: make(chan struct{}), cut: cut}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, p)
	return p
}

// reserve lets p hold size bytes, or reports that there is no room.
func (b *budget) reserve(p *body, size int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.waiting, p) {
		return false // dropped
	}
	for b.left < size-p.held {
		var largest *body
		most, earlier := 0, true
		for _, other := range b.waiting {
			if other == p {
				earlier = false
			} else if other.held > most && (earlier || other.held >= size) {
				largest, most = other, other.held
			}
		}
		if largest == nil {
			return false
		}
		b.free(largest)
		close(largest.dropped)
		largest.cut()
	}
	b.left -= size - p.held
	p.held = size
	return true
}

// free returns the memory of p to the budget. The caller holds b.mu.
func (b *budget) free(p *body) {
	b.waiting = slices.DeleteFunc(b.waiting, func(other *body) bool { return other == p })
	b.left += p.held
	b.verified += p.kept
	p.held, p.kept = 0, 0
}

// keep keeps p until it is released. It is false if p was dropped before or there is no room.
func (p *body) keep() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !slices.Contains(p.of.waiting, p) || p.of.verified < len(p.data) {
		return false
	}
	p.of.free(p)
	p.data = bytes.Clone(p.data) // without the room for more
	p.kept = len(p.data)
	p.of.verified -= p.kept
	return true
}

// release returns the memory of p to the budget. It may be called again.
func (p *body) release() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.free(p)
}

// read reads at most most bytes.
func (p *body) read(r io.Reader, most int) error {
	data, whole, err := feishu.ReadUpTo(r, firstRead, most, func(size int) bool { return p.of.reserve(p, size) })
	p.data = data
	switch {
	case errors.Is(err, feishu.ErrNoRoom):
		return errNoRoom
	case err == nil && !whole:
		return errTooLarge
	}
	return err
}
