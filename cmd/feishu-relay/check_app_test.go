package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/selftest"
)

// tenant is a stand-in for Feishu with one app, in front of which a test may put
// its own answers, before it asks.
type tenant struct {
	*feishusim.Server
	app     feishusim.App
	answers map[string]string // by the end of the path
	date    string            // of every answer; "": the right one
}

func newTenant(t *testing.T, scopes ...string) *tenant {
	t.Helper()
	configured(t)
	in := &tenant{Server: feishusim.New(feishusim.Options{}), answers: map[string]string{}}
	t.Cleanup(func() { _ = in.Close() })
	in.app = in.AddApp(feishusim.App{Name: "BotA", Scopes: scopes})
	in.releases(release{"1.0.2", 1, true, []string{"im.message.receive_v1", "im.chat.member.bot.added_v1", "im.chat.member.bot.deleted_v1",
		"im.message.recalled_v1"}})
	srv := httptest.NewServer(in)
	t.Cleanup(srv.Close)
	t.Setenv("FEISHU_BASE_URL", srv.URL)
	t.Setenv("FEISHU_APP_ID", in.app.ID)
	t.Setenv("FEISHU_APP_SECRET", in.app.Secret)
	return in
}

func (in *tenant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if in.date != "" {
		w.Header().Set("Date", in.date)
	}
	for end, answer := range in.answers {
		if strings.HasSuffix(r.URL.Path, end) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer)
			return
		}
	}
	in.Handler().ServeHTTP(w, r)
}

// release is a version of an app.
type release struct {
	name   string
	status int
	bot    bool
	events []string
}

const versionsPath = "/app_versions" // application/v6/applications/{id}

func (in *tenant) releases(list ...release) {
	items := []map[string]any{}
	for _, v := range list {
		events := []map[string]string{}
		for _, e := range v.events {
			events = append(events, map[string]string{"event_type": e})
		}
		ability := map[string]any{}
		if v.bot {
			ability["bot"] = map[string]any{"card_request_url": ""}
		}
		items = append(items, map[string]any{"version": v.name, "status": v.status, "ability": ability, "event_infos": events})
	}
	body, err := json.Marshal(map[string]any{"code": 0, "msg": "success", "data": map[string]any{"items": items}})
	if err != nil {
		panic(err) // plain values
	}
	in.answers[versionsPath] = string(body)
}

func TestCheckFeishuApp(t *testing.T) {
	in := newTenant(t)
	in.AddGroup("Research", in.app.ID)
	in.AddGroup("研发群", in.app.ID)
	in.AddGroup("Others")
	code, found := checked(t)
	if code != 0 {
		t.Errorf("status %d, want 0: %v", code, found)
	}
	wants(t, found, "Feishu", selftest.OK, "takes the credentials of "+in.app.ID)
	wants(t, found, "Feishu groups", selftest.OK, "the bot is in 2 groups: ")
	wants(t, found, "Feishu groups", selftest.OK, "研发群")
	if strings.Contains(fmt.Sprint(found), in.app.Secret) {
		t.Errorf("the secret is shown: %v", found)
	}
	for _, f := range in.Requests() {
		if f.Method != http.MethodGet && !strings.HasPrefix(f.URI, "/open-apis/auth/") {
			t.Errorf("the check called %s %s", f.Method, f.URI)
		}
	}
}

// Each way in which credentials are refused has its own mend.
func TestCheckFeishuCredentials(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		code int // of a planned answer; 0: the stand-in's own
		msg  string
		says string
	}{
		{"wrong secret", map[string]string{"FEISHU_APP_SECRET": "hidden"}, 0, "", "copy the App Secret again into FEISHU_APP_SECRET: https://open.feishu.cn/app/cli_"},
		{"another app", map[string]string{"FEISHU_APP_ID": "cli_0123456789abcdef"}, 0, "", "FEISHU_BASE_URL=https://open.larksuite.com"},
		{"no app id", nil, 10003, "invalid param", "copy the App ID"},
		{"disabled", nil, 99991662, "the app is not in use", "publish a version and have the tenant's administrator approve and enable the app"},
		{"not installed", nil, 99991673, "app status unavailable", "/version"},
		{"another address", nil, 99991401, "ip denied", "IP whitelist"},
		{"used up", nil, 99991403, "quota", "used up its calls"},
		{"too often", nil, 99991400, "frequency limit", "try again in a minute"},
		{"who knows", nil, 12345, "mystery", "look at the app"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := newTenant(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			if tt.code != 0 {
				in.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "POST /open-apis/auth/v3/tenant_access_token/internal", Code: tt.code, Msg: tt.msg, Status: 200})
			}
			code, found := checked(t)
			wants(t, found, "Feishu", selftest.Fail, tt.says)
			if code != 1 || len(found["Feishu bot"]) > 0 {
				t.Errorf("status %d, and the check went on: %v", code, found)
			}
		})
	}
}

// What is found out about the app, and what to do about it.
func TestCheckFeishuFinds(t *testing.T) {
	type prepare = func(t *testing.T, in *tenant)
	without := func(gone ...string) []string {
		return slices.DeleteFunc(feishusim.DefaultScopes(), func(s string) bool { return slices.Contains(gone, s) })
	}
	env := func(pairs ...string) prepare { return func(t *testing.T, _ *tenant) { setenv(t, pairs...) } }
	answers := func(end, body string) prepare { return func(_ *testing.T, in *tenant) { in.answers[end] = body } }
	releases := func(list ...release) prepare { return func(_ *testing.T, in *tenant) { in.releases(list...) } }
	events := []string{"im.message.receive_v1", "im.chat.member.bot.added_v1", "im.chat.member.bot.deleted_v1",
		"im.message.recalled_v1"}
	const ok, warn, fail, unknown = selftest.OK, selftest.Warn, selftest.Fail, selftest.Unknown
	for _, tt := range []struct {
		finding, name string
		scopes        []string
		prepare       prepare
		status        selftest.Status // "": nothing is found
		says          string
	}{
		{"Feishu bot", "another name", nil, env("BOT_NAME", "BotB"), warn, "BOT_NAME='BotA', or leave it out"},
		{"Feishu bot", "another id", nil, env("BOT_OPEN_ID", "ou_other"), warn, "BOT_OPEN_ID=ou_"},
		{"Feishu bot", "no ability", nil, answers("/bot/v3/info", `{"code":11205,"msg":"app do not have bot"}`), fail,
			"turn on the bot ability (Add Features: Bot) and publish a version: https://open.feishu.cn/app/cli_"},
		{"Feishu bot", "no bot", nil, answers("/bot/v3/info", `{"code":0,"msg":"ok","bot":{}}`), fail, "turn on the bot ability"},
		{"Feishu bot", "a web page", nil, answers("/bot/v3/info", `<html>`), fail, "what answers is not Feishu"},
		{"Feishu scopes", "a reply needs no reaction", without("im:message", "im:message.reactions:write_only"),
			env("STOP_NOTICE", "text"), ok, "are granted"},
		{"Feishu scopes", "only @", without("im:message.group_msg"), nil, ok,
			"only what is addressed to it (im:message.group_msg"},
		{"Feishu scopes", "commands", without("im:message.group_msg"), nil, ok, "a command and a continue need a mention in front"},
		{"Feishu scopes", "mute", without("im:message", "im:message:send_as_bot"), nil, fail, "send messages"},
		{"Feishu scopes", "no reactions", without("im:message", "im:message.reactions:write_only"), nil, warn,
			"show by a reaction that bots were stopped"},
		{"Feishu scopes", "no reading", without("im:message", "im:message:readonly"), nil, warn, "read messages again"},
		{"Feishu scopes", "applied for", nil, answers("/v6/scopes", `{"code":0,"data":{"scopes":[
			{"scope_name":"im:message.group_msg","grant_status":2,"scope_type":"tenant"}]}}`), fail,
			"it is applied for and not granted"},
		{"Feishu scopes", "of users", nil, answers("/v6/scopes", `{"code":0,"data":{"scopes":[
			{"scope_name":"im:message","grant_status":1,"scope_type":"user"}]}}`), fail,
			"add im:message:send_as_bot and publish a version"},
		{"Feishu scopes", "not installed", nil, answers("/v6/scopes", `{"code":212100,"msg":"app not install"}`), warn,
			"have the tenant's administrator approve"},
		{"Feishu events", "none published", nil, releases(release{"2", 4, true, events}), fail, "no version of the app is published"},
		{"Feishu events", "deaf", nil, releases(release{"2", 1, true, nil}), fail,
			"version 2 does not subscribe im.message.receive_v1"},
		{"Feishu events", "no bot", nil, releases(release{"2", 1, false, events}), fail, "version 2 has no bot"},
		{"Feishu events", "no such call", nil, func(_ *testing.T, in *tenant) { delete(in.answers, versionsPath) }, unknown,
			"cannot be seen: code 99991201"},
		{"Feishu events", "no right to look", nil, answers(versionsPath, `{"code":99991672,
			"msg":"One of the following scopes is required: [application:application:self_manage]."}`), unknown,
			"Events & Callbacks must subscribe im.message.receive_v1"},
		{"Feishu connections", "none", nil, nil, "", ""},
		{"Feishu connections", "another program", nil, answers("/event/v1/connection",
			`{"code":0,"data":{"online_instance_cnt":2}}`), warn, "the app has 2 long connections"},
		{"Feishu groups", "the page that grants a scope", []string{"im:message"}, nil, warn,
			"add the scope and publish a version: https://open.feishu.cn/app/cli_"},
		{"Feishu groups", "the scopes that are missing", []string{"im:message"}, nil, warn,
			"/auth?q=im:chat,im:chat:readonly,im:chat:read&op_from=openapi"},
		{"Feishu clock", "ahead", nil, func(_ *testing.T, in *tenant) {
			in.date = time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat)
		}, warn, " behind that of Feishu"},
	} {
		t.Run(tt.finding+", "+tt.name, func(t *testing.T) {
			in := newTenant(t, tt.scopes...)
			in.AddGroup("Lab", in.AddUser("Ann").ID, in.app.ID)
			if tt.prepare != nil {
				tt.prepare(t, in)
			}
			_, found := checked(t)
			if tt.status == "" && found[tt.finding] != nil {
				t.Errorf("found %v", found[tt.finding])
			} else if tt.status != "" {
				wants(t, found, tt.finding, tt.status, tt.says)
			}
			if tt.finding == "Feishu bot" && tt.status == fail && found["Feishu scopes"] != nil {
				t.Errorf("the check went on: %v", found["Feishu scopes"])
			}
		})
	}
}

func TestCheckFeishuGroups(t *testing.T) {
	in := newTenant(t)
	_, found := checked(t)
	wants(t, found, "Feishu groups", selftest.Warn, "in the group: Settings, Bots, Add Bot")

	in.AddGroup("Research", in.app.ID)
	for i := range 201 { // three pages
		in.AddGroup(fmt.Sprint("more ", i), in.app.ID)
	}
	_, found = checked(t)
	wants(t, found, "Feishu groups", selftest.OK, "the bot is in 202 groups: ")
	in.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "GET /open-apis/im/v1/chats", Code: 232025, Msg: "Bot ability is not activated."})
	_, found = checked(t)
	wants(t, found, "Feishu groups", selftest.Warn, "turn on the bot ability")
}

func TestCheckFeishuUnreached(t *testing.T) {
	for _, tt := range []struct {
		name, base, says string
		handler          http.HandlerFunc
	}{
		{"no such host", "http://feishu.invalid", "DNS", nil},
		{"nobody", "http://127.0.0.1:1", "HTTPS_PROXY", nil},
		{"another program", "", "a proxy on the way may ask for a sign-in", http.NotFound},
		{"another API", "", "what answers is not Feishu (HTTP 200)", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"ok"}`) }},
		{"a redirect", "", "what answers is not Feishu (HTTP 302)", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/sign-in", http.StatusFound) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			configured(t)
			if tt.handler != nil {
				srv := httptest.NewServer(tt.handler)
				defer srv.Close()
				tt.base = srv.URL
			}
			t.Setenv("FEISHU_BASE_URL", tt.base)
			t.Setenv("FEISHU_APP_ID", "cli_x")
			t.Setenv("FEISHU_APP_SECRET", "hidden")
			code, found := checked(t)
			wants(t, found, "Feishu", selftest.Fail, tt.says)
			if code != 1 || strings.Contains(fmt.Sprint(found), "hidden") {
				t.Errorf("status %d, %v", code, found)
			}
		})
	}
	t.Run("an authority that is not trusted", func(t *testing.T) {
		configured(t)
		srv := httptest.NewTLSServer(http.NotFoundHandler())
		defer srv.Close()
		t.Setenv("FEISHU_BASE_URL", srv.URL)
		t.Setenv("GATEWAY_ADDR", "127.0.0.1:0")
		_, found := checked(t)
		wants(t, found, "Feishu", selftest.Fail, "SSL_CERT_FILE")
	})
}
