package httpapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/language"

	"feishu-relay/internal/web"
	"feishu-relay/internal/weborigin"
	"feishu-relay/relay"
)

// sessionLife is how long a browser stays signed in. A new token ends every
// session at once.
const sessionLife = 30 * 24 * time.Hour

// sessions authorises browsers that have sent the token once. A session is a
// cookie with its end, a random text and, as a proof, the HMAC of both under the
// token. Signing out in one browser ends all sessions, so that only that time is stored.
type sessions struct {
	token  string // of people; "": every caller on this host is authorised
	cookie string // its name
	store  func(time.Time) error

	mu    sync.Mutex
	ended time.Time       // sessions that began by then are over; guarded by mu
	live  context.Context // of the requests of the others; guarded by mu
	stop  context.CancelFunc
}

// newSessions names the cookie after the sidecar: browsers share cookies between
// all ports of a host.
func newSessions(token string, o *Options) *sessions {
	sum := sha256.Sum256([]byte(o.Name))
	s := &sessions{token: token, cookie: "feishu_relay_" + hex.EncodeToString(sum[:4]), ended: o.SignedOut,
		store: o.SignOut}
	s.live, s.stop = context.WithCancel(context.Background())
	return s
}

func (s *sessions) mac(text string) string {
	h := hmac.New(sha256.New, []byte(s.token))
	h.Write([]byte("feishu-relay session " + text))
	return hex.EncodeToString(h.Sum(nil))
}

// begin returns the value of a new session's cookie.
func (s *sessions) begin() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := max(time.Now().UnixNano(), s.ended.UnixNano()+1) // the clock may have been set back
	claims := strconv.FormatInt(now+int64(sessionLife), 10) + "." + rand.Text()
	return claims + "." + s.mac(claims)
}

// of returns a context that lasts as long as the session of r, or nil. forged reports that the
// session's proof was not made with the token, which may have changed.
func (s *sessions) of(r *http.Request) (live context.Context, forged bool) {
	c, err := r.Cookie(s.cookie)
	if err != nil || c.Value == "" {
		return nil, false
	}
	dot := strings.LastIndexByte(c.Value, '.')
	claims, proof := c.Value[:max(0, dot)], c.Value[dot+1:]
	text, _, _ := strings.Cut(claims, ".")
	if !hmac.Equal([]byte(proof), []byte(s.mac(claims))) {
		return nil, true
	}
	end, err := strconv.ParseInt(text, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || time.Now().UnixNano() >= end || !time.Unix(0, end).Add(-sessionLife).After(s.ended) {
		return nil, false
	}
	return s.live, false
}

// serve serves r, a request of a session, until that is over.
func serve(next http.Handler, w http.ResponseWriter, r *http.Request, live context.Context) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(live, cancel)()
	next.ServeHTTP(w, r.WithContext(ctx))
}

// end ends all sessions, now and after a restart.
func (s *sessions) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	s.live, s.stop = context.WithCancel(context.Background())
	s.ended = time.Now()
	if s.store == nil {
		return nil
	}
	return s.store(s.ended)
}

// isToken reports whether given is the token, in constant time.
func isToken(given, token string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1
}

func (s *sessions) set(w http.ResponseWriter, r *http.Request, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: value, Path: "/", MaxAge: int(life.Seconds()), HttpOnly: true,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", SameSite: http.SameSiteStrictMode})
}

var errTooMany = relay.Errorf(web.CodeTooManyFailures,
	"too many wrong tokens or sessions from this address; the right token is accepted at any time")

// tooMany counts r, a request with a wrong token or a forged session, and reports whether its address has
// sent too many. Then it sets Retry-After.
func (a *api) tooMany(w http.ResponseWriter, r *http.Request) bool {
	wait := a.Failures.Count(r.RemoteAddr)
	a.Logger.Warn("a wrong API token or session was refused", "addr", r.RemoteAddr, "too_many", wait > 0)
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(wait))
	}
	return wait > 0
}

// signIn serves POST /sign-in: the form field token, answered with a session
// and a redirect to the viewer, or with the form again.
func (a *api) signIn(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.Token == "":
		toPage(w)
		return
	case weborigin.Foreign(nil, r):
		web.WriteError(w, errCrossOrigin)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
	if !isToken(r.PostFormValue("token"), a.sessions.token) {
		status, fault := http.StatusUnauthorized, "wrong"
		if a.tooMany(w, r) {
			status, fault = http.StatusTooManyRequests, "busy"
		}
		a.signInPage(w, r, status, fault)
		return
	}
	a.sessions.set(w, r, a.sessions.begin(), sessionLife)
	toPage(w)
}

// signOut serves POST /sign-out: it ends the sessions of all browsers.
func (a *api) signOut(w http.ResponseWriter, r *http.Request) {
	if weborigin.Foreign(nil, r) {
		web.WriteError(w, errCrossOrigin)
		return
	}
	live, forged := a.sessions.of(r)
	if a.Token != "" && forged && a.tooMany(w, r) {
		web.WriteError(w, errTooMany)
		return
	}
	if a.Token != "" && live != nil {
		if err := a.sessions.end(); err != nil {
			a.Logger.Error("signing out cannot be stored; the sessions are valid again after a restart", "err", err)
		}
		a.sessions.set(w, r, "", -time.Second)
	}
	toPage(w)
}

// toPage redirects a browser to the viewer. The target is relative, since a reverse proxy may
// have removed a path prefix. The browser keeps the fragment, which names a place in the page.
func toPage(w http.ResponseWriter) {
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// wantsPage reports whether r is a browser's request for the viewer.
func wantsPage(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

//go:embed signin.html
var signInHTML string

// signInScript allows the only script of the form, which keeps the fragment of a link.
var signInScript = func() string {
	_, rest, _ := strings.Cut(signInHTML, "<script>")
	script, _, _ := strings.Cut(rest, "</script>")
	sum := sha256.Sum256([]byte(script))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

var languages = language.NewMatcher([]language.Tag{language.English, language.Chinese})

// signInWords are the words of the form, in the order of languages. (A template
// of the standard library would make the whole program larger by a third: the
// linker then keeps every method there is.)
var signInWords = []map[string]string{
	{"lang": "en", "ask": "Enter this sidecar's %s.", "button": "Sign in",
		"wrong": "That is not the token.", "busy": "Too many wrong tokens. The right one is accepted at any time."},
	{"lang": "zh", "ask": "请输入这个 sidecar 的 %s。", "button": "登录",
		"wrong": "令牌不对。", "busy": "错误的令牌过多；正确的令牌随时可以登录。"},
}

// signInPage serves the form for the token of people, in the browser's language; fault is
// "", "wrong" or "busy".
func (a *api) signInPage(w http.ResponseWriter, r *http.Request, status int, fault string) {
	_, i := language.MatchStrings(languages, r.Header.Get("Accept-Language"))
	words, token := signInWords[i], "API_TOKEN"
	if a.AdminToken != "" {
		token = "ADMIN_TOKEN"
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src "+signInScript+"; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = strings.NewReplacer("{{lang}}", words["lang"], "{{ask}}", fmt.Sprintf(words["ask"], token), "{{token}}", token,
		"{{fault}}", words[fault], "{{button}}", words["button"]).WriteString(w, signInHTML) // fails if the caller is gone
}
