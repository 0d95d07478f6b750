package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxFeishuSkew is how far our clock may be from Feishu's before it is worth a
// word: messages carry Feishu's create_time, and expire by our clock.
const maxFeishuSkew = 60 * time.Second

// checkFeishu tries Feishu: with the app's credentials where they are
// configured, else only whether it answers.
func checkFeishu(ctx context.Context, c *subject) []finding {
	const name = "Feishu"
	if !c.KnowsFeishu() {
		return nil
	}
	f := &feishuCaller{base: c.BaseURL.String()}
	if c.AppID == "" || c.AppSecret == "" {
		// A call without a token: Feishu's refusal says that it is Feishu.
		err := f.call(ctx, http.MethodGet, "/open-apis/bot/v3/info", nil, &struct{}{})
		if _, ok := errors.AsType[*refused](err); err != nil && !ok {
			return []finding{failure(name, unreachedMend(err), "%s: %s", f.base, plainly(err))}
		}
		return append(feishuClock(f), well(name, "%s answers; the bot's own token is used (without FEISHU_APP_ID and FEISHU_APP_SECRET its scopes and groups are not looked at)", f.base))
	}
	var token struct {
		Token string `json:"tenant_access_token"`
	}
	err := f.call(ctx, http.MethodPost, "/open-apis/auth/v3/tenant_access_token/internal",
		map[string]string{"app_id": c.AppID, "app_secret": string(c.AppSecret)}, &token)
	if refusal, ok := errors.AsType[*refused](err); ok {
		return append(feishuClock(f), failure(name, credentialsMend(c.config, refusal), "%s refuses %s: %v", f.base, c.AppID, refusal))
	}
	if err == nil && token.Token == "" {
		err = errNotFeishu
	}
	if err != nil {
		return []finding{failure(name, unreachedMend(err), "%s: %s", f.base, plainly(err))}
	}
	f.token = token.Token
	out := append(feishuClock(f), well(name, "%s takes the credentials of %s", f.base, c.AppID))
	bot := checkFeishuBot(ctx, f, c.config)
	out = append(out, bot...)
	if slices.ContainsFunc(bot, func(one finding) bool { return one.Status == statusFail }) {
		return out // the rest would only repeat it
	}
	out = append(out, checkScopes(ctx, f, c.config)...)
	out = append(out, checkEvents(ctx, f, c.config)...)
	return append(out, checkFeishuGroups(ctx, f, c.config)...)
}

// unreachedMend is what to do about a network in which Feishu is not found.
func unreachedMend(err error) string {
	const lark = "(Lark's is https://open.larksuite.com)"
	_, dns := errors.AsType[*net.DNSError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	switch {
	case errors.Is(err, errNotFeishu):
		return "set FEISHU_BASE_URL to Feishu's address " + lark + "; a proxy on the way may ask for a sign-in"
	case dns:
		return "check FEISHU_BASE_URL and this host's DNS: nslookup open.feishu.cn"
	case authority || host:
		return "a proxy opens the connection, or this host has no list of authorities: set SSL_CERT_FILE to a PEM file with the right one (install ca-certificates)"
	}
	return "set FEISHU_BASE_URL " + lark + ", or HTTPS_PROXY if Feishu is reached by a proxy"
}

// credentialsMend is what to do about refused credentials.
func credentialsMend(c *config, r *refused) string {
	other := "https://open.larksuite.com"
	if isLark(c) {
		other = "https://open.feishu.cn"
	}
	switch msg := strings.ToLower(r.Msg); {
	case strings.Contains(msg, "secret") || r.Code == 99991543:
		return "copy the App Secret anew into FEISHU_APP_SECRET: " + console(c, "/baseinfo")
	case r.Code == 10003:
		return "copy the App ID (cli_ and 16 digits or letters a to f) into FEISHU_APP_ID: " + console(c, "")
	case strings.Contains(msg, "not exist"):
		return "correct FEISHU_APP_ID; if the app is on the other platform: FEISHU_BASE_URL=" + other
	case r.Code == 99991401:
		return "add this host's address to the app's IP whitelist (Security Settings): " + console(c, "/safe")
	}
	return refusalMend(c, r)
}

// refusalMend is what to do about a call that Feishu refused.
func refusalMend(c *config, r *refused) string {
	switch r.Code {
	case 99991672:
		return "add the scope and publish a version: " + scopeURL(c, r.scopes()...)
	case 11205, 230006, 232025:
		return "turn on the bot ability (Add Features: Bot) and publish a version: " + console(c, "/bot")
	case 99991662, 99991673, 11207, 212100:
		return "publish a version and have the tenant's administrator approve and enable the app: " + console(c, "/version")
	case 99991400:
		return "try again in a minute: the app calls too often"
	case 99991401:
		return "add this host's address to the app's IP whitelist (Security Settings): " + console(c, "/safe")
	case 99991403:
		return "the tenant has used up its calls of this month: ask its administrator"
	}
	return "look at the app, whether it is enabled and a version is published: " + console(c, "")
}

func isLark(c *config) bool { return strings.HasSuffix(c.BaseURL.Hostname(), ".larksuite.com") }

// console is the app's page where the mend is made.
func console(c *config, page string) string {
	host := "open.feishu.cn"
	if isLark(c) {
		host = "open.larksuite.com"
	}
	if c.AppID == "" {
		return "https://" + host + "/app"
	}
	return "https://" + host + "/app/" + c.AppID + page
}

func scopeURL(c *config, scopes ...string) string {
	return console(c, "/auth?q="+strings.Join(scopes, ",")+"&op_from=openapi&token_type=tenant")
}

// feishuClock compares our clock with Feishu's.
func feishuClock(f *feishuCaller) []finding {
	if !f.dated {
		return nil
	}
	return []finding{clockFinding("Feishu clock", "Feishu", maxFeishuSkew, f.ahead)}
}

// notTwo are the states of an app that is not simply enabled.
var notTwo = map[int]string{0: "not installed yet", 1: "disabled in the tenant", 3: "installed and not enabled",
	4: "waiting for an upgrade to be enabled", 5: "disabled: its licence has ended", 6: "disabled: the tenant's plan has ended"}

// checkFeishuBot asks who the bot is.
func checkFeishuBot(ctx context.Context, f *feishuCaller, c *config) []finding {
	const name, enabled, upgrade = "Feishu bot", 2, 4
	var answer struct {
		Bot struct {
			State  *int   `json:"activate_status"`
			Name   string `json:"app_name"`
			OpenID string `json:"open_id"`
		} `json:"bot"`
	}
	if err := f.call(ctx, http.MethodGet, "/open-apis/bot/v3/info", nil, &answer); err != nil {
		return []finding{unanswered(c, name, "who the bot is", statusFail, err)}
	}
	bot := answer.Bot
	if bot.OpenID == "" {
		return []finding{failure(name, refusalMend(c, &refused{Code: 11205}), "%s has no bot", c.AppID)}
	}
	if bot.State != nil && *bot.State != enabled {
		found := failure
		if *bot.State == upgrade {
			found = warning
		}
		return []finding{found(name, refusalMend(c, &refused{Code: 99991662}), "%s is %s (activate_status %d)",
			bot.Name, or(notTwo[*bot.State], "not enabled"), *bot.State)}
	}
	out := []finding{well(name, "%s is %s (%s)", c.AppID, bot.Name, bot.OpenID)}
	if c.BotName != "" && c.BotName != bot.Name {
		out = append(out, warning(name, fmt.Sprintf("BOT_NAME='%s', or leave it out", bot.Name),
			"BOT_NAME is %s, and Feishu calls the bot %s: people and bots address it by the latter", c.BotName, bot.Name))
	}
	if c.BotOpenID != "" && string(c.BotOpenID) != bot.OpenID {
		out = append(out, warning(name, "BOT_OPEN_ID="+bot.OpenID+", or leave it out",
			"BOT_OPEN_ID is %s, and the bot's own is %s: an open_id is different for each app that looks", c.BotOpenID, bot.OpenID))
	}
	return out
}

// unanswered is the finding of a question that Feishu did not answer; how bad
// that is, is s.
func unanswered(c *config, name, what string, s status, err error) finding {
	mend := unreachedMend(err)
	if r, ok := errors.AsType[*refused](err); ok {
		mend = refusalMend(c, r)
	}
	return finding{name, s, fmt.Sprintf("%s is not known: %s", what, plainly(err)), mend}
}
