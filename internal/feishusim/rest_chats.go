package feishusim

import (
	"cmp"
	"slices"
	"strconv"
)

const chatsPath = "/open-apis/im/v1/chats"

var chatRoutes = []route{
	{pattern: "GET " + chatsPath, scopes: chatScopes, run: listChats},
	{pattern: "GET " + chatsPath + "/{id}", scopes: chatScopes, run: readChat},
	{pattern: "GET " + chatsPath + "/{id}/members", scopes: memberScopes, run: listMembers},
	{pattern: "GET " + chatsPath + "/{id}/members/bots", scopes: memberScopes, run: listBots},
	{pattern: "GET " + chatsPath + "/{id}/members/is_in_chat", scopes: chatScopes, run: isInChat},
}

// chat returns the chat in the path, of which the app must be a member.
func (c *call) chat() (*chat, error) {
	in := c.s.chats[c.r.PathValue("id")]
	switch {
	case in == nil:
		return nil, errNoChat
	case len(in.Members) == 0:
		return nil, errGone
	case !in.has(c.app.ID):
		return nil, errOutside
	}
	return in, nil
}

// living returns the chat in the path unless it is dissolved.
func (c *call) living() (*chat, error) {
	in, err := c.chat()
	if err == nil && in.status != "" {
		return nil, errGone
	}
	return in, err
}

func readChat(c *call) (any, error) {
	in, err := c.chat()
	if err != nil {
		return nil, err
	}
	people, bots := c.s.split(in)
	kind := "private"
	out := map[string]any{
		"name": in.Name, "description": "", "avatar": "", "chat_mode": in.mode, "chat_type": kind,
		"chat_tag": "inner", "external": false, "tenant_key": tenant, "chat_status": cmp.Or(in.status, "normal"),
		"user_count": strconv.Itoa(len(people)), "bot_count": strconv.Itoa(len(bots)),
	}
	if c.s.users[in.Owner] != nil { // Feishu does not return an owner that is a bot
		out["owner_id"], out["owner_id_type"] = c.s.userID(c.app, in.Owner, c.query("user_id_type"))
	}
	managers, botManagers := []string{}, []string{}
	for _, m := range in.Managers {
		if c.s.apps[m] != nil {
			botManagers = append(botManagers, m)
			continue
		}
		id, _ := c.s.userID(c.app, m, c.query("user_id_type"))
		managers = append(managers, id)
	}
	if in.mode != modeP2P {
		out["user_manager_id_list"], out["bot_manager_id_list"] = managers, botManagers
	}
	return out, nil
}

// split returns a chat's people and its bots.
func (s *Server) split(c *chat) (people, bots []string) {
	for _, m := range c.Members {
		if s.apps[m] != nil {
			bots = append(bots, m)
		} else {
			people = append(people, m)
		}
	}
	return people, bots
}

func listChats(c *call) (any, error) {
	var all []*chat
	for _, in := range c.s.chats {
		if in.mode != modeP2P && in.has(c.app.ID) {
			all = append(all, in)
		}
	}
	slices.SortFunc(all, func(a, b *chat) int { return cmp.Compare(a.ID, b.ID) })
	return paged(c, all, 20, 100, func(in *chat) any {
		return map[string]any{
			"chat_id": in.ID, "name": in.Name, "avatar": "", "description": "", "external": false,
			"tenant_key": tenant, "chat_status": cmp.Or(in.status, "normal"),
		}
	})
}

// listMembers never returns bots (docs/feishu.md 4.2).
func listMembers(c *call) (any, error) {
	in, err := c.living()
	if err != nil {
		return nil, err
	}
	people, _ := c.s.split(in)
	page, err := paged(c, people, 20, 100, func(m string) any {
		id, idType := c.s.userID(c.app, m, c.query("member_id_type"))
		return map[string]any{
			"member_id_type": idType, "member_id": id, "name": c.s.name(m), "tenant_key": tenant,
		}
	})
	if err == nil {
		page["member_total"] = len(people)
	}
	return page, err
}

func listBots(c *call) (any, error) {
	in, err := c.living()
	if err != nil {
		return nil, err
	}
	_, bots := c.s.split(in)
	return paged(c, bots, 100, 100, func(b string) any {
		return map[string]any{"bot_id": c.s.openID(c.app.ID, b), "bot_name": c.s.name(b)}
	})
}

func isInChat(c *call) (any, error) {
	in := c.s.chats[c.r.PathValue("id")]
	if in == nil {
		return nil, errNoChat
	}
	return map[string]any{"is_in_chat": in.has(c.app.ID)}, nil
}
