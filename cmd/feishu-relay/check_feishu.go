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

// notFeishu is the error of an answer that is not Feishu's.
type notFeishu struct{ text }

func (e notFeishu) Unwrap() error { return e.text }

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

// call asks Feishu and reads the answer into out. Errors are a [*refused], a [notFeishu],
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
		return notFeishu{say("what answers is not Feishu (HTTP %d)", "应答的不是飞书（HTTP %d）", resp.StatusCode)}
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
		return notFeishu{say("what answers is not Feishu (%s has another form)", "应答的不是飞书（%s 的格式不对）",
			strings.TrimPrefix(path, "/open-apis/"))}
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
			return f, failure(unreachedMend(err), "%s: %s", "", f.base, plainly(err))
		}
		return f, nil
	}
	app, err := json.Marshal(map[string]string{"app_id": c.AppID, "app_secret": string(c.AppSecret)})
	if err == nil {
		err = f.call(ctx, http.MethodPost, "/open-apis/auth/v3/tenant_access_token/internal", app, &token)
	}
	if refusal, ok := errors.AsType[*refused](err); ok {
		return f, failure(credentialsMend(c, refusal), "%s refuses %s: %v", "%s 拒绝 %s：%v", f.base, c.AppID, refusal)
	}
	if err == nil && token.Token == "" {
		err = notFeishu{text{"what answers is not Feishu", "应答的不是飞书"}}
	}
	if err != nil {
		return f, failure(unreachedMend(err), "%s: %s", "", f.base, plainly(err))
	}
	f.token = token.Token
	return f, nil
}

func checkFeishuClock(_ context.Context, s *subject) []finding {
	f, _ := s.feishu()
	if f.ahead == nil {
		return nil
	}
	return clockFinding(text{"Feishu", "飞书"}, maxFeishuSkew, *f.ahead)
}

func checkFeishu(_ context.Context, s *subject) []finding {
	f, problem := s.feishu()
	switch {
	case problem != nil:
		return problem
	case !hasApp(s):
		return unseen(say("give check FEISHU_APP_ID and FEISHU_APP_SECRET to have them looked at",
			"要检查这些，请给出 FEISHU_APP_ID 和 FEISHU_APP_SECRET"),
			"%s answers; the app's scopes, events and groups cannot be seen with the bot's own token alone",
			"%s 有应答；只凭机器人自己的令牌，看不到应用的权限、事件和群", f.base)
	}
	return well("%s takes the credentials of %s", "%s 接受 %s 的凭证", f.base, s.AppID)
}

// isA reports whether an error of type E is in err's tree.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// unreachedMend is what to do about a network in which Feishu is not found.
func unreachedMend(err error) text {
	switch {
	case isA[notFeishu](err):
		return say("set FEISHU_BASE_URL to Feishu's address (Lark's is https://open.larksuite.com); "+
			"a proxy on the way may ask for a sign-in",
			"把 FEISHU_BASE_URL 设成飞书的地址（Lark 是 https://open.larksuite.com）；也可能是途中的代理要求登录")
	case isA[*net.DNSError](err):
		return say("check FEISHU_BASE_URL and this host's DNS: nslookup open.feishu.cn",
			"检查 FEISHU_BASE_URL 和这台主机的 DNS：nslookup open.feishu.cn")
	case isA[x509.UnknownAuthorityError](err) || isA[x509.HostnameError](err):
		return say("a proxy opens the connection, or this host has no list of authorities: set SSL_CERT_FILE "+
			"to a PEM file with the right one (install ca-certificates)",
			"代理解密了连接，或这台主机没有根证书：把 SSL_CERT_FILE 设成含正确根证书的 PEM 文件（安装 ca-certificates）")
	}
	return say("set FEISHU_BASE_URL (Lark's is https://open.larksuite.com), or HTTPS_PROXY "+
		"if Feishu is reached by a proxy",
		"设 FEISHU_BASE_URL（Lark 是 https://open.larksuite.com）；要经代理访问飞书的话，设 HTTPS_PROXY")
}

// credentialsMend is what to do about refused credentials.
func credentialsMend(c *config, r *refused) text {
	other := "https://open.larksuite.com"
	if isLark(c) {
		other = "https://open.feishu.cn"
	}
	switch msg := strings.ToLower(r.Msg); {
	case strings.Contains(msg, "secret") || r.Code == 99991543:
		return say("copy the App Secret again into FEISHU_APP_SECRET: %s", "重新复制 App Secret 到 FEISHU_APP_SECRET：%s",
			console(c, "/baseinfo"))
	case r.Code == 10003:
		return say("copy the App ID (cli_ and 16 digits or letters a to f) into FEISHU_APP_ID: %s",
			"重新复制 App ID（cli_ 加 16 位数字或 a 到 f 的字母）到 FEISHU_APP_ID：%s", console(c, ""))
	case strings.Contains(msg, "not exist"):
		return say("correct FEISHU_APP_ID; if the app is on the other platform: FEISHU_BASE_URL=%s",
			"改正 FEISHU_APP_ID；如果应用在另一个平台上：FEISHU_BASE_URL=%s", other)
	}
	return refusalMend(c, r)
}

// refusalMend is what to do about a call that Feishu refused.
func refusalMend(c *config, r *refused) text {
	switch r.Code {
	case 99991672:
		return say("add the scope and publish a version: %s", "添加权限并发布版本：%s", scopeURL(c, r.scopes()...))
	case 11205, 230006, 232025:
		return say("turn on the bot ability (Add Features: Bot) and publish a version: %s",
			"添加机器人能力（添加应用能力 → 机器人）并发布版本：%s", console(c, "/bot"))
	case 99991662, 99991673, 11207, 212100:
		return say("publish a version and have the tenant's administrator approve and enable the app: %s",
			"发布版本，请租户管理员审批并启用应用：%s", console(c, "/version"))
	case 99991400:
		return say("try again in a minute: the app calls too often", "调用太频繁，过一分钟再试")
	case 99991401:
		return say("add this host's address to the app's IP whitelist (Security Settings): %s",
			"把这台主机的地址加进应用的 IP 白名单（安全设置）：%s", console(c, "/safe"))
	case 99991403:
		return say("the tenant has used up its calls of this month: ask its administrator",
			"租户本月的调用额度用完了，请找管理员")
	}
	return say("look at the app, whether it is enabled and a version is published: %s",
		"看看应用是否已启用、版本是否已发布：%s", console(c, ""))
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
func unanswered(c *config, found judged, what text, err error) []finding {
	mend := unreachedMend(err)
	if r, ok := errors.AsType[*refused](err); ok {
		mend = refusalMend(c, r)
	}
	return found(mend, "%s is not known: %s", "查不到%s：%s", what, plainly(err))
}

// States of an app (activate_status).
const (
	appEnabled = 2
	appUpgrade = 4
)

var appStates = map[int]text{
	0: {"not installed yet", "还没有安装"}, 1: {"disabled in the tenant", "已被租户停用"},
	3: {"installed and not enabled", "已安装，没有启用"}, appUpgrade: {"waiting for an upgrade to be enabled", "等待启用升级"},
	5: {"disabled: its licence has ended", "已停用：许可到期"},
	6: {"disabled: the tenant's plan has ended", "已停用：租户的套餐到期"},
}

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
		return unanswered(s.config, failure, text{"who the bot is", "机器人是谁"}, err)
	}
	bot := answer.Bot
	if bot.OpenID == "" {
		return failure(refusalMend(s.config, &refused{Code: 11205}), "%s has no bot", "%s 没有机器人能力", s.AppID)
	}
	if bot.State != nil && *bot.State != appEnabled {
		found := failure
		if *bot.State == appUpgrade {
			found = warning
		}
		return found(refusalMend(s.config, &refused{Code: 99991662}),
			"%s is %s (activate_status %d)", "%s 的状态：%s（activate_status %d）",
			bot.Name, cmp.Or(appStates[*bot.State], text{"not enabled", "没有启用"}), *bot.State)
	}
	out := well("%s is %s (%s)", "%s 是 %s（%s）", s.AppID, bot.Name, bot.OpenID)
	if s.BotName != "" && s.BotName != bot.Name {
		out = append(out, warning(say("BOT_NAME='%s', or leave it out", "BOT_NAME='%s'，或不设", bot.Name),
			"BOT_NAME is %s, and Feishu calls the bot %s: people and bots address it by the latter",
			"BOT_NAME 是 %s，飞书里的名字是 %s：人和机器人用的都是后者", s.BotName, bot.Name)...)
	}
	if s.BotOpenID != "" && string(s.BotOpenID) != bot.OpenID {
		out = append(out, warning(say("BOT_OPEN_ID=%s, or leave it out", "BOT_OPEN_ID=%s，或不设", bot.OpenID),
			"BOT_OPEN_ID is %s, and the bot's own is %s: an open_id is different for each app that looks",
			"BOT_OPEN_ID 是 %s，机器人自己的是 %s：同一个机器人在每个应用里的 open_id 都不同", s.BotOpenID, bot.OpenID)...)
	}
	return out
}

// need is what scopes are for: one of them is enough.
type need struct {
	what   text
	scopes []string // the best first
	found  judged   // of a bot without any
}

// needs are the scopes that a bot and its sidecar need for im.message.receive_v1 and
// the calls of package feishu.
var needs = []need{
	{text{"hear people in groups", "接收群里人说的话"}, []string{"im:message.group_msg", "im:message.group_at_msg:readonly",
		"im:message.group_at_msg", "im:message.group_at_msg.include_bot:readonly", "im:message.group_msg:readonly",
		"im:message.group_msg.include_bot:read"}, failure},
	{text{"send messages", "发消息"}, []string{"im:message:send_as_bot", "im:message", "im:message:send"}, failure},
	{text{"tell groups from private chats", "区分群和私聊"}, []string{"im:chat:readonly", "im:chat", "im:chat:read"}, warning},
	{text{"see the other bots of a group", "查看群里的其他机器人"}, []string{"im:chat.members:read", "im:chat:readonly", "im:chat",
		"im:chat.members:bot_access"}, warning},
	{text{"read messages again and their files", "再次读取消息及其文件"}, []string{"im:message:readonly", "im:message",
		"im:message.history:readonly"}, warning},
	{text{"know people's names", "读取姓名"}, []string{"contact:user.base:readonly", "contact:contact.base:readonly",
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
	return []need{{text{"show by a reaction that bots were stopped; STOP_NOTICE=text or off needs none",
		"用表情回复提示停下（STOP_NOTICE 设为 text 或 off 就不需要）"},
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
		return unanswered(s.config, warning, text{"which scopes the tenant has granted", "租户批准了哪些权限"}, err)
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
		mend := say("add %s and publish a version: %s", "添加 %s 并发布版本：%s", n.scopes[0], scopeURL(s.config, n.scopes[0]))
		if anyOf(n.scopes, waits) {
			mend = say("it is applied for and not granted: publish a version, and have the administrator approve it: %s",
				"已申请，还没批准：发布版本，请管理员审批：%s", console(s.config, "/version"))
		}
		if !anyOf(n.scopes, has) {
			first := strings.Join(n.scopes[:min(len(n.scopes), 3)], ", ")
			out = append(out, n.found(mend, "without a scope to %s (%s)", "缺少权限：%s（%s）", n.what, first)...)
		}
	}
	if len(out) > 0 {
		return out
	}
	hears := say("everything people say", "收得到人说的所有话")
	if !anyOf(hearsAll, has) {
		hears = say("only what is addressed to it (im:message.group_msg gives the rest)",
			"只收得到 @ 它的话（im:message.group_msg 可收到其余的）")
		if len(s.Steer.Commands) > 0 {
			hears = say("%s; a command and a continue need a mention in front", "%s；命令和“继续”前面要先 @ 它", hears)
		}
	}
	return well("%s; in groups the bot hears %s",
		"%s；机器人在群里%s", text{counted(len(has), "is granted", "are granted"), fmt.Sprintf("已批准 %d 项", len(has))}, hears)
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
	look := say("in the console, Events & Callbacks must subscribe %s (by long connection or by "+
		"webhook, as the bot works), and a version must be published after that: %s",
		"在开发者后台的“事件与回调”里订阅 %s（用长连接或 webhook，看机器人怎样工作），之后再发布一个版本：%s", eventReceive, events)
	err := f.get(ctx, "/open-apis/application/v6/applications/"+url.PathEscape(s.AppID)+
		"/app_versions?lang=zh_cn&page_size=20&order=0", &answer)
	if r, ok := errors.AsType[*refused](err); ok && r.Code == 99991672 {
		return unseen(look,
			"cannot be seen without the scope application:application:self_manage",
			"没有 application:application:self_manage 权限，看不到")
	} else if ok {
		return unseen(look, "cannot be seen from here (%v)", "从这里看不到（%v）", r)
	}
	if err != nil {
		return unanswered(s.config, warning, text{"which events are subscribed", "订阅了哪些事件"}, err)
	}
	all := answer.Data.Items
	at := slices.IndexFunc(all, func(v appVersion) bool { return v.Status == published })
	if at < 0 {
		return failure(say("publish one and have it approved: %s", "发布一个版本并通过审批：%s", versions),
			"no version of the app is published", "应用还没有发布版本")
	}
	live := all[at]
	if live.Ability != nil && live.Ability.Bot == nil {
		return failure(refusalMend(s.config, &refused{Code: 11205}),
			"version %s has no bot", "版本 %s 没有机器人能力", live.Name)
	}
	for _, e := range []struct {
		event, where string
		effect       text
		found        judged
	}{
		{eventReceive, " (Events & Callbacks)", text{"the bot hears nothing", "机器人什么也收不到"}, failure},
		{feishu.EventBotAdded, "", text{"that the bot was added to a group is known late", "机器人被加进群，要晚一些才知道"}, warning},
		{feishu.EventBotDeleted, "", text{"that the bot was removed from a group is known late", "机器人被移出群，要晚一些才知道"}, warning},
		{feishu.EventRecalled, "", text{"what people recall stays where bots and readers see it",
			"撤回的消息，机器人和查看记录的人仍然看得到"}, warning},
	} {
		if !slices.Contains(live.Events, appEvent{e.event}) {
			out = append(out, e.found(say("subscribe it%s and publish a version: %s",
				"在“事件与回调”里订阅它并发布版本：%[2]s", e.where, events),
				"version %s does not subscribe %s: %s",
				"版本 %s 没有订阅 %s：%s", live.Name, e.event, e.effect)...)
		}
	}
	if at > 0 {
		out = append(out, warning(say("publish it, or wait for the administrator's approval: %s", "发布它，或等管理员审批：%s", versions),
			"version %s is not published: what it adds does not work yet",
			"版本 %s 还没有发布，新增的内容还没有生效", all[0].Name)...)
	}
	if len(out) == 0 {
		out = well("version %s subscribes %s", "版本 %s 订阅了 %s", live.Name, eventReceive)
	}
	return out
}

// checkConnections looks whether the app has several long connections: each event goes to one of them.
func checkConnections(ctx context.Context, s *subject) []finding {
	f, _ := s.feishu()
	var answer struct {
		Data struct {
			N int `json:"online_instance_cnt"`
		} `json:"data"`
	}
	err := f.get(ctx, "/open-apis/event/v1/connection", &answer)
	n := answer.Data.N
	if err != nil || n <= 1 { // where Feishu does not say, the other findings tell more
		return nil
	}
	return warning(say("only the bot's own program may connect with %s, through its sidecar: end the others",
		"用 %s 连接飞书的应当只有机器人自己的程序（经过边车）：关掉其他程序", s.AppID),
		"the app has %d long connections, and an event goes to one of them only: the bot misses the others' share",
		"这个应用有 %d 个长连接，每个事件只送给其中一个：机器人会漏掉一部分", n)
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
		return unanswered(s.config, warning, text{"which groups the bot is in", "机器人在哪些群里"}, err)
	}
	if len(in) == 0 {
		return warning(say("in the group: Settings, Bots, Add Bot, and choose the bot",
			"在群里：设置 → 群机器人 → 添加机器人，选这个机器人"),
			"the bot is in no group", "机器人不在任何群里")
	}
	var names []string
	for _, g := range in {
		names = append(names, cmp.Or(g.Name, g.ID))
	}
	where := text{counted(len(in), "group", "groups"), fmt.Sprintf("在 %d 个群里", len(in))}
	if !all {
		where = say("%s or more", "至少%s", where)
	}
	out := well("the bot is in %s: %s", "机器人%s：%s", where, some(names))
	if file := readGroups(s.GroupsFile); file != nil {
		out = append(out, disagreements(file, string(s.Agent), in, all, s.GroupsFile)...)
	}
	return out
}

// steerAdmins is the STEER_BY with which Feishu is asked who manages a group.
const steerAdmins = "admins"

// checkManagers asks who owns and manages a group, as the sidecar does before it carries out a command.
func checkManagers(ctx context.Context, s *subject) []finding {
	const en, zh = "STEER_BY is admins, and %s: nobody can change a group's settings there by this bot",
		"STEER_BY 是 admins，而%s：没有人能通过这个机器人改群的设置"
	mend := say("let a sidecar with the app's id and secret, or a gateway, hear the group, or set STEER_BY to a list",
		"让有 App ID 和 App Secret 或网关的边车收听这个群，或把 STEER_BY 设成名单")
	switch {
	case !s.KnowsFeishu():
		return warning(mend, en, zh, text{"this sidecar cannot ask Feishu who the administrators are", "这个边车不能向飞书询问谁是管理员"})
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
		return warning(mend, en, zh, say("the chat information cannot be read (%s)", "读不到群信息（%s）", plainly(err)))
	}
	return well("who manages a group can be read (STEER_BY=admins)", "可以读取谁管理群（STEER_BY=admins）")
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
		mend := say("add the bot to them (group settings, Bots), or take %s out of their members in %s",
			"把机器人加进这些群（群设置 → 群机器人），或把 %s 从 %s 里这些群的成员中去掉", agent, path)
		out = warning(mend,
			"%s lists %s in groups that the bot is not in: %s",
			"%s 里的 %s 列在机器人不在的群里：%s", path, agent, some(absent))
	}
	if len(unlisted) > 0 {
		out = append(out, warning(say("add %q to their members in %s", "把 %q 加到 %s 里这些群的成员中", agent, path),
			"the bot is in groups whose members in %s are without %s: %s",
			"机器人所在的群，%s 里的成员没有 %s：%s", path, agent, some(unlisted))...)
	}
	return out
}
