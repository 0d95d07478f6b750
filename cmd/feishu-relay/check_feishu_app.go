package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"feishu-relay/feishu"
)

// need is what scopes are for: one of them is enough.
type need struct {
	what   string
	scopes []string // the best first
	status status   // of a bot without any
}

// needs are the scopes that a bot and its sidecar live on (in Feishu's words:
// im.message.receive_v1, and the calls of package feishu).
var needs = []need{
	{"hear people in groups", []string{"im:message.group_msg", "im:message.group_at_msg:readonly", "im:message.group_at_msg",
		"im:message.group_at_msg.include_bot:readonly", "im:message.group_msg:readonly", "im:message.group_msg.include_bot:read"}, statusFail},
	{"send messages", []string{"im:message:send_as_bot", "im:message", "im:message:send"}, statusFail},
	{"tell groups from private chats", []string{"im:chat:readonly", "im:chat", "im:chat:read"}, statusWarn},
	{"see the other bots of a group", []string{"im:chat.members:read", "im:chat:readonly", "im:chat", "im:chat.members:bot_access"}, statusWarn},
	{"read messages again", []string{"im:message:readonly", "im:message", "im:message.history:readonly"}, statusWarn},
	{"know people's names", []string{"contact:user.base:readonly", "contact:contact.base:readonly", "contact:contact:readonly_as_app"}, statusWarn},
}

// hearsAll are the scopes with which a bot hears what is not addressed to it.
var hearsAll = []string{"im:message.group_msg", "im:message.group_msg:readonly", "im:message.group_msg.include_bot:read"}

// checkScopes compares the scopes that the tenant has granted with what is needed.
func checkScopes(ctx context.Context, f *feishuCaller, c *config) []finding {
	const name, granted = "Feishu scopes", 1
	var answer struct {
		Data struct {
			Scopes []struct {
				Name   string `json:"scope_name"`
				Status int    `json:"grant_status"`
				Kind   string `json:"scope_type"`
			} `json:"scopes"`
		} `json:"data"`
	}
	if err := f.call(ctx, http.MethodGet, "/open-apis/application/v6/scopes", nil, &answer); err != nil {
		return []finding{unanswered(c, name, "which scopes the tenant has granted", statusWarn, err)}
	}
	var has, waits []string
	for _, s := range answer.Data.Scopes {
		switch {
		case s.Kind == "user": // of people's tokens
		case s.Status == granted:
			has = append(has, s.Name)
		default:
			waits = append(waits, s.Name)
		}
	}
	oneIn := func(of []string, in []string) bool {
		return slices.ContainsFunc(of, func(s string) bool { return slices.Contains(in, s) })
	}
	var out []finding
	for _, n := range needs {
		if oneIn(n.scopes, has) {
			continue
		}
		mend := "add " + n.scopes[0] + " and publish a version: " + scopeURL(c, n.scopes[0])
		if oneIn(n.scopes, waits) {
			mend = "it is applied for and not granted: publish a version, and have the administrator approve it: " + console(c, "/version")
		}
		out = append(out, finding{name, n.status, "without a scope to " + n.what + " (" + strings.Join(n.scopes[:min(len(n.scopes), 3)], ", ") + ")", mend})
	}
	if len(out) > 0 {
		return out
	}
	hears := "everything people say"
	if !oneIn(hearsAll, has) {
		hears = "only what is addressed to it (im:message.group_msg gives the rest)"
	}
	return []finding{well(name, "%s; in groups the bot hears %s", counted(len(has), "is granted", "are granted"), hears)}
}

const eventReceive = "im.message.receive_v1"

// checkEvents looks at the newest published version: which events are
// subscribed, and whether the bot ability is part of it.
func checkEvents(ctx context.Context, f *feishuCaller, c *config) []finding {
	const name, published = "Feishu events", 1
	type version struct {
		Name    string `json:"version"`
		Status  int    `json:"status"`
		Ability *struct {
			Bot *struct{} `json:"bot"`
		} `json:"ability"`
		Events []struct {
			Type string `json:"event_type"`
		} `json:"event_infos"`
	}
	var answer struct {
		Data struct {
			Items []version `json:"items"`
		} `json:"data"`
	}
	look := "in the console, Events & Callbacks must subscribe " + eventReceive + " (by long connection or by webhook, as the bot works), and a version must be published after that: " + console(c, "/event")
	path := "/open-apis/application/v6/applications/" + url.PathEscape(c.AppID) + "/app_versions?lang=zh_cn&page_size=20&order=0" // the newest first
	err := f.call(ctx, http.MethodGet, path, nil, &answer)
	if r, ok := errors.AsType[*refused](err); ok {
		if r.Code == 99991672 {
			return []finding{well(name, "cannot be seen without the scope application:application:self_manage; %s", look)}
		}
		return []finding{well(name, "cannot be seen from here (%v); %s", r, look)}
	}
	if err != nil {
		return []finding{unanswered(c, name, "which events are subscribed", statusWarn, err)}
	}
	versions := answer.Data.Items
	at := slices.IndexFunc(versions, func(v version) bool { return v.Status == published })
	if at < 0 {
		return []finding{failure(name, "publish one and have it approved: "+console(c, "/version"), "no version of the app is published")}
	}
	live := versions[at]
	if live.Ability != nil && live.Ability.Bot == nil {
		return []finding{failure(name, refusalMend(c, &refused{Code: 11205}), "version %s has no bot", live.Name)}
	}
	subscribed := func(event string) bool {
		return slices.ContainsFunc(live.Events, func(e struct {
			Type string `json:"event_type"`
		}) bool {
			return e.Type == event
		})
	}
	var out []finding
	if !subscribed(eventReceive) {
		out = append(out, failure(name, "subscribe it (Events & Callbacks) and publish a version: "+console(c, "/event"), "version %s does not subscribe %s: the bot hears nothing", live.Name, eventReceive))
	}
	for _, e := range []struct{ event, effect string }{
		{feishu.EventBotAdded, "that the bot was added to a group is known late"},
		{feishu.EventBotDeleted, "that the bot was removed from a group is known late"},
	} {
		if !subscribed(e.event) {
			out = append(out, warning(name, "subscribe it and publish a version: "+console(c, "/event"), "version %s does not subscribe %s: %s", live.Name, e.event, e.effect))
		}
	}
	if at > 0 {
		out = append(out, warning(name, "publish it, or wait for the administrator's approval: "+console(c, "/version"),
			"version %s is not published: what it adds does not work yet", versions[0].Name))
	}
	if len(out) == 0 {
		out = append(out, well(name, "version %s subscribes %s", live.Name, eventReceive))
	}
	return out
}
