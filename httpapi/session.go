package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/time/rate"
)

// sessionLife is how long a browser stays signed in. Another API_TOKEN ends
// every session at once.
const sessionLife = 30 * 24 * time.Hour

// Tries to sign in, of all browsers together: beyond these it is 429.
const (
	signInRate  = rate.Limit(1) // a second
	signInBurst = 10
)

// sessions lets a browser in that has shown the token once. A session is a
// cookie that holds its end and, as a proof, the HMAC of that by the token:
// nothing is kept here, and the token itself is not in the browser.
type sessions struct {
	token string // "": everybody on this host may call
	tries *rate.Limiter
	now   func() time.Time
}

func newSessions(token string) *sessions {
	return &sessions{token, rate.NewLimiter(signInRate, signInBurst), time.Now}
}

// cookie is the name of the cookie. Browsers share cookies among all ports of a
// host, so sidecars with several tokens have several names.
func (s *sessions) cookie() string { return "feishu_relay_" + s.mac("cookie")[:8] }

func (s *sessions) mac(text string) string {
	h := hmac.New(sha256.New, []byte(s.token))
	h.Write([]byte("feishu-relay session " + text))
	return hex.EncodeToString(h.Sum(nil))
}

// valid reports whether r brings a session that has not ended.
func (s *sessions) valid(r *http.Request) bool {
	c, err := r.Cookie(s.cookie())
	if err != nil {
		return false
	}
	end, proof, _ := strings.Cut(c.Value, ".")
	seconds, err := strconv.ParseInt(end, 10, 64)
	return err == nil && s.now().Unix() < seconds && hmac.Equal([]byte(proof), []byte(s.mac(end)))
}

// isToken reports whether given is the token, in a time that does not tell how
// much of it is right.
func (s *sessions) isToken(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.token)) == 1
}

func (s *sessions) set(w http.ResponseWriter, r *http.Request, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: value, Path: "/", MaxAge: int(life.Seconds()), HttpOnly: true,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", SameSite: http.SameSiteStrictMode})
}

// signIn serves POST /sign-in: the form field token, answered with a session
// and the way to the viewer, or with the form again.
func (a *api) signIn(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.Token == "":
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	case a.origins.Check(r) != nil:
		writeError(w, errCrossOrigin)
		return
	case !a.sessions.tries.Allow():
		w.Header().Set("Retry-After", "1")
		signInPage(w, r, http.StatusTooManyRequests, "busy")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 8<<10)
	if !a.sessions.isToken(r.PostFormValue("token")) {
		signInPage(w, r, http.StatusUnauthorized, "wrong")
		return
	}
	end := strconv.FormatInt(a.sessions.now().Add(sessionLife).Unix(), 10)
	a.sessions.set(w, r, end+"."+a.sessions.mac(end), sessionLife)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// signOut serves POST /sign-out: this browser's session ends, if it has not yet.
// (To others not even the name of the cookie is told, which is made of the token.)
func (a *api) signOut(w http.ResponseWriter, r *http.Request) {
	if a.origins.Check(r) != nil {
		writeError(w, errCrossOrigin)
		return
	}
	if a.Token != "" && a.sessions.valid(r) {
		a.sessions.set(w, r, "", -time.Second)
	}
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// wantsPage reports whether r is a person's browser that opens the viewer.
func wantsPage(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == "/" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

//go:embed signin.html
var signInHTML string

var languages = language.NewMatcher([]language.Tag{language.English, language.Chinese})

// signInWords are the words of the form, in the order of languages. (A template
// of the standard library would make the whole program larger by a third: the
// linker then keeps every method there is.)
var signInWords = []map[string]string{
	{"lang": "en", "ask": "Enter this sidecar's API_TOKEN.", "button": "Sign in",
		"wrong": "That is not the token.", "busy": "Too many tries. Wait a moment."},
	{"lang": "zh", "ask": "请输入这个 sidecar 的 API_TOKEN。", "button": "登录",
		"wrong": "令牌不对。", "busy": "尝试次数过多，请稍候再试。"},
}

// signInPage asks a person for the token, in the browser's language; fault is
// "", "wrong" or "busy".
func signInPage(w http.ResponseWriter, r *http.Request, status int, fault string) {
	_, i := language.MatchStrings(languages, r.Header.Get("Accept-Language"))
	words := signInWords[i]
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = strings.NewReplacer("{{lang}}", words["lang"], "{{ask}}", words["ask"], "{{fault}}", words[fault],
		"{{button}}", words["button"]).WriteString(w, signInHTML) // the caller has gone
}
