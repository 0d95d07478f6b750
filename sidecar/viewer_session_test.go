//go:build unix

package sidecar_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"feishu-relay/internal/test/browsertest"
	"feishu-relay/sidecar"
)

// With an API_TOKEN the page is behind a form; scripts cannot read the session.
func viewWithToken(t *testing.T, browser *browsertest.Browser) {
	const token = "a token that nobody guesses"
	c := prepare(t, setup{bots: 1, change: func(_ int, cfg *sidecar.Config) { cfg.APIToken = token }})
	c.bots[0].side.start("")
	p := view(t, browser, c.bots[0], "#/system", browsertest.Options{})
	p.Expect("401 (Unauthorized)")
	signIn := func(with string) {
		p.Click("#token")
		p.Press(with + "\r")
	}
	signIn("not it")
	p.Wait("that it was wrong", `document.querySelector('[role=alert]')?.innerText === 'That is not the token.'`)
	signIn(token)
	shows(p, is("connection", "state", "live"))
	if got := browsertest.Eval[string](p, `location.hash`); got != "#/system" {
		t.Errorf("after signing in the page is at %q, want the place of the link", got)
	}
	shows(p, is("ready", "state", "pass"))
	p.Click(is("nav-groups"))
	shows(p, is("empty"))
	p.Click(is("nav-system"))
	shows(p, is("ready", "state", "pass"))
	cookies := cookiesOf(p)
	if len(cookies) != 1 || !cookies[0].HTTPOnly || cookies[0].SameSite != network.CookieSameSiteStrict || strings.Contains(cookies[0].Value, token) {
		t.Errorf("got cookies %+v, want one that is HttpOnly, strict, and not the token", cookies)
	}
	if got := browsertest.Eval[string](p, `document.cookie + JSON.stringify(localStorage)`); strings.Contains(got, "feishu_relay_") || strings.Contains(got, token) {
		t.Errorf("a script of the page can read %q", got)
	}
	p.Click(is("sign-out"))
	shows(p, "#token")
	if cookies := cookiesOf(p); len(cookies) > 0 {
		t.Errorf("after signing out there are cookies %+v", cookies)
	}
	p.Do(chromedp.Reload())
	shows(p, "#token")
}

func cookiesOf(p *browsertest.Page) []*network.Cookie {
	return browsertest.Run(p, func(ctx context.Context, target *chromedp.Target) ([]*network.Cookie, error) {
		result, err := cdp.Call(ctx, target, network.GetCookies, network.GetCookiesParams{})
		return result.Cookies, err
	})
}
