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

func TestCheckFeishuBot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer string // to bot/v3/info; "": the stand-in's own
		env    map[string]string
		status selftest.Status
		says   string
	}{
		{"another name", "", map[string]string{"BOT_NAME": "BotB"}, selftest.Warn, "BOT_NAME='BotA', or leave it out"},
		{"another id", "", map[string]string{"BOT_OPEN_ID": "ou_other"}, selftest.Warn, "BOT_OPEN_ID=ou_"},
		{"no ability", `{"code":11205,"msg":"app do not have bot"}`, nil, selftest.Fail, "turn on the bot ability (Add Features: Bot) and publish a version: https://open.feishu.cn/app/cli_"},
		{"no bot", `{"code":0,"msg":"ok","bot":{}}`, nil, selftest.Fail, "turn on the bot ability"},
		{"disabled", `{"code":0,"msg":"ok","bot":{"activate_status":1,"app_name":"BotA","open_id":"ou_x"}}`, nil, selftest.Fail, "BotA is disabled in the tenant (activate_status 1)"},
		{"not installed", `{"code":0,"msg":"ok","bot":{"activate_status":0,"app_name":"BotA","open_id":"ou_x"}}`, nil, selftest.Fail, "not installed yet"},
		{"an upgrade waits", `{"code":0,"msg":"ok","bot":{"activate_status":4,"app_name":"BotA","open_id":"ou_x"}}`, nil, selftest.Warn, "waiting for an upgrade"},
		{"a web page", `<html>`, nil, selftest.Fail, "what answers is not Feishu"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := newTenant(t)
			if tt.answer != "" {
				in.answers["/bot/v3/info"] = tt.answer
			}
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			_, found := checked(t)
			wants(t, found, "Feishu bot", tt.status, tt.says)
			if tt.status == selftest.Fail && len(found["Feishu scopes"]) > 0 {
				t.Errorf("the check went on: %v", found["Feishu scopes"])
			}
		})
	}
}

func TestCheckNoticesAndManagers(t *testing.T) {
	without := func(gone ...string) []string {
		return slices.DeleteFunc(feishusim.DefaultScopes(), func(s string) bool { return slices.Contains(gone, s) })
	}
	for _, tt := range []struct {
		name, notice, by string
		scopes           []string
		probe            string
		status           selftest.Status // "": nothing is found
		says             string
	}{
		{"a reply needs no reaction", "text", "members", without("im:message", "im:message.reactions:write_only"), "Feishu scopes", selftest.OK, "are granted"},
		{"managers can be read", "reaction", "admins", nil, "group managers", selftest.OK, "can be read"},
		{"managers cannot be read", "reaction", "admins", without("im:chat:readonly"), "group managers", selftest.Warn,
			"nobody can change a group's settings"},
		{"members steer", "reaction", "members", without("im:chat:readonly"), "group managers", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := newTenant(t, tt.scopes...)
			in.AddGroup("Lab", in.AddUser("Ann").ID, in.app.ID)
			t.Setenv("STOP_NOTICE", tt.notice)
			t.Setenv("STEER_BY", tt.by)
			_, found := checked(t)
			if tt.status == "" {
				if len(found[tt.probe]) > 0 {
					t.Errorf("found %v", found[tt.probe])
				}
				return
			}
			wants(t, found, tt.probe, tt.status, tt.says)
		})
	}
}

func TestCheckFeishuScopes(t *testing.T) {
	without := func(gone ...string) []string {
		return slices.DeleteFunc(feishusim.DefaultScopes(), func(s string) bool { return slices.Contains(gone, s) })
	}
	for _, tt := range []struct {
		name   string
		scopes []string
		status selftest.Status
		says   string
	}{
		{"only @", without("im:message.group_msg"), selftest.OK, "only what is addressed to it (im:message.group_msg"},
		{"only @, commands", without("im:message.group_msg"), selftest.OK, "a command and a continue need a mention in front"},
		{"mute", without("im:message", "im:message:send_as_bot"), selftest.Fail, "send messages"},
		{"no reactions", without("im:message", "im:message.reactions:write_only"), selftest.Warn, "show by a reaction that bots were stopped"},
		{"no reading", without("im:message", "im:message:readonly"), selftest.Warn, "read messages again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			newTenant(t, tt.scopes...)
			code, found := checked(t)
			wants(t, found, "Feishu scopes", tt.status, tt.says)
			if (code == 1) != (tt.status == selftest.Fail) {
				t.Errorf("status %d: %v", code, found)
			}
		})
	}
	t.Run("applied for", func(t *testing.T) {
		in := newTenant(t)
		in.answers["/v6/scopes"] = `{"code":0,"data":{"scopes":[
			{"scope_name":"im:message.group_msg","grant_status":2,"scope_type":"tenant"},
			{"scope_name":"im:message","grant_status":1,"scope_type":"user"}]}}`
		_, found := checked(t)
		wants(t, found, "Feishu scopes", selftest.Fail, "it is applied for and not granted")
		wants(t, found, "Feishu scopes", selftest.Fail, "add im:message:send_as_bot and publish a version") // a user's scope is none of the app's
	})
	t.Run("not installed", func(t *testing.T) {
		in := newTenant(t)
		in.answers["/v6/scopes"] = `{"code":212100,"msg":"app not install"}`
		_, found := checked(t)
		wants(t, found, "Feishu scopes", selftest.Warn, "have the tenant's administrator approve")
	})
}

func TestCheckFeishuEvents(t *testing.T) {
	all := []string{"im.message.receive_v1", "im.chat.member.bot.added_v1", "im.chat.member.bot.deleted_v1",
		"im.message.recalled_v1"}
	for _, tt := range []struct {
		name     string
		releases []release
		status   selftest.Status
		says     string
	}{
		{"none published", []release{{"2", 4, true, all}}, selftest.Fail, "no version of the app is published"},
		{"deaf", []release{{"2", 1, true, nil}}, selftest.Fail, "version 2 does not subscribe im.message.receive_v1"},
		{"not told of removal", []release{{"2", 1, true, all[:2]}}, selftest.Warn, "removed from a group is known late"},
		{"no bot", []release{{"2", 1, false, all}}, selftest.Fail, "version 2 has no bot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := newTenant(t)
			in.releases(tt.releases...)
			_, found := checked(t)
			wants(t, found, "Feishu events", tt.status, tt.says)
		})
	}
}

// An app with several connections is reported: another program takes a part of its events.
func TestCheckConnections(t *testing.T) {
	in := newTenant(t)
	if _, found := checked(t); found["Feishu connections"] != nil {
		t.Errorf("an app that is connected nowhere: %v", found["Feishu connections"])
	}
	in.answers["/event/v1/connection"] = `{"code":0,"data":{"online_instance_cnt":2}}`
	_, found := checked(t)
	wants(t, found, "Feishu connections", selftest.Warn, "the app has 2 long connections")
}

// What cannot be seen from here is said, with what to look for.
func TestCheckFeishuSaysWhatItCannotSee(t *testing.T) {
	in := newTenant(t)
	delete(in.answers, versionsPath)
	_, found := checked(t) // the stand-in has no such call
	wants(t, found, "Feishu events", selftest.Unknown, "cannot be seen from here (code 99991201")
	in.answers[versionsPath] = `{"code":99991672,"msg":"Access denied. One of the following scopes is required: [application:application:self_manage]."}`
	_, found = checked(t)
	wants(t, found, "Feishu events", selftest.Unknown, "Events & Callbacks must subscribe im.message.receive_v1")
}

func TestCheckFeishuGroups(t *testing.T) {
	const path = "/groups.json"
	in := newTenant(t)
	data := t.TempDir()
	t.Setenv("DATA_DIR", data)
	_, found := checked(t)
	wants(t, found, "Feishu groups", selftest.Warn, "in the group: Settings, Bots, Add Bot")

	one, two := in.AddGroup("Research", in.app.ID), in.AddGroup("Office")
	write(t, data+path, fmt.Sprintf(`{"agents":{"agent_a":{"name":"BotA"}},"groups":{%q:{"members":["agent_a"]},%q:{"name":"Office","members":["agent_a"]}}}`, one.ID, two.ID))
	_, found = checked(t)
	wants(t, found, "Feishu groups", selftest.OK, "in 1 group: Research")
	wants(t, found, "Feishu groups", selftest.Warn, "in groups that the bot is not in: Office")
	write(t, data+path, fmt.Sprintf(`{"agents":{"agent_a":{"name":"BotA"}},"groups":{%q:{"members":["agent_b"]}}}`, one.ID))
	_, found = checked(t)
	wants(t, found, "Feishu groups", selftest.Warn, `add "agent_a" to their members`)

	for i := range 201 { // three pages
		in.AddGroup(fmt.Sprint("more ", i), in.app.ID)
	}
	_, found = checked(t)
	wants(t, found, "Feishu groups", selftest.OK, "the bot is in 202 groups: ")
	in.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "GET /open-apis/im/v1/chats", Code: 232025, Msg: "Bot ability is not activated."})
	_, found = checked(t)
	wants(t, found, "Feishu groups", selftest.Warn, "turn on the bot ability")
}

// A missing scope is named as Feishu names it, also where it stands only in the
// text, with the page that grants it.
func TestCheckFeishuMissingScope(t *testing.T) {
	newTenant(t, "im:message")
	_, found := checked(t)
	wants(t, found, "Feishu groups", selftest.Warn, "add the scope and publish a version: https://open.feishu.cn/app/cli_")
	wants(t, found, "Feishu groups", selftest.Warn, "/auth?q=im:chat,im:chat:readonly,im:chat:read&op_from=openapi")
}

func TestCheckFeishuClock(t *testing.T) {
	in := newTenant(t)
	in.date = time.Now().Add(2 * time.Hour).UTC().Format(http.TimeFormat)
	code, found := checked(t)
	wants(t, found, "Feishu clock", selftest.Warn, " behind that of Feishu")
	if code != 0 {
		t.Errorf("status %d, want 0", code)
	}
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
