package main

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
)

const (
	feishuCallLimit = 4 * time.Second  // of one call; then Feishu counts as not reached
	maxFeishuAnswer = 4 << 20          // bytes; a longer answer is not Feishu's
	maxFeishuSkew   = 60 * time.Second // of our clock: messages carry Feishu's create_time, and expire by our clock

	groupPage     = 100 // Feishu's most
	maxGroupPages = 5   // with more groups the rest is left out, and that is reported

	eventReceive = "im.message.receive_v1"
)

// feishuCaller makes the calls of a check: few, and none that changes anything.
type feishuCaller struct {
	base  string
	token string         // empty: calls go without
	ahead *time.Duration // of Feishu's clock before ours, by the first call; nil: not known
}

// refused is the error of a call that Feishu answered with a code.
type refused struct {
	Code   int    `json:"code"`
	Msg    string `json:"msg"`
	Detail struct {
		Violations []struct {
			Subject string `json:"subject"`
		} `json:"permission_violations"`
	} `json:"error"`
}

func (r *refused) Error() string { return fmt.Sprintf("code %d: %.200s", r.Code, r.Msg) }

// errNotFeishu says that somebody answers who is not Feishu.
var errNotFeishu = errors.New("what answers is not Feishu")

// scopeList finds the scopes in the text of a refusal.
var scopeList = regexp.MustCompile(`required: \[([a-zA-Z0-9_.:, -]*)\]`)

// scopes are those of which one would have been enough.
func (r *refused) scopes() []string {
	var out []string
	for _, v := range r.Detail.Violations {
		out = append(out, v.Subject)
	}
	if m := scopeList.FindStringSubmatch(r.Msg); len(out) == 0 && m != nil {
		out = list(m[1])
	}
	return out
}

// call asks Feishu and reads the answer into out. Errors are a [*refused], errNotFeishu,
// or one about the network; none shows a secret. The calls without a token, of which
// there is one, compare the clocks.
func (f *feishuCaller) call(ctx context.Context, method, path string, in []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, feishuCallLimit)
	defer cancel()
	asked := time.Now()
	resp, data, err := fetch(ctx, http.DefaultTransport, method, f.base+path, f.token, in, maxFeishuAnswer)
	if resp == nil {
		return err
	}
	ours := middle(asked)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	var code struct{ Code *int }
	if err := json.Unmarshal(data, &code); err != nil || code.Code == nil {
		return fmt.Errorf("%w (HTTP %d)", errNotFeishu, resp.StatusCode)
	}
	if theirs, err := http.ParseTime(resp.Header.Get("Date")); err == nil && f.token == "" {
		ahead := theirs.Add(time.Second / 2).Sub(ours) // it is to the second
		f.ahead = &ahead
	}
	if *code.Code != 0 {
		var answer refused
		_ = json.Unmarshal(data, &answer) // as far as it has the form
		answer.Code = *code.Code
		return &answer
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%w (%s has another form)", errNotFeishu, strings.TrimPrefix(path, "/open-apis/"))
	}
	return nil
}

func (f *feishuCaller) get(ctx context.Context, path string, out any) error {
	return f.call(ctx, http.MethodGet, path, nil, out)
}

// reachFeishu asks for a token with the app's credentials where they are configured,
// else only whether Feishu answers.
func reachFeishu(ctx context.Context, c *config) (*feishuCaller, []finding) {
	f := &feishuCaller{base: c.BaseURL.String()}
	var token struct {
		Token string `json:"tenant_access_token"`
	}
	if c.AppID == "" || c.AppSecret == "" {
		// A call without a token: Feishu's refusal shows that it is Feishu.
		if err := f.get(ctx, "/open-apis/bot/v3/info", &token); err != nil && !isA[*refused](err) {
			return f, failure(unreachedMend(err), "%s: %s", f.base, plainly(err))
		}
		return f, nil
	}
	app, err := json.Marshal(map[string]string{"app_id": c.AppID, "app_secret": string(c.AppSecret)})
	if err == nil {
		err = f.call(ctx, http.MethodPost, "/open-apis/auth/v3/tenant_access_token/internal", app, &token)
	}
	if refusal, ok := errors.AsType[*refused](err); ok {
		return f, failure(credentialsMend(c, refusal), "%s refuses %s: %v", f.base, c.AppID, refusal)
	}
	if err == nil && token.Token == "" {
		err = errNotFeishu
	}
	if err != nil {
		return f, failure(unreachedMend(err), "%s: %s", f.base, plainly(err))
	}
	f.token = token.Token
	return f, nil
}

func checkFeishuClock(_ context.Context, s *subject) []finding {
	f, _ := s.feishu()
	if f.ahead == nil {
		return nil
	}
	return clockFinding("Feishu", maxFeishuSkew, *f.ahead)
}

func checkFeishu(_ context.Context, s *subject) []finding {
	f, problem := s.feishu()
	switch {
	case problem != nil:
		return problem
	case !hasApp(s):
		return unseen("give check FEISHU_APP_ID and FEISHU_APP_SECRET to have them looked at",
			"%s answers; the app's scopes, events and groups cannot be seen with the bot's own token alone", f.base)
	}
	return well("%s takes the credentials of %s", f.base, s.AppID)
}

// isA reports whether an error of type E is in err's tree.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// unreachedMend is what to do about a network in which Feishu is not found.
func unreachedMend(err error) string {
	const lark = "(Lark's is https://open.larksuite.com)"
	switch {
	case errors.Is(err, errNotFeishu):
		return "set FEISHU_BASE_URL to Feishu's address " + lark + "; a proxy on the way may ask for a sign-in"
	case isA[*net.DNSError](err):
		return "check FEISHU_BASE_URL and this host's DNS: nslookup open.feishu.cn"
	case isA[x509.UnknownAuthorityError](err) || isA[x509.HostnameError](err):
		return "a proxy opens the connection, or this host has no list of authorities: set SSL_CERT_FILE " +
			"to a PEM file with the right one (install ca-certificates)"
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
		return "copy the App Secret again into FEISHU_APP_SECRET: " + console(c, "/baseinfo")
	case r.Code == 10003:
		return "copy the App ID (cli_ and 16 digits or letters a to f) into FEISHU_APP_ID: " + console(c, "")
	case strings.Contains(msg, "not exist"):
		return "correct FEISHU_APP_ID; if the app is on the other platform: FEISHU_BASE_URL=" + other
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
		return "publish a version and have the tenant's administrator approve and enable the app: " +
			console(c, "/version")
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

// console is the app's page where the fix is made.
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

// unanswered is the finding, of found's status, about a question that Feishu did not answer.
func unanswered(c *config, found judged, what string, err error) []finding {
	mend := unreachedMend(err)
	if r, ok := errors.AsType[*refused](err); ok {
		mend = refusalMend(c, r)
	}
	return found(mend, "%s is not known: %s", what, plainly(err))
}

// States of an app (activate_status).
const (
	appEnabled = 2
	appUpgrade = 4
)

var appStates = map[int]string{0: "not installed yet", 1: "disabled in the tenant", 3: "installed and not enabled",
	appUpgrade: "waiting for an upgrade to be enabled", 5: "disabled: its licence has ended",
	6: "disabled: the tenant's plan has ended"}

// checkFeishuBot asks who the bot is.
func checkFeishuBot(ctx context.Context, s *subject) []finding {
	f, _ := s.feishu()
	var answer struct {
		Bot struct {
			State  *int   `json:"activate_status"`
			Name   string `json:"app_name"`
			OpenID string `json:"open_id"`
		} `json:"bot"`
	}
	if err := f.get(ctx, "/open-apis/bot/v3/info", &answer); err != nil {
		return unanswered(s.config, failure, "who the bot is", err)
	}
	bot := answer.Bot
	if bot.OpenID == "" {
		return failure(refusalMend(s.config, &refused{Code: 11205}), "%s has no bot", s.AppID)
	}
	if bot.State != nil && *bot.State != appEnabled {
		found := failure
		if *bot.State == appUpgrade {
			found = warning
		}
		return found(refusalMend(s.config, &refused{Code: 99991662}), "%s is %s (activate_status %d)",
			bot.Name, cmp.Or(appStates[*bot.State], "not enabled"), *bot.State)
	}
	out := well("%s is %s (%s)", s.AppID, bot.Name, bot.OpenID)
	if s.BotName != "" && s.BotName != bot.Name {
		out = append(out, warning(fmt.Sprintf("BOT_NAME='%s', or leave it out", bot.Name), "BOT_NAME is %s, "+
			"and Feishu calls the bot %s: people and bots address it by the latter", s.BotName, bot.Name)...)
	}
	if s.BotOpenID != "" && string(s.BotOpenID) != bot.OpenID {
		out = append(out, warning("BOT_OPEN_ID="+bot.OpenID+", or leave it out", "BOT_OPEN_ID is %s, "+
			"and the bot's own is %s: an open_id is different for each app that looks", s.BotOpenID, bot.OpenID)...)
	}
	return out
}

// need is what scopes are for: one of them is enough.
type need struct {
	what   string
	scopes []string // the best first
	found  judged   // of a bot without any
}

// needs are the scopes that a bot and its sidecar need for im.message.receive_v1 and
// the calls of package feishu.
var needs = []need{
	{"hear people in groups", []string{"im:message.group_msg", "im:message.group_at_msg:readonly",
		"im:message.group_at_msg", "im:message.group_at_msg.include_bot:readonly", "im:message.group_msg:readonly",
		"im:message.group_msg.include_bot:read"}, failure},
	{"send messages", []string{"im:message:send_as_bot", "im:message", "im:message:send"}, failure},
	{"tell groups from private chats", []string{"im:chat:readonly", "im:chat", "im:chat:read"}, warning},
	{"see the other bots of a group", []string{"im:chat.members:read", "im:chat:readonly", "im:chat",
		"im:chat.members:bot_access"}, warning},
	{"read messages again and their files", []string{"im:message:readonly", "im:message",
		"im:message.history:readonly"}, warning},
	{"know people's names", []string{"contact:user.base:readonly", "contact:contact.base:readonly",
		"contact:contact:readonly_as_app"}, warning},
}

// noticeNeeds is what showing a group that its bots were stopped needs beside that.
func noticeNeeds(c *config) []need {
	file := readGroups(c.GroupsFile)
	reacts := c.Steer.StopNotice == "reaction"
	if file != nil {
		for _, g := range file.Groups {
			reacts = reacts || g.StopNotice == "reaction"
		}
	}
	if !reacts {
		return nil
	}
	return []need{{"show by a reaction that bots were stopped; STOP_NOTICE=text or off needs none",
		[]string{"im:message.reactions:write_only", "im:message"}, warning}}
}

// hearsAll are the scopes with which a bot hears what is not addressed to it.
var hearsAll = []string{"im:message.group_msg", "im:message.group_msg:readonly",
	"im:message.group_msg.include_bot:read"}

func anyOf(some, all []string) bool {
	return slices.ContainsFunc(some, func(s string) bool { return slices.Contains(all, s) })
}

// checkScopes compares the scopes that the tenant has granted with what is needed.
func checkScopes(ctx context.Context, s *subject) (out []finding) {
	f, _ := s.feishu()
	const granted = 1
	var answer struct {
		Data struct {
			Scopes []struct {
				Name   string `json:"scope_name"`
				Status int    `json:"grant_status"`
				Kind   string `json:"scope_type"`
			} `json:"scopes"`
		} `json:"data"`
	}
	if err := f.get(ctx, "/open-apis/application/v6/scopes", &answer); err != nil {
		return unanswered(s.config, warning, "which scopes the tenant has granted", err)
	}
	var has, waits []string
	for _, scope := range answer.Data.Scopes {
		switch {
		case scope.Kind == "user": // of people's tokens
		case scope.Status == granted:
			has = append(has, scope.Name)
		default:
			waits = append(waits, scope.Name)
		}
	}
	for _, n := range slices.Concat(needs, noticeNeeds(s.config)) {
		mend := "add " + n.scopes[0] + " and publish a version: " + scopeURL(s.config, n.scopes[0])
		if anyOf(n.scopes, waits) {
			mend = "it is applied for and not granted: publish a version, and have the administrator approve it: " +
				console(s.config, "/version")
		}
		if !anyOf(n.scopes, has) {
			first := strings.Join(n.scopes[:min(len(n.scopes), 3)], ", ")
			out = append(out, n.found(mend, "without a scope to %s (%s)", n.what, first)...)
		}
	}
	if len(out) > 0 {
		return out
	}
	hears := "everything people say"
	if !anyOf(hearsAll, has) {
		hears = "only what is addressed to it (im:message.group_msg gives the rest)"
		if len(s.Steer.Commands) > 0 {
			hears += "; a command and a continue need a mention in front"
		}
	}
	return well("%s; in groups the bot hears %s", counted(len(has), "is granted", "are granted"), hears)
}

// appVersion is a version of an app.
type appVersion struct {
	Name    string `json:"version"`
	Status  int    `json:"status"`
	Ability *struct {
		Bot *struct{} `json:"bot"`
	} `json:"ability"`
	Events []appEvent `json:"event_infos"`
}

type appEvent struct {
	Type string `json:"event_type"`
}

// checkEvents looks at the newest published version: which events are subscribed, and
// whether the bot ability is part of it.
func checkEvents(ctx context.Context, s *subject) (out []finding) {
	f, _ := s.feishu()
	const published = 1
	var answer struct {
		Data struct {
			Items []appVersion `json:"items"` // the newest first
		} `json:"data"`
	}
	events, versions := console(s.config, "/event"), console(s.config, "/version")
	look := "in the console, Events & Callbacks must subscribe " + eventReceive + " (by long connection or by " +
		"webhook, as the bot works), and a version must be published after that: " + events
	err := f.get(ctx, "/open-apis/application/v6/applications/"+url.PathEscape(s.AppID)+
		"/app_versions?lang=zh_cn&page_size=20&order=0", &answer)
	if r, ok := errors.AsType[*refused](err); ok && r.Code == 99991672 {
		return unseen(look, "cannot be seen without the scope application:application:self_manage")
	} else if ok {
		return unseen(look, "cannot be seen from here (%v)", r)
	}
	if err != nil {
		return unanswered(s.config, warning, "which events are subscribed", err)
	}
	all := answer.Data.Items
	at := slices.IndexFunc(all, func(v appVersion) bool { return v.Status == published })
	if at < 0 {
		return failure("publish one and have it approved: "+versions, "no version of the app is published")
	}
	live := all[at]
	if live.Ability != nil && live.Ability.Bot == nil {
		return failure(refusalMend(s.config, &refused{Code: 11205}), "version %s has no bot", live.Name)
	}
	for _, e := range []struct {
		event, effect, where string
		found                judged
	}{
		{eventReceive, "the bot hears nothing", " (Events & Callbacks)", failure},
		{feishu.EventBotAdded, "that the bot was added to a group is known late", "", warning},
		{feishu.EventBotDeleted, "that the bot was removed from a group is known late", "", warning},
		{feishu.EventRecalled, "what people recall stays where bots and readers see it", "", warning},
	} {
		if !slices.Contains(live.Events, appEvent{e.event}) {
			out = append(out, e.found("subscribe it"+e.where+" and publish a version: "+events,
				"version %s does not subscribe %s: %s", live.Name, e.event, e.effect)...)
		}
	}
	if at > 0 {
		out = append(out, warning("publish it, or wait for the administrator's approval: "+versions,
			"version %s is not published: what it adds does not work yet", all[0].Name)...)
	}
	if len(out) == 0 {
		out = well("version %s subscribes %s", live.Name, eventReceive)
	}
	return out
}

// chat is a group that the bot is in.
type chat struct {
	ID   string `json:"chat_id"`
	Name string `json:"name"`
}

// checkFeishuGroups lists the groups that the bot is in, and compares them with the
// groups file.
func checkFeishuGroups(ctx context.Context, s *subject) []finding {
	f, _ := s.feishu()
	in, all, err := botGroups(ctx, f)
	if err != nil {
		return unanswered(s.config, warning, "which groups the bot is in", err)
	}
	if len(in) == 0 {
		return warning("in the group: Settings, Bots, Add Bot, and choose the bot", "the bot is in no group")
	}
	var names []string
	for _, g := range in {
		names = append(names, cmp.Or(g.Name, g.ID))
	}
	more := ""
	if !all {
		more = " or more"
	}
	out := well("the bot is in %s%s: %s", counted(len(in), "group", "groups"), more, some(names))
	if file := readGroups(s.GroupsFile); file != nil {
		out = append(out, disagreements(file, string(s.Agent), in, all, s.GroupsFile)...)
	}
	return out
}

// steerAdmins is the STEER_BY with which Feishu is asked who manages a group.
const steerAdmins = "admins"

// checkManagers asks who owns and manages a group, as the sidecar does before it carries out a command.
func checkManagers(ctx context.Context, s *subject) []finding {
	const effect = "STEER_BY is admins, and %s: nobody can change a group's settings there by this bot"
	mend := "let a sidecar with the app's id and secret, or a gateway, hear the group, or set STEER_BY to a list"
	switch {
	case !s.KnowsFeishu():
		return warning(mend, effect, "this sidecar cannot ask Feishu who the administrators are")
	case !hasApp(s):
		return nil // the bot's own token is used, and not known here
	}
	f, problem := s.feishu()
	if problem != nil {
		return nil // it is reported there
	}
	in, _, err := botGroups(ctx, f)
	if err == nil && len(in) == 0 {
		return nil
	}
	var answer struct {
		Data struct {
			Owner string `json:"owner_id"`
		} `json:"data"`
	}
	if err == nil {
		err = f.get(ctx, "/open-apis/im/v1/chats/"+url.PathEscape(in[0].ID)+"?user_id_type=open_id", &answer)
	}
	if err != nil {
		if r, ok := errors.AsType[*refused](err); ok {
			mend = refusalMend(s.config, r)
		}
		return warning(mend, effect, "the chat information cannot be read ("+plainly(err)+")")
	}
	return well("who manages a group can be read (STEER_BY=admins)")
}

// botGroups returns the groups that the bot is in, and whether they are all.
func botGroups(ctx context.Context, f *feishuCaller) (in []chat, all bool, err error) {
	query := url.Values{"page_size": {fmt.Sprint(groupPage)}}
	for range maxGroupPages {
		var answer struct {
			Data struct {
				Items   []chat `json:"items"`
				HasMore bool   `json:"has_more"`
				Token   string `json:"page_token"`
			} `json:"data"`
		}
		if err := f.get(ctx, "/open-apis/im/v1/chats?"+query.Encode(), &answer); err != nil {
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

// disagreements compares what the file says of agent with where the bot is.
func disagreements(file *groups.File, agent string, in []chat, all bool, path string) (out []finding) {
	var absent, unlisted []string
	for _, id := range slices.Sorted(maps.Keys(file.Groups)) {
		isIn := slices.ContainsFunc(in, func(g chat) bool { return g.ID == id })
		label := cmp.Or(file.Groups[id].Name, id)
		switch member, _ := file.Member(id, agent); {
		case member && !isIn && all:
			absent = append(absent, label)
		case !member && isIn:
			unlisted = append(unlisted, label)
		}
	}
	if len(absent) > 0 {
		mend := "add the bot to them (group settings, Bots), or take " + agent + " out of their members in " + path
		out = warning(mend, "%s lists %s in groups that the bot is not in: %s", path, agent, some(absent))
	}
	if len(unlisted) > 0 {
		out = append(out, warning(fmt.Sprintf("add %q to their members in %s", agent, path),
			"the bot is in groups whose members in %s are without %s: %s", path, agent, some(unlisted))...)
	}
	return out
}
