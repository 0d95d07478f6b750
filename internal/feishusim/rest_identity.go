package feishusim

import "slices"

var identityRoutes = []route{
	{pattern: "GET /open-apis/bot/v3/info", run: botInfo},
	{pattern: "GET /open-apis/bot/v3/info/{$}", run: botInfo},
	{pattern: "POST /open-apis/bot/v1/openclaw_bot/ping", run: with(pingBot)},
	{pattern: "GET /open-apis/bot/v3/bots/basic_batch", scopes: botInfoScopes, run: botNames},
	{pattern: "GET /open-apis/application/v6/applications/{id}", scopes: appScopes, run: readApp},
	{pattern: "GET /open-apis/application/v6/scopes", run: listScopes},
	{pattern: "GET /open-apis/contact/v3/users/{id}", scopes: contactScopes, run: readUser},
	{pattern: "GET /open-apis/event/v1/connection", run: countConnections},
	{pattern: "GET /open-apis/contact/v3/users/batch", scopes: contactScopes, run: readUsers},
}

// maxLookup is how many bots or users one call may ask for.
const (
	maxBotLookup  = 10
	maxUserLookup = 50
)

// botInfo answers with its fields at the top level (docs/feishu.md 4.2).
func botInfo(c *call) (any, error) {
	return top{"bot": map[string]any{
		"activate_status": 2, "app_name": c.app.Name, "avatar_url": "", "ip_white_list": []string{},
		"open_id": c.s.openID(c.app.ID, c.app.ID),
	}}, nil
}

// ping is the body of a call of openclaw-lark.
type ping struct {
	Need bool `json:"needBotInfo"`
}

func pingBot(c *call, in *ping) (any, error) {
	if !in.Need {
		return nil, nil
	}
	return map[string]any{"pingBotInfo": map[string]any{
		"botID": c.s.openID(c.app.ID, c.app.ID), "botName": c.app.Name}}, nil
}

// botNames returns names of bots by the ids that the caller sees.
func botNames(c *call) (any, error) {
	q := c.r.URL.Query()
	ids := slices.Concat(q["bot_ids"], q["bot_ids[]"])
	if len(ids) == 0 || len(ids) > maxBotLookup {
		return nil, errField
	}
	bots, failed := map[string]any{}, map[string]any{}
	for _, id := range ids {
		foreign := func(app string) bool { return c.s.seen(app, id) != "" }
		switch bot := c.s.apps[c.s.seen(c.app.ID, id)]; {
		case bot != nil:
			bots[id] = map[string]any{"bot_id": id, "name": bot.Name,
				"i18n_names": map[string]string{"zh_cn": bot.Name, "en_us": bot.Name}}
		case !foreign(c.app.ID) && slices.ContainsFunc(c.s.order, foreign):
			failed[id] = map[string]any{"code": 20004, "reason": "invalid bot id"}
		default:
			failed[id] = map[string]any{"code": 20002, "reason": "bot not found"}
		}
	}
	return map[string]any{"bots": bots, "failed_bots": failed}, nil
}

// countConnections answers with how many long connections the app has.
func countConnections(c *call) (any, error) {
	return map[string]any{"online_instance_cnt": len(c.app.conns)}, nil
}

func readApp(c *call) (any, error) {
	id := c.r.PathValue("id")
	if id == "me" {
		id = c.app.ID
	}
	a := c.s.apps[id]
	if a == nil {
		return nil, failure(210503, "app not exists")
	}
	if a != c.app && !c.app.may("admin:app.info:readonly") {
		return nil, scopeError(c.app.ID, []string{"admin:app.info:readonly"})
	}
	return map[string]any{"app": map[string]any{
		"app_id": a.ID, "app_name": a.Name, "avatar_url": "", "description": "", "status": 1, "scene_type": 0,
		"primary_language": "zh_cn", "create_source": "developer_console",
	}}, nil
}

func listScopes(c *call) (any, error) {
	items := []any{}
	for _, scope := range c.app.Scopes {
		items = append(items, map[string]any{"scope_name": scope, "grant_status": 1, "scope_type": "tenant"})
	}
	return map[string]any{"scopes": items}, nil
}

func readUser(c *call) (any, error) {
	u := c.user(c.r.PathValue("id"))
	if u == nil {
		return nil, errUserID
	}
	return map[string]any{"user": u}, nil
}

func readUsers(c *call) (any, error) {
	q := c.r.URL.Query()
	ids := slices.Concat(q["user_ids"], q["user_ids[]"])
	if len(ids) == 0 || len(ids) > maxUserLookup {
		return nil, errField
	}
	items := []any{}
	for _, id := range ids {
		if u := c.user(id); u != nil {
			items = append(items, u)
		}
	}
	return map[string]any{"items": items}, nil
}

// user returns the person with an id of the type that the call names, or nil.
func (c *call) user(id string) map[string]any {
	var entity string
	switch c.query("user_id_type") {
	case "union_id":
		entity, _ = c.s.entity(id)
	case "user_id":
		entity = id
	default:
		entity = c.s.seen(c.app.ID, id)
	}
	u := c.s.users[entity]
	if u == nil {
		return nil
	}
	out := map[string]any{
		"open_id": c.s.openID(c.app.ID, u.ID), "union_id": u.UnionID, "name": u.Name, "en_name": u.Name,
		"avatar": map[string]any{}, "status": map[string]any{"is_activated": true},
	}
	if c.app.may(scopeUserID) {
		out["user_id"] = u.ID
	}
	return out
}
