package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/httpapi"
	"feishu-relay/internal/attempts"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/relay"
)

// browser is a client that keeps cookies and goes where it is sent.
func browser(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar}
}

func open(t *testing.T, b *http.Client, url string) (status int, kind string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	resp, err := b.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Content-Type")
}

func TestSessionsAreNotMadeUp(t *testing.T) {
	f := newFakes()
	f.Token = "s3cret"
	w := ask(f, "POST", "/sign-in", "token=s3cret", apitest.Header("Content-Type", "application/x-www-form-urlencoded"))
	cookie := w.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie %v: want HttpOnly and SameSite=Strict", cookie)
	}
	get := func(f *fakes, c string) int { return ask(f, "GET", "/v1/status", "", apitest.Header("Cookie", c)).Code }
	whole := cookie.Name + "=" + cookie.Value
	if got := get(f, whole); got != 200 {
		t.Fatalf("the session: got %d", got)
	}
	for _, path := range []string{"/v1/status", "/v1/events"} { // another page cannot use it
		w := ask(f, "GET", path, "", apitest.Header("Cookie", whole), apitest.Header("Sec-Fetch-Site", "cross-site"))
		apitest.WantError(t, w, 403, "cross_origin")
	}
	end, proof, _ := strings.Cut(cookie.Value, ".")
	other := newFakes()
	other.Token = "another"
	for name, tt := range map[string]struct {
		f      *fakes
		cookie string
	}{
		"a later end":       {f, cookie.Name + "=9" + end + "." + proof},
		"an end long past":  {f, cookie.Name + "=1." + proof},
		"no proof":          {f, cookie.Name + "=" + end},
		"nothing":           {f, cookie.Name + "="},
		"another name":      {f, "feishu_relay_0=" + cookie.Value},
		"another API_TOKEN": {other, whole},
	} {
		if got := get(tt.f, tt.cookie); got != 401 {
			t.Errorf("%s: got %d, want 401", name, got)
		}
	}
	// A wrong token is not made good by a session.
	if got := ask(f, "GET", "/v1/status", "", apitest.Header("Cookie", whole), apitest.Header("Authorization", "Bearer wrong")).Code; got != 401 {
		t.Errorf("a wrong bearer token beside a session: got %d", got)
	}
}

// With a token for people the bot's own neither steers nor opens the viewer; everything else is open to both.
func TestTheBotsTokenSteersNothing(t *testing.T) {
	f := newFakes()
	f.Token, f.AdminToken = "the bot's", "people's"
	var steers []bool
	f.Hear = func(_ context.Context, _ relay.Heard, s bool) (relay.Sent, error) {
		steers = append(steers, s)
		return relay.Sent{}, nil
	}
	bot, person := apitest.Header("Authorization", "Bearer the bot's"), apitest.Header("Authorization", "Bearer people's")
	doc, err := apitest.Contract()
	if err != nil {
		t.Fatal(err)
	}
	routes := 0
	for path, item := range doc.Paths.Map() {
		path = strings.NewReplacer("{chat}", "oc_x", "{file}", "app.js").Replace(path)
		for method, op := range item.Operations() {
			if op.Security == nil || len(*op.Security) == 0 {
				continue
			}
			routes++
			w := call(t, f, method, path, "", bot)
			if message := apitest.WantError(t, w, 403, "admin_token_required"); !strings.Contains(message, "ADMIN_TOKEN") {
				t.Errorf("%s %s does not name the variable: %s", method, path, message)
			}
		}
	}
	if routes != 6 {
		t.Errorf("the contract has %d routes for people", routes)
	}
	for _, who := range []func(*http.Request){bot, person} {
		for _, path := range []string{"/v1/status", "/v1/transcripts", "/metrics"} {
			if w := ask(f, "GET", path, "", who); w.Code != 200 {
				t.Errorf("%s: got %d %s", path, w.Code, w.Body)
			}
		}
		call(t, f, "POST", "/v1/inbound", `{"chat_id":"oc_x","content":"hi","ts":1795211093522}`, who)
	}
	if !slices.Equal(steers, []bool{false, true}) {
		t.Errorf("who reports commands: %v", steers)
	}
	if w := ask(f, "GET", "/viewer/app.js", "", person); w.Code != 200 {
		t.Errorf("the viewer: got %d for people", w.Code)
	}
	form := apitest.Header("Content-Type", "application/x-www-form-urlencoded")
	w := ask(f, "POST", "/sign-in", "token=the bot's", form)
	if w.Code != 401 || !strings.Contains(w.Body.String(), "ADMIN_TOKEN") {
		t.Errorf("the bot signs in: %d %s", w.Code, w.Body)
	}
	cookie := ask(f, "POST", "/sign-in", "token=people's", form).Result().Cookies()[0]
	if w := ask(f, "GET", "/", "", apitest.Header("Cookie", cookie.Name+"="+cookie.Value)); w.Code != 200 {
		t.Errorf("the viewer: got %d in a session", w.Code)
	}
}

// Programs on one host share an address, so the right token is let in whatever the others tried.
func TestGuessesOfTheTokenAreLimitedByAddress(t *testing.T) {
	const token = "s3cret"
	for name, request := range map[string]func(token string) *http.Request{
		"bearer": func(token string) *http.Request {
			r := httptest.NewRequest("GET", "/v1/status", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			return r
		},
		"sign-in": func(token string) *http.Request {
			r := httptest.NewRequest("POST", "/sign-in", strings.NewReader("token="+token))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return r
		},
		"session": func(token string) *http.Request { // what it proves depends on the token alone
			r := httptest.NewRequest("GET", "/v1/status", nil)
			f := newFakes()
			f.Token = token
			form := apitest.Header("Content-Type", "application/x-www-form-urlencoded")
			r.AddCookie(ask(f, "POST", "/sign-in", "token="+token, form).Result().Cookies()[0])
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakes()
			f.Token = token
			handler := httpapi.New(f.Options)
			try := func(token, from string) *httptest.ResponseRecorder {
				r, w := request(token), httptest.NewRecorder()
				r.RemoteAddr = from
				handler.ServeHTTP(w, r)
				return w
			}
			got := map[int]int{}
			for i := range 100 {
				w := try("guess", fmt.Sprintf("192.0.2.1:%d", 1000+i))
				got[w.Code]++
				retry, err := strconv.Atoi(w.Header().Get("Retry-After"))
				if (w.Code == 429) != (err == nil && retry > 0) {
					t.Fatalf("guess %d: got %d with Retry-After %q", i, w.Code, w.Header().Get("Retry-After"))
				}
			}
			if got[401] != attempts.PerMinute || got[429] == 0 || got[401]+got[429] != 100 {
				t.Errorf("a hundred guesses: got %v, want %d times 401 and then 429", got, attempts.PerMinute)
			}
			if w := try(token, "192.0.2.1:1"); w.Code >= 400 {
				t.Errorf("the right token from that address: got %d", w.Code)
			}
			if w := try("guess", "192.0.2.2:1"); w.Code != 401 {
				t.Errorf("a guess from another address: got %d, want 401", w.Code)
			}
		})
	}
}

// A browser signs in once. When somebody signs out all sessions are over, also copies of their cookies, and in another
// process.
func TestSessionsThatWereSignedOutAreOver(t *testing.T) {
	var stored time.Time
	start := func() *fakes {
		f := newFakes()
		f.Token, f.SignedOut, f.SignOut = "s3cret", stored, func(at time.Time) error { stored = at; return nil }
		return f
	}
	f := start()
	server := httptest.NewServer(httpapi.New(f.Options))
	defer server.Close()
	b, other := browser(t), browser(t)
	if status, kind := open(t, b, server.URL); status != 401 || !strings.HasPrefix(kind, "text/html") {
		t.Fatalf("a stranger: got %d %s, want the form", status, kind)
	}
	if status, kind := open(t, b, server.URL+"/v1/status"); status != 401 || !strings.HasPrefix(kind, "application/json") {
		t.Errorf("the API: got %d %s, want an error in JSON", status, kind)
	}
	if resp, err := b.PostForm(server.URL+"/sign-in", url.Values{"token": {"wrong"}}); err != nil || resp.StatusCode != 401 {
		t.Fatalf("a wrong token: %v %v", resp, err)
	}
	for _, b := range []*http.Client{b, other} {
		resp, err := b.PostForm(server.URL+"/sign-in", url.Values{"token": {"s3cret"}})
		if err != nil || resp.StatusCode != 200 || resp.Request.URL.Path != "/" {
			t.Fatalf("sign in: %v %v, want the viewer", resp, err)
		}
	}
	here, _ := url.Parse(server.URL)
	copied := b.Jar.Cookies(here)[0]
	if strings.Contains(copied.Value, "s3cret") {
		t.Error("the token itself is in the cookie")
	}
	stream, err := b.Get(server.URL + "/v1/events")
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("the stream: %v %v", stream, err)
	}
	defer stream.Body.Close()
	if _, err := b.PostForm(server.URL+"/sign-out", nil); err != nil {
		t.Fatal(err)
	}
	with := func(f *fakes) int {
		return ask(f, "GET", "/v1/status", "", apitest.Header("Cookie", copied.String())).Code
	}
	_, _ = io.Copy(io.Discard, stream.Body) // ends: the session is over
	if status, _ := open(t, other, server.URL+"/v1/status"); status != 401 {
		t.Errorf("another browser: got %d, want 401", status)
	}
	resp, err := other.PostForm(server.URL+"/sign-in", url.Values{"token": {"s3cret"}})
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("sign in again: %v %v", resp, err)
	}
	if got := with(start()); got != 401 {
		t.Errorf("a copy of the cookie after a restart: got %d, want 401", got)
	}
}
