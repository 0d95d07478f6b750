package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"feishu-relay/internal/groups"
)

const (
	groupPage     = 100 // Feishu's most
	maxGroupPages = 5   // with more groups the rest is left out, and said
)

// chat is a group that the bot is in.
type chat struct {
	ID   string `json:"chat_id"`
	Name string `json:"name"`
}

// checkFeishuGroups lists the groups that the bot is in, and compares them with
// the groups file.
func checkFeishuGroups(ctx context.Context, f *feishuCaller, c *config) []finding {
	const name = "Feishu groups"
	in, all, err := botGroups(ctx, f)
	if err != nil {
		return []finding{unanswered(c, name, "which groups the bot is in", statusWarn, err)}
	}
	if len(in) == 0 {
		return []finding{warning(name, "in the group: Settings, Bots, Add Bot, and choose the bot", "the bot is in no group")}
	}
	var names []string
	for _, g := range in {
		names = append(names, or(g.Name, g.ID))
	}
	more := ""
	if !all {
		more = " or more"
	}
	out := []finding{well(name, "the bot is in %s%s: %s", counted(len(in), "group", "groups"), more, some(names))}
	data, err := readAtMost(c.GroupsFile, groups.MaxSize)
	if err != nil {
		return out // told with the groups file
	}
	file, err := groups.Parse(data)
	if err != nil {
		return out
	}
	return append(out, disagreements(file, string(c.Agent), in, all, c.GroupsFile)...)
}

// botGroups are the groups that the bot is in, and whether they are all.
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
		if err := f.call(ctx, http.MethodGet, "/open-apis/im/v1/chats?"+query.Encode(), nil, &answer); err != nil {
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
	const name = "Feishu groups"
	isIn := func(id string) bool { return slices.ContainsFunc(in, func(g chat) bool { return g.ID == id }) }
	var absent, unlisted []string
	for _, id := range slices.Sorted(maps.Keys(file.Groups)) {
		label := or(file.Groups[id].Name, id)
		switch member, _ := file.Member(id, agent); {
		case member && !isIn(id) && all:
			absent = append(absent, label)
		case !member && isIn(id):
			unlisted = append(unlisted, label)
		}
	}
	if len(absent) > 0 {
		out = append(out, warning(name, "add the bot to them (group settings, Bots), or take "+agent+" out of their members in "+path,
			"%s lists %s in groups that the bot is not in: %s", path, agent, some(absent)))
	}
	if len(unlisted) > 0 {
		out = append(out, warning(name, fmt.Sprintf("add %q to their members in %s", agent, path),
			"the bot is in groups whose members in %s are without %s: %s", path, agent, some(unlisted)))
	}
	return out
}
