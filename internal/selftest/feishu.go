package selftest

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

const (
	maxFeishuSkew = 60 * time.Second // of our clock: messages carry Feishu's create_time, and expire by our clock
	maxGroups     = 500              // of a bot that are looked at
)

// dated makes calls, and knows by the last answer how far Feishu's clock is ahead of ours; nil: not known.
type dated struct{ ahead *time.Duration }

func (d *dated) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := time.Now()
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		if theirs, err := http.ParseTime(resp.Header.Get("Date")); err == nil { // it is to the second
			d.ahead = new(theirs.Add(time.Second / 2).Sub(asked.Add(time.Since(asked) / 2)))
		}
	}
	return resp, err
}

// tenant tests Feishu, the app and the groups that the bot is in, by calls that change nothing.
func (r *results) tenant(ctx context.Context) {
	c := r.cfg
	if !c.KnowsFeishu() {
		return
	}
	r.test("Feishu", "Feishu")
	clock, base := &dated{}, c.BaseURL.String()
	api := feishu.NewAPI(base, c.AppID, string(c.AppSecret), feishu.WithHTTPClient(&http.Client{Transport: clock}))
	app := c.AppID != "" && c.AppSecret != ""
	var err error
	if app {
		err = api.Authenticate(ctx)
	} else {
		api.SawToken("t-none")
		if _, err = api.BotInfo(ctx); feishu.CodeOf(err) != 0 {
			err = nil // only Feishu refuses so
		}
	}
	switch {
	case feishu.CodeOf(err) != 0:
		r.add(Fail, r.say("credentials refused", base, c.AppID, r.feishuError(err)), r.credentialsFix(err))
	case err != nil:
		r.add(Fail, base+": "+r.feishuError(err), r.feishuFix(err))
	case app:
		r.ok("credentials", base, c.AppID)
	default:
		r.unknown("app unseen", base)
	}
	if clock.ahead != nil && (err == nil || feishu.CodeOf(err) != 0) {
		r.test("Feishu", "Feishu clock")
		r.clock(r.say("Feishu"), maxFeishuSkew, *clock.ahead)
	}
	if err != nil || !app || !r.feishuBot(ctx, api) {
		return
	}
	r.scopes(ctx, api)
	r.events(ctx, api)
	r.test("Feishu", "Feishu connections")
	if n, err := api.Connections(ctx); err == nil && n > 1 { // each event goes to one of them
		r.warn("connections", n, c.AppID)
	}
	r.test("Feishu", "Feishu groups")
	in, err := Groups(ctx, api)
	if err != nil {
		r.unanswered(Warn, "which groups", err)
		return
	}
	var names []string
	for _, g := range in {
		names = append(names, cmp.Or(g.Name, string(g.ID)))
	}
	if len(in) == 0 {
		r.warn("in no chat")
	} else {
		r.ok("in groups", r.Words.Count("groups", len(in)), r.Words.List(names))
	}
}

// feishuError is the text of an error of a call.
func (r *results) feishuError(err error) string {
	if code, ok := errors.AsType[*feishu.CodeError](err); ok {
		return code.Error()
	}
	if refused, ok := errors.AsType[*feishu.CallError](err); ok {
		return r.say("not Feishu", fmt.Sprint("HTTP ", refused.Status))
	}
	return r.plainly(err)
}

// Codes that stand for their fix.
const (
	codeNoBot   = 11205
	codeNoScope = 99991672
)

// refusals are the fixes for codes of Feishu, and the app's page on which each is made.
var refusals = map[int]struct{ key, page string }{
	codeNoBot: {"fix ability", "/bot"}, 230006: {"fix ability", "/bot"}, 232025: {"fix ability", "/bot"},
	99991662: {"fix version", "/version"}, 99991673: {"fix version", "/version"},
	11207: {"fix version", "/version"}, 212100: {"fix version", "/version"},
	99991400: {key: "fix too often"}, 99991401: {"fix whitelist", "/safe"}, 99991403: {key: "fix quota"},
	99991543: {"fix secret", "/baseinfo"}, 10003: {key: "fix app id"},
}

// scopeList finds in the text of a refusal the scopes of which one would have been enough.
var scopeList = regexp.MustCompile(`required: \[([a-zA-Z0-9_.:, -]*)\]`)

// feishuFix is what to do about a call that failed.
func (r *results) feishuFix(err error) string {
	code := feishu.CodeOf(err)
	fix, known := refusals[code]
	switch {
	case known:
		return r.say(fix.key, r.console(fix.page))
	case code == codeNoScope:
		scopes := ""
		if m := scopeList.FindStringSubmatch(err.Error()); m != nil {
			scopes = strings.ReplaceAll(m[1], " ", "")
		}
		return r.say("fix scope", r.scopeURL(scopes))
	case code != 0:
		return r.say("fix app", r.console(""))
	case is[*feishu.CallError](err):
		return r.say("fix not Feishu")
	case is[*net.DNSError](err):
		return r.say("fix DNS")
	case is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err):
		return r.say("fix authority")
	}
	return r.say("fix network")
}

// credentialsFix is what to do about credentials that did not get a token.
func (r *results) credentialsFix(err error) string {
	switch msg := strings.ToLower(err.Error()); {
	case strings.Contains(msg, "secret"):
		return r.say("fix secret", r.console("/baseinfo"))
	case strings.Contains(msg, "not exist") && r.isLark():
		return r.say("fix platform", "https://open.feishu.cn")
	case strings.Contains(msg, "not exist"):
		return r.say("fix platform", "https://open.larksuite.com")
	}
	return r.feishuFix(err)
}

// unanswered reports a question that Feishu did not answer.
func (r *results) unanswered(s Status, what string, err error) {
	r.add(s, r.say("unanswered", r.say(what), r.feishuError(err)), r.feishuFix(err))
}

func (r *results) isLark() bool { return strings.HasSuffix(r.cfg.BaseURL.Hostname(), ".larksuite.com") }

// console is the app's page where a fix is made.
func (r *results) console(page string) string {
	host := "open.feishu.cn"
	if r.isLark() {
		host = "open.larksuite.com"
	}
	return "https://" + host + "/app/" + r.cfg.AppID + page
}

func (r *results) scopeURL(scopes string) string {
	return r.console("/auth?q=" + scopes + "&op_from=openapi&token_type=tenant")
}

// feishuBot asks who the bot is. It returns whether there is one.
func (r *results) feishuBot(ctx context.Context, api *feishu.API) bool {
	r.test("Feishu", "Feishu bot")
	bot, err := api.BotInfo(ctx)
	if err != nil {
		r.unanswered(Fail, "who the bot is", err)
		return false
	}
	if bot.OpenID == "" {
		r.add(Fail, r.say("no bot", r.cfg.AppID), r.say("fix ability", r.console("/bot")))
		return false
	}
	r.ok("the bot", r.cfg.AppID, bot.Name, bot.OpenID)
	if r.cfg.BotName != "" && r.cfg.BotName != bot.Name {
		r.warn("other name", r.cfg.BotName, bot.Name)
	}
	if r.cfg.BotOpenID != "" && r.cfg.BotOpenID != bot.OpenID {
		r.warn("other open_id", r.cfg.BotOpenID, bot.OpenID)
	}
	return true
}

// need is what scopes are for: one of them is enough.
type need struct {
	what   string
	scopes []string // the best first
	lacks  Status   // of a bot without any
}

// needs are the scopes that a bot and its sidecar need for im.message.receive_v1 and the calls of package feishu.
var needs = []need{
	{"to hear", []string{"im:message.group_msg", "im:message.group_at_msg:readonly", "im:message.group_at_msg",
		"im:message.group_at_msg.include_bot:readonly", "im:message.group_msg:readonly",
		"im:message.group_msg.include_bot:read"}, Fail},
	{"to send", []string{"im:message:send_as_bot", "im:message", "im:message:send"}, Fail},
	{"to tell groups", []string{"im:chat:readonly", "im:chat", "im:chat:read"}, Warn},
	{"to see bots", []string{"im:chat.members:read", "im:chat:readonly", "im:chat", "im:chat.members:bot_access"}, Warn},
	{"to read", []string{"im:message:readonly", "im:message", "im:message.history:readonly"}, Warn},
	{"to know names", []string{"contact:user.base:readonly", "contact:contact.base:readonly",
		"contact:contact:readonly_as_app"}, Warn},
	{"to react", []string{"im:message.reactions:write_only", "im:message"}, Warn},
}

// hearsAll are the scopes with which a bot hears what is not addressed to it.
var hearsAll = []string{"im:message.group_msg", "im:message.group_msg:readonly", "im:message.group_msg.include_bot:read"}

func anyOf(some, all []string) bool {
	return slices.ContainsFunc(some, func(s string) bool { return slices.Contains(all, s) })
}

// scopes compares the scopes that the tenant has granted with what is needed.
func (r *results) scopes(ctx context.Context, api *feishu.API) {
	r.test("Feishu", "Feishu scopes")
	answer, err := feishu.Get[struct {
		Scopes []struct {
			Name   string `json:"scope_name"`
			Status int    `json:"grant_status"`
			Kind   string `json:"scope_type"`
		} `json:"scopes"`
	}](ctx, api, "application/v6/scopes", nil)
	if err != nil {
		r.unanswered(Warn, "which scopes", err)
		return
	}
	var has, waits []string
	for _, scope := range answer.Scopes {
		switch {
		case scope.Kind == "user": // of people's tokens
		case scope.Status == 1:
			has = append(has, scope.Name)
		default:
			waits = append(waits, scope.Name)
		}
	}
	lacks := false
	for _, n := range needs {
		if anyOf(n.scopes, has) || n.what == "to react" && r.cfg.Steer.StopNotice != "reaction" {
			continue
		}
		lacks = true
		fix := r.say("add scope", n.scopes[0], r.scopeURL(n.scopes[0]))
		if anyOf(n.scopes, waits) {
			fix = r.say("scope waits", r.console("/version"))
		}
		r.add(n.lacks, r.say("without scope", r.say(n.what), strings.Join(n.scopes[:min(len(n.scopes), 3)], ", ")), fix)
	}
	granted := r.Words.Count("granted", len(has))
	switch {
	case lacks:
	case anyOf(hearsAll, has):
		r.ok("hears all", granted)
	case len(r.cfg.Steer.Commands) > 0:
		r.ok("hears mentions and commands", granted)
	default:
		r.ok("hears mentions", granted)
	}
}

// appEvent is an event that a version of an app subscribes.
type appEvent struct {
	Type string `json:"event_type"`
}

// events looks at the newest published version: which events are subscribed, and whether the bot ability is part of it.
func (r *results) events(ctx context.Context, api *feishu.API) {
	r.test("Feishu", "Feishu events")
	type version struct {
		Name    string `json:"version"`
		Status  int    `json:"status"`
		Ability *struct {
			Bot *struct{} `json:"bot"`
		} `json:"ability"`
		Events []appEvent `json:"event_infos"`
	}
	const receive, published = "im.message.receive_v1", 1
	page, versions := r.console("/event"), r.console("/version")
	answer, err := feishu.Get[struct {
		Items []version `json:"items"` // the newest first
	}](ctx, api, "application/v6/applications/"+url.PathEscape(r.cfg.AppID)+"/app_versions",
		url.Values{"lang": {"zh_cn"}, "page_size": {"20"}, "order": {"0"}})
	if err != nil {
		r.unknown("events unseen", r.feishuError(err), receive, page)
		return
	}
	at := slices.IndexFunc(answer.Items, func(v version) bool { return v.Status == published })
	if at < 0 {
		r.fail("no version", versions)
		return
	}
	live := answer.Items[at]
	if live.Ability != nil && live.Ability.Bot == nil {
		r.add(Fail, r.say("version without bot", live.Name), r.say("fix ability", r.console("/bot")))
		return
	}
	fine := at == 0
	for _, e := range []struct {
		event, effect string
		lacks         Status
	}{
		{receive, "hears nothing", Fail}, {feishu.EventBotAdded, "added late", Warn},
		{feishu.EventBotDeleted, "removed late", Warn}, {feishu.EventRecalled, "recalled stays", Warn},
	} {
		if !slices.Contains(live.Events, appEvent{e.event}) {
			fine = false
			r.as(e.lacks, "not subscribed", live.Name, e.event, r.say(e.effect), page)
		}
	}
	if at > 0 {
		r.warn("version waits", answer.Items[0].Name, versions)
	}
	if fine {
		r.ok("subscribed", live.Name, receive)
	}
}

// Chat is a group that the bot is in.
type Chat struct {
	ID   relay.ChatID `json:"chat_id"`
	Name string       `json:"name"`
}

// Groups returns at most 500 groups that the bot is in, with an error those that were found before it.
func Groups(ctx context.Context, api *feishu.API) ([]Chat, error) {
	return feishu.Pages[Chat](ctx, api, "im/v1/chats", url.Values{}, maxGroups)
}
