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

	"feishu-relay/dedup"
	"feishu-relay/internal/web"
	"feishu-relay/internal/weborigin"
	"feishu-relay/relay"
)

// sessionLife is how long a browser stays signed in. A new token ends every
// session at once.
const sessionLife = 30 * 24 * time.Hour

// MaxEnded is how many signed-out sessions are remembered; only a caller with
// the token can begin and end more.
const MaxEnded = 1000

// sessions authorises browsers that have sent the token once. A session is a
// cookie with its end, a random id and, as a proof, the HMAC of both under the
// token. Only signed-out sessions are stored.
type sessions struct {
	token  string // of people; "": every caller on this host is authorised
	cookie string // its name
	ended  *dedup.Window
	now    func() time.Time

	mu   sync.Mutex
	live map[string]map[*http.Request]context.CancelFunc // running requests by session id; guarded by mu
}

// newSessions names the cookie after the sidecar: browsers share cookies between
// all ports of a host.
func newSessions(token, name string, ended *dedup.Window) *sessions {
	if ended == nil {
		ended = dedup.Memory(MaxEnded)
	}
	sum := sha256.Sum256([]byte(name))
	return &sessions{token: token, cookie: "feishu_relay_" + hex.EncodeToString(sum[:4]), ended: ended, now: time.Now,
		live: map[string]map[*http.Request]context.CancelFunc{}}
}

func (s *sessions) mac(text string) string {
	h := hmac.New(sha256.New, []byte(s.token))
	h.Write([]byte("feishu-relay session " + text))
	return hex.EncodeToString(h.Sum(nil))
}

// begin returns the value of a new session's cookie.
func (s *sessions) begin() string {
	claims := strconv.FormatInt(s.now().Add(sessionLife).Unix(), 10) + "." + rand.Text()
	return claims + "." + s.mac(claims)
}

// of returns the id of the live session of r, or "". forged reports that the
// session's proof was not made with the token, which may have changed.
func (s *sessions) of(r *http.Request) (id string, forged bool) {
	c, err := r.Cookie(s.cookie)
	if err != nil || c.Value == "" {
		return "", false
	}
	dot := strings.LastIndexByte(c.Value, '.')
	claims, proof := c.Value[:max(0, dot)], c.Value[dot+1:]
	end, id, _ := strings.Cut(claims, ".")
	if !hmac.Equal([]byte(proof), []byte(s.mac(claims))) {
		return "", true
	}
	seconds, err := strconv.ParseInt(end, 10, 64)
	if err != nil || s.now().Unix() >= seconds || s.ended.Seen(id) {
		return "", false
	}
	return id, false
}

// serve serves r, a request of the session id, until the session is signed out.
func (s *sessions) serve(next http.Handler, w http.ResponseWriter, r *http.Request, id string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s.mu.Lock()
	if s.ended.Seen(id) { // signed out since the request came
		cancel()
	}
	if s.live[id] == nil {
		s.live[id] = map[*http.Request]context.CancelFunc{}
	}
	s.live[id][r] = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.live[id], r); len(s.live[id]) == 0 {
			delete(s.live, id)
		}
	}()
	next.ServeHTTP(w, r.WithContext(ctx))
}

// end ends a session, now and after a restart.
func (s *sessions) end(id string) error {
	if s.ended.Claim(id) != dedup.New {
		return nil
	}
	err := s.ended.Settle(id, true)
	s.mu.Lock()
	for _, cancel := range s.live[id] {
		cancel()
	}
	s.mu.Unlock()
	return err
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

// signOut serves POST /sign-out: it ends this browser's session.
func (a *api) signOut(w http.ResponseWriter, r *http.Request) {
	if weborigin.Foreign(nil, r) {
		web.WriteError(w, errCrossOrigin)
		return
	}
	id, forged := a.sessions.of(r)
	if a.Token != "" && forged && a.tooMany(w, r) {
		web.WriteError(w, errTooMany)
		return
	}
	if a.Token != "" && id != "" {
		if err := a.sessions.end(id); err != nil {
			a.Logger.Error("a signed-out session cannot be stored; it is valid again after a restart", "err", err)
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
