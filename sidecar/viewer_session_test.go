//go:build unix

package sidecar_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"feishu-relay/internal/test/browsertest"
	"feishu-relay/relay"
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

// The sidecar is killed and comes back: the page says so, and shows once what was
// said meanwhile.
func viewLostConnection(t *testing.T, browser *browsertest.Browser) {
	const chat = "oc_lost"
	ctx := limited(t)
	c := newCluster(t, setup{bots: 2, change: func(i int, cfg *sidecar.Config) {
		standardLimits(i, cfg)
		if i == 0 {
			cfg.ListenAddr = freeAddr(t) // the browser comes back to the same
		}
	}})
	a, b := c.bots[0], c.bots[1]
	p := view(t, browser, a, "", browsertest.Options{})
	p.Expect("net::ERR_")
	sameLoad := stays(t, p)
	var want []string
	say := func(b *bot, n int) {
		for range n {
			id := fmt.Sprintf("om_%d", len(want))
			b.hears(ctx, t, chat, relay.MessageID(id), "Tom", "message "+id)
			want = append(want, id)
		}
	}
	say(a, 3)
	p.Click(is("group", "chat-id", chat))
	shows(p, message("om_2"))
	for range 2 {
		a.side.kill()
		p.Wait("that the connection is lost", `document.querySelector('[data-testid=connection]').dataset.state !== 'live'`)
		say(b, 3)
		task := relay.MessageID(fmt.Sprintf("om_%d", len(want)))
		b.says(ctx, t, chat, task, "@agent_a please write a test for main.go", nil)
		want = append(want, string(task))
		a.side.start("")
		shows(p, is("connection", "state", "live"))
		shows(p, message(task)+" "+is("outcome", "agent", a.name, "state", "pass")) // nobody tells that again
		say(a, 2)
		shows(p, message(relay.MessageID(want[len(want)-1])))
	}
	// What is said now may come before what is read of the time without a connection. Messages of one
	// millisecond have no order.
	const shown = `[...document.querySelectorAll('[data-testid="message"]')].map((m) => m.dataset.messageId)`
	p.Wait("all messages", fmt.Sprintf("%s.length >= %d", shown, len(want)))
	if got := browsertest.Eval[[]string](p, shown+".sort()"); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("got messages %v, want %v", got, want)
	}
	sameLoad()
}
