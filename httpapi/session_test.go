package httpapi_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"feishu-relay/httpapi"
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

func TestABrowserSignsInOnce(t *testing.T) {
	f := newFakes()
	f.Token = "s3cret"
	server := httptest.NewServer(httpapi.New(f.Options))
	defer server.Close()
	b := browser(t)
	if status, kind := open(t, b, server.URL); status != 401 || !strings.HasPrefix(kind, "text/html") {
		t.Fatalf("a stranger: got %d %s, want the form", status, kind)
	}
	if status, kind := open(t, b, server.URL+"/v1/status"); status != 401 || !strings.HasPrefix(kind, "application/json") {
		t.Errorf("the API: got %d %s, want an error in JSON", status, kind)
	}
	if resp, err := b.PostForm(server.URL+"/sign-in", url.Values{"token": {"wrong"}}); err != nil || resp.StatusCode != 401 {
		t.Fatalf("a wrong token: %v %v", resp, err)
	}
	if status, _ := open(t, b, server.URL+"/v1/status"); status != 401 {
		t.Errorf("after a wrong token: got %d", status)
	}
	resp, err := b.PostForm(server.URL+"/sign-in", url.Values{"token": {"s3cret"}})
	if err != nil || resp.StatusCode != 200 || resp.Request.URL.Path != "/" {
		t.Fatalf("the token: %v %v, want the viewer", resp, err)
	}
	here, _ := url.Parse(server.URL)
	for _, c := range b.Jar.Cookies(here) {
		if strings.Contains(c.Value, "s3cret") {
			t.Error("the token itself is in the cookie")
		}
	}
	if status, _ := open(t, b, server.URL+"/v1/status"); status != 200 {
		t.Errorf("signed in: got %d", status)
	}
	if _, err := b.PostForm(server.URL+"/sign-out", nil); err != nil {
		t.Fatal(err)
	}
	if status, _ := open(t, b, server.URL+"/v1/status"); status != 401 {
		t.Errorf("signed out: got %d", status)
	}
}

func TestSessionsAreNotMadeUp(t *testing.T) {
	f := newFakes()
	f.Token = "s3cret"
	w := ask(f, "POST", "/sign-in", "token=s3cret", header("Content-Type", "application/x-www-form-urlencoded"))
	cookie := w.Result().Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie %v: want HttpOnly and SameSite=Strict", cookie)
	}
	get := func(f *fakes, c string) int { return ask(f, "GET", "/v1/status", "", header("Cookie", c)).Code }
	whole := cookie.Name + "=" + cookie.Value
	if got := get(f, whole); got != 200 {
		t.Fatalf("the session: got %d", got)
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
	if got := ask(f, "GET", "/v1/status", "", header("Cookie", whole), header("Authorization", "Bearer wrong")).Code; got != 401 {
		t.Errorf("a wrong bearer token beside a session: got %d", got)
	}
}

func TestOtherPagesCannotUseASession(t *testing.T) {
	f := newFakes()
	f.Token = "s3cret"
	form := header("Content-Type", "application/x-www-form-urlencoded")
	cookie := ask(f, "POST", "/sign-in", "token=s3cret", form).Result().Cookies()[0]
	session, foreign := header("Cookie", cookie.Name+"="+cookie.Value), header("Sec-Fetch-Site", "cross-site")
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/v1/outbound", `{"chat_id":"oc_x","content":"hi"}`}, {"POST", "/sign-in", "token=s3cret"}, {"GET", "/v1/events", ""},
	} {
		wantError(t, ask(f, tt.method, tt.path, tt.body, form, session, foreign), 403, "cross_origin")
	}
	if len(f.sent) > 0 {
		t.Error("a message was sent")
	}
}

func TestSigningOutTwiceLeadsToTheForm(t *testing.T) {
	f := newFakes()
	f.Token = "s3cret"
	for name, cookie := range map[string]string{"no session": "", "one that has ended": "feishu_relay_0=1.x"} {
		w := ask(f, "POST", "/sign-out", "", header("Cookie", cookie))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" || len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: got %d %v, want the way to the form", name, w.Code, w.Header())
		}
	}
	wantError(t, ask(f, "POST", "/sign-out", "", header("Sec-Fetch-Site", "cross-site")), 403, "cross_origin")
}

func TestGuessingTheTokenIsSlow(t *testing.T) {
	f := newFakes()
	f.Token = "s3cret"
	server := httptest.NewServer(httpapi.New(f.Options))
	defer server.Close()
	for range 100 {
		resp, err := http.PostForm(server.URL+"/sign-in", url.Values{"token": {"guess"}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("a hundred guesses were answered")
}

func TestWithoutATokenThereIsNothingToSignInto(t *testing.T) {
	f := newFakes()
	if w := ask(f, "POST", "/sign-in", "token=x", header("Content-Type", "application/x-www-form-urlencoded")); w.Code != 303 || len(w.Result().Cookies()) > 0 {
		t.Errorf("got %d %v, want the way to the viewer", w.Code, w.Result().Cookies())
	}
}
