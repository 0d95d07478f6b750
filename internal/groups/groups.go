// Package groups reads the groups file: the agents, their names and ids, the
// members of each chat, and the chat's own limits. The file is optional, and a
// person edits it by hand.
//
// # Forms
//
// The older form is a flat list of agents:
//
//	[{"name":"BotB","feishu_open_id":"ou_b","type":"bot","description":"…"}]
//
// The newer one adds ids, and groups:
//
//	{"agents":{"agent_b":{"name":"BotB","aliases":["小B"],"feishu_open_id":"ou_b",
//	   "app_id":"cli_b","open_ids":{"cli_a":"ou_b_seen_by_a"}}},
//	 "groups":{"oc_x":{"name":"研发群","members":["agent_a","agent_b"],
//	   "group_policy":"auto","max_bot_reply_depth":6}}}
//
// Keys may be written in snake_case or camelCase; unknown ones are ignored, and
// File.Unread lists those that look like mistakes. In a list, an agent's id
// is its id or agent_name if it has one, else its name. An entry whose type is
// not "bot" is a person's and not an agent.
//
// # Mistakes
//
// [Parse] reports all mistakes at once, each with its place. A [Watcher] uses a
// changed file only if it has none: if a file is broken or removed the last good
// one remains in force. Otherwise a slip of the hand could open a group to bots
// that are not in it.
package groups

import (
	"slices"
	"strings"

	"feishu-relay/mention"
)

// Agent is a bot.
type Agent struct {
	ID           string // its name on the relay
	Name         string // display name; the ID if the file has none
	Aliases      []string
	FeishuOpenID string            // as seen by its own app, or by the author of the file
	AppID        string            // cli_…
	OpenIDs      map[string]string // by the app that sees it: cli_… to ou_…
}

// Group is a chat. A nil limit means that of the environment.
type Group struct {
	Name                 string   `json:"name"`
	Members              []string `json:"members"`      // agent ids; nil: every agent, empty: none
	GroupPolicy          string   `json:"group_policy"` // auto, mention, open, or "" for the environment's
	MaxBotReplyDepth     *int     `json:"max_bot_reply_depth"`
	BotReplyLLMThreshold *int     `json:"bot_reply_llm_threshold"`
	BotReplyLLMCheck     *bool    `json:"bot_reply_llm_check"`

	// The settings that people can change in the group, and the bounds for changing
	// them; "" and nil mean those of the environment.
	AnswerMode    string `json:"answer_mode"`
	DefaultBot    string `json:"default_bot"` // agent id
	GroupBudget   *int   `json:"group_budget"`
	StopNotice    string `json:"stop_notice"`
	SteerBy       string `json:"steer_by"`
	SteerMaxDepth *int   `json:"steer_max_depth"`
	InjectContext *int   `json:"inject_context"`
	Locked        bool   `json:"locked"` // nothing can be changed in the group or over the API
}

// File is a groups file. It is immutable after [Parse], and safe for concurrent
// use. The zero File has no agents.
type File struct {
	Agents    map[string]Agent // by id
	Groups    map[string]Group // by chat id
	HasGroups bool             // the file has a groups section, which may be empty
	// Unread describes the keys of the file that are ignored and look like
	// mistakes, one a text, at most 50.
	Unread []string
}

// Member reports whether agent, by its id, is in chat, and whether the file has
// an entry for chat. A group without a list of members has every agent as a
// member.
func (f *File) Member(chat, agent string) (member, known bool) {
	g, known := f.Groups[chat]
	return known && (g.Members == nil || slices.Contains(g.Members, agent)), known
}

// DirectoryFor returns the agents that can be addressed, by their names and ids, with those that an agent
// knows of itself and of others. Each of these is merged with its entry in the
// file, under its own ID: a flat list often has only an agent's display name,
// and as two agents with that name it would be ambiguous. The entry is the one
// with its ID, else the one with one of its platform ids, else the only one
// with one of its names.
func (f *File) DirectoryFor(self mention.Agent, others ...mention.Agent) *mention.Directory {
	fromFile := f.mentionable()
	agents := make([]mention.Agent, 0, len(fromFile)+len(others)+1)
	for _, a := range slices.Concat([]mention.Agent{self}, others) {
		if i := indexOf(fromFile, a); i >= 0 {
			a.Names = slices.Concat(a.Names, []string{fromFile[i].ID}, fromFile[i].Names)
			a.IDs = slices.Concat(a.IDs, fromFile[i].IDs)
			fromFile = slices.Delete(fromFile, i, i+1)
		}
		agents = append(agents, a)
	}
	return mention.NewDirectory(append(fromFile, agents...))
}

func indexOf(agents []mention.Agent, self mention.Agent) int {
	shares := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(s string) bool { return s != "" && slices.Contains(b, s) })
	}
	if i := slices.IndexFunc(agents, func(a mention.Agent) bool { return a.ID == self.ID }); i >= 0 {
		return i
	}
	if i := slices.IndexFunc(agents, func(a mention.Agent) bool { return shares(a.IDs, self.IDs) }); i >= 0 {
		return i
	}
	found := -1
	for i, a := range agents {
		if shares(a.Names, self.Names) {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}

// mentionable lists the agents in the order of their ids.
func (f *File) mentionable() []mention.Agent {
	var out []mention.Agent
	for _, a := range f.Agents {
		m := mention.Agent{
			ID:    a.ID,
			Names: slices.Concat([]string{a.Name}, a.Aliases),
			IDs:   []string{a.FeishuOpenID, a.AppID},
		}
		for _, id := range a.OpenIDs {
			m.IDs = append(m.IDs, id)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b mention.Agent) int { return strings.Compare(a.ID, b.ID) })
	return out
}
