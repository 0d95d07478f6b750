package selftest

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/internal/groups"
	"feishu-relay/internal/words"
	"feishu-relay/sidecar"
)

const (
	feishuCallLimit = 4 * time.Second  // of one call; then Feishu counts as not reached
	maxFeishuAnswer = 4 << 20          // bytes; a longer answer is not Feishu's
	maxFeishuSkew   = 60 * time.Second // of our clock: messages carry Feishu's create_time, and expire by our clock
	maxGroupPages   = 5                // of 100 groups; with more the rest is left out, and that is reported

	steerAdmins = "admins" // the STEER_BY with which Feishu is asked who manages a group
)

// caller makes the calls of a test: few, and none that changes anything.
type caller struct {
	base  string
	token string         // empty: calls go without
	ahead *time.Duration // of Feishu's clock before ours, by the first call; nil: not known
}

// refused is the error of a call that Feishu answered with a code.
type refused struct {
	Code int    `json:"code"`
	Msg  string `json:"msg"`
}

func (r *refused) Error() string { return fmt.Sprintf("code %d: %.200s", r.Code, r.Msg) }

// scopeList finds in the text of a refusal the scopes of which one would have been enough.
var scopeList = regexp.MustCompile(`required: \[([a-zA-Z0-9_.:, -]*)\]`)

// notFeishu is the error of an answer that is not Feishu's.
type notFeishu struct{ what string }

func (e notFeishu) Error() string { return e.what }

// call asks Feishu and reads the answer into out. Errors are a [*refused], a [notFeishu], or one about the network; none
// shows a secret. The calls without a token, of which there is one, compare the clocks.
func (f *caller) call(ctx context.Context, method, path string, in []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, feishuCallLimit)
	defer cancel()
	asked := time.Now()
	resp, data, err := Fetch(ctx, http.DefaultTransport, method, f.base+path, f.token, in, maxFeishuAnswer)
	if resp == nil {
		return err
	}
	ours := asked.Add(time.Since(asked) / 2)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var code struct{ Code *int }
	if err := json.Unmarshal(data, &code); err != nil || code.Code == nil {
		return notFeishu{fmt.Sprintf("HTTP %d", resp.StatusCode)}
	}
	if theirs, err := http.ParseTime(resp.Header.Get("Date")); err == nil && f.token == "" {
		f.ahead = new(theirs.Add(time.Second / 2).Sub(ours)) // it is to the second
	}
	if *code.Code != 0 {
		var answer refused
		_ = json.Unmarshal(data, &answer) // as far as it has the form
		answer.Code = *code.Code
		return &answer
	}
	if json.Unmarshal(data, out) != nil {
		return notFeishu{strings.TrimPrefix(path, "/open-apis/")}
	}
	return nil
}

func (f *caller) get(ctx context.Context, path string, out any) error {
	return f.call(ctx, http.MethodGet, "/open-apis/"+path, nil, out)
}

// connect gets a token with the app's credentials where they are configured, else only asks whether Feishu answers.
func connect(ctx context.Context, c *sidecar.Config) (*caller, error) {
	f := &caller{base: c.BaseURL.String()}
	var token struct {
		Token string `json:"tenant_access_token"`
	}
	if c.AppID == "" || c.AppSecret == "" {
		err := f.get(ctx, "bot/v3/info", &token) // Feishu's refusal shows that it is Feishu
		if is[*refused](err) {
			err = nil
		}
		return f, err
	}
	app, err := json.Marshal(map[string]string{"app_id": c.AppID, "app_secret": string(c.AppSecret)})
	if err == nil {
		err = f.call(ctx, http.MethodPost, "/open-apis/auth/v3/tenant_access_token/internal", app, &token)
	}
	if err == nil && token.Token == "" {
		err = notFeishu{"no token"}
	}
	f.token = token.Token
	return f, err
}

// tenant tests Feishu, the app and the groups that the bot is in.
func (r *results) tenant(ctx context.Context) {
	file, c := r.groupsRead(), r.cfg
	managers := len(c.Steer.Commands) > 0 && (c.Steer.By == steerAdmins || file != nil && slices.ContainsFunc(
		slices.Collect(maps.Values(file.Groups)), func(g groups.Group) bool { return g.SteerBy == steerAdmins }))
	if !c.KnowsFeishu() {
		if r.test("Feishu", "group managers"); managers {
			r.warn("no managers", r.say("managers unasked"))
		}
		return
	}
	r.test("Feishu", "Feishu")
	f, err := connect(ctx, c)
	refusal, isRefused := errors.AsType[*refused](err)
	switch app := c.AppID != "" && c.AppSecret != ""; {
	case isRefused:
		r.add(Fail, r.say("credentials refused", f.base, c.AppID, refusal), r.credentialsFix(refusal))
	case err != nil:
		r.add(Fail, f.base+": "+r.feishuError(err), r.feishuFix(err))
	case !app:
		r.unknown("app unseen", f.base)
	default:
		r.ok("credentials", f.base, c.AppID)
	}
	if f.ahead != nil {
		r.test("Feishu", "Feishu clock")
		r.clock(r.say("Feishu"), maxFeishuSkew, *f.ahead)
	}
	if err != nil || f.token == "" || !r.feishuBot(ctx, f) {
		return
	}
	r.scopes(ctx, f, file)
	r.events(ctx, f)
	r.connections(ctx, f)
	in, err := r.feishuGroups(ctx, f, file)
	if r.test("Feishu", "group managers"); managers {
		r.managers(ctx, f, in, err)
	}
}

// feishuError is the text of an error of a call.
func (r *results) feishuError(err error) string {
	if is[notFeishu](err) {
		return r.say("not Feishu", err)
	}
	return r.plainly(err)
}

// Codes that stand for their fix.
const (
	codeNoBot     = 11205
	codeNoVersion = 99991662
	codeNoScope   = 99991672
)

// refusals are the fixes for codes of Feishu, and the app's page on which each is made.
var refusals = map[int]struct{ key, page string }{
	codeNoBot: {"fix ability", "/bot"}, 230006: {"fix ability", "/bot"}, 232025: {"fix ability", "/bot"},
	codeNoVersion: {"fix version", "/version"}, 99991673: {"fix version", "/version"},
	11207: {"fix version", "/version"}, 212100: {"fix version", "/version"},
	99991400: {key: "fix too often"}, 99991401: {"fix whitelist", "/safe"}, 99991403: {key: "fix quota"},
	99991543: {"fix secret", "/baseinfo"}, 10003: {key: "fix app id"},
}

// feishuFix is what to do about a call that failed.
func (r *results) feishuFix(err error) string {
	refusal, _ := errors.AsType[*refused](err)
	switch {
	case is[notFeishu](err):
		return r.say("fix not Feishu")
	case is[*net.DNSError](err):
		return r.say("fix DNS")
	case is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err):
		return r.say("fix authority")
	case refusal == nil:
		return r.say("fix network")
	case refusal.Code == codeNoScope:
		scopes := ""
		if m := scopeList.FindStringSubmatch(refusal.Msg); m != nil {
			scopes = strings.ReplaceAll(m[1], " ", "")
		}
		return r.say("fix scope", r.scopeURL(scopes))
	}
	if fix, known := refusals[refusal.Code]; known {
		return r.say(fix.key, r.console(fix.page))
	}
	return r.say("fix app", r.console(""))
}

// credentialsFix is what to do about credentials that did not get a token.
func (r *results) credentialsFix(refusal *refused) string {
	other := "https://open.larksuite.com"
	if r.isLark() {
		other = "https://open.feishu.cn"
	}
	msg := strings.ToLower(refusal.Msg)
	if strings.Contains(msg, "not exist") && !strings.Contains(msg, "secret") {
		return r.say("fix platform", other)
	}
	if strings.Contains(msg, "secret") {
		return r.say("fix secret", r.console("/baseinfo"))
	}
	return r.feishuFix(refusal)
}

// unanswered reports a question that Feishu did not answer.
func (r *results) unanswered(s Status, what string, err error) {
	r.add(s, r.say("unanswered", r.say(what), r.feishuError(err)), r.feishuFix(err))
}

func (r *results) isLark() bool { return strings.HasSuffix(r.cfg.BaseURL.Hostname(), ".larksuite.com") }

// console is the app's page where the fix is made.
func (r *results) console(page string) string {
	host := "open.feishu.cn"
	if r.isLark() {
		host = "open.larksuite.com"
	}
	if r.cfg.AppID == "" {
		return "https://" + host + "/app"
	}
	return "https://" + host + "/app/" + r.cfg.AppID + page
}

func (r *results) scopeURL(scopes string) string {
	return r.console("/auth?q=" + scopes + "&op_from=openapi&token_type=tenant")
}

// States of an app (activate_status).
const (
	appEnabled = 2
	appUpgrade = 4
)

// feishuBot asks who the bot is. It returns whether there is one that works.
func (r *results) feishuBot(ctx context.Context, f *caller) bool {
	r.test("Feishu", "Feishu bot")
	var answer struct {
		Bot struct {
			State  *int   `json:"activate_status"`
			Name   string `json:"app_name"`
			OpenID string `json:"open_id"`
		} `json:"bot"`
	}
	if err := f.get(ctx, "bot/v3/info", &answer); err != nil {
		r.unanswered(Fail, "who the bot is", err)
		return false
	}
	bot := answer.Bot
	if bot.OpenID == "" {
		r.add(Fail, r.say("no bot", r.cfg.AppID), r.feishuFix(&refused{Code: codeNoBot}))
		return false
	}
	if bot.State != nil && *bot.State != appEnabled {
		s, state := Fail, fmt.Sprintf("app state/%d", *bot.State)
		if *bot.State == appUpgrade {
			s = Warn
		}
		if !words.Has(state) {
			state = "app state/other"
		}
		r.add(s, r.say("app state", bot.Name, r.say(state), *bot.State), r.feishuFix(&refused{Code: codeNoVersion}))
		return s == Warn
	}
	r.ok("the bot", r.cfg.AppID, bot.Name, bot.OpenID)
	if r.cfg.BotName != "" && r.cfg.BotName != bot.Name {
		r.warn("other name", r.cfg.BotName, bot.Name)
	}
	if r.cfg.BotOpenID != "" && string(r.cfg.BotOpenID) != bot.OpenID {
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
}

// hearsAll are the scopes with which a bot hears what is not addressed to it.
var hearsAll = []string{"im:message.group_msg", "im:message.group_msg:readonly", "im:message.group_msg.include_bot:read"}

func anyOf(some, all []string) bool {
	return slices.ContainsFunc(some, func(s string) bool { return slices.Contains(all, s) })
}

// scopes compares the scopes that the tenant has granted with what is needed.
func (r *results) scopes(ctx context.Context, f *caller, file *groups.File) {
	r.test("Feishu", "Feishu scopes")
	var answer struct {
		Data struct {
			Scopes []struct {
				Name   string `json:"scope_name"`
				Status int    `json:"grant_status"`
				Kind   string `json:"scope_type"`
			} `json:"scopes"`
		} `json:"data"`
	}
	if err := f.get(ctx, "application/v6/scopes", &answer); err != nil {
		r.unanswered(Warn, "which scopes", err)
		return
	}
	var has, waits []string
	for _, scope := range answer.Data.Scopes {
		switch {
		case scope.Kind == "user": // of people's tokens
		case scope.Status == 1:
			has = append(has, scope.Name)
		default:
			waits = append(waits, scope.Name)
		}
	}
	all := needs
	const reaction = "reaction"
	if r.cfg.Steer.StopNotice == reaction || file != nil && slices.ContainsFunc(slices.Collect(maps.Values(file.Groups)),
		func(g groups.Group) bool { return g.StopNotice == reaction }) {
		all = slices.Concat(needs, []need{{"to react", []string{"im:message.reactions:write_only", "im:message"}, Warn}})
	}
	lacks := false
	for _, n := range all {
		if anyOf(n.scopes, has) {
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
func (r *results) events(ctx context.Context, f *caller) {
	r.test("Feishu", "Feishu events")
	const receive, published = "im.message.receive_v1", 1
	var answer struct {
		Data struct {
			Items []struct { // the newest first
				Name    string `json:"version"`
				Status  int    `json:"status"`
				Ability *struct {
					Bot *struct{} `json:"bot"`
				} `json:"ability"`
				Events []appEvent `json:"event_infos"`
			} `json:"items"`
		} `json:"data"`
	}
	page, versions := r.console("/event"), r.console("/version")
	err := f.get(ctx, "application/v6/applications/"+url.PathEscape(r.cfg.AppID)+
		"/app_versions?lang=zh_cn&page_size=20&order=0", &answer)
	if refusal, ok := errors.AsType[*refused](err); ok && refusal.Code == codeNoScope {
		r.unknown("events unseen", "application:application:self_manage", receive, page)
		return
	} else if ok {
		r.unknown("events refused", refusal, receive, page)
		return
	} else if err != nil {
		r.unanswered(Warn, "which events", err)
		return
	}
	all := answer.Data.Items
	at := 0
	for at < len(all) && all[at].Status != published {
		at++
	}
	if at == len(all) {
		r.fail("no version", versions)
		return
	}
	live := all[at]
	if live.Ability != nil && live.Ability.Bot == nil {
		r.add(Fail, r.say("version without bot", live.Name), r.feishuFix(&refused{Code: codeNoBot}))
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
		r.warn("version waits", all[0].Name, versions)
	}
	if fine {
		r.ok("subscribed", live.Name, receive)
	}
}

// connections looks whether the app has several long connections: each event goes to one of them.
func (r *results) connections(ctx context.Context, f *caller) {
	r.test("Feishu", "Feishu connections")
	var answer struct {
		Data struct {
			N int `json:"online_instance_cnt"`
		} `json:"data"`
	}
	err := f.get(ctx, "event/v1/connection", &answer)
	if err == nil && answer.Data.N > 1 { // where Feishu does not say, the other findings tell more
		r.warn("connections", answer.Data.N, r.cfg.AppID)
	}
}

// Chat is a group that the bot is in.
type Chat struct {
	ID   string `json:"chat_id"`
	Name string `json:"name"`
}

// feishuGroups lists the groups that the bot is in, and compares them with the groups file.
func (r *results) feishuGroups(ctx context.Context, f *caller, file *groups.File) ([]Chat, error) {
	r.test("Feishu", "Feishu groups")
	in, all, err := botGroups(ctx, f)
	if err != nil {
		r.unanswered(Warn, "which groups", err)
		return nil, err
	}
	if len(in) == 0 {
		r.warn("in no chat")
		return nil, nil
	}
	var names []string
	for _, g := range in {
		names = append(names, cmp.Or(g.Name, g.ID))
	}
	key := "in groups"
	if !all {
		key = "in groups or more"
	}
	r.ok(key, r.Words.Count("groups", len(in)), r.Words.List(names))
	if file == nil {
		return in, nil
	}
	var absent, unlisted []string
	for _, id := range slices.Sorted(maps.Keys(file.Groups)) {
		isIn := slices.ContainsFunc(in, func(g Chat) bool { return g.ID == id })
		label := cmp.Or(file.Groups[id].Name, id)
		switch member, _ := file.Member(id, string(r.cfg.Agent)); {
		case member && !isIn && all:
			absent = append(absent, label)
		case !member && isIn:
			unlisted = append(unlisted, label)
		}
	}
	if len(absent) > 0 {
		r.warn("absent", r.cfg.GroupsFile, r.cfg.Agent, r.Words.List(absent))
	}
	if len(unlisted) > 0 {
		r.warn("unlisted", r.cfg.GroupsFile, r.cfg.Agent, r.Words.List(unlisted))
	}
	return in, nil
}

// botGroups returns the groups that the bot is in, and whether they are all.
func botGroups(ctx context.Context, f *caller) (in []Chat, all bool, err error) {
	query := url.Values{"page_size": {"100"}}
	for range maxGroupPages {
		var answer struct {
			Data struct {
				Items   []Chat `json:"items"`
				HasMore bool   `json:"has_more"`
				Token   string `json:"page_token"`
			} `json:"data"`
		}
		if err := f.get(ctx, "im/v1/chats?"+query.Encode(), &answer); err != nil {
			return nil, false, err
		}
		in = append(in, answer.Data.Items...)
		if !answer.Data.HasMore || answer.Data.Token == "" {
			return in, true, nil
		}
		query.Set("page_token", answer.Data.Token)
	}
	return in, false, nil
}

// Groups returns the groups that the bot is in, as far as Feishu says so.
func Groups(ctx context.Context, c *sidecar.Config) []Chat {
	f, err := connect(ctx, c)
	if err != nil || f.token == "" {
		return nil
	}
	in, _, _ := botGroups(ctx, f) // what is known of them is enough
	return in
}

// managers asks who owns a group, as the sidecar does before it carries out a command.
func (r *results) managers(ctx context.Context, f *caller, in []Chat, err error) {
	var answer struct{}
	if err == nil && len(in) > 0 {
		err = f.get(ctx, "im/v1/chats/"+url.PathEscape(in[0].ID)+"?user_id_type=open_id", &answer)
	}
	if err == nil {
		if len(in) > 0 {
			r.ok("managers")
		}
		return
	}
	fix := r.say("no managers.fix", "")
	if is[*refused](err) {
		fix = r.feishuFix(err)
	}
	r.add(Warn, r.say("no managers", r.say("chat unread", r.feishuError(err))), fix)
}
