package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

// chatID is how a chat is called here: by its id, with its channel where that is not the usual one.
func chatID(channel string, id relay.ChatID) string {
	if channel == relay.DefaultChannel {
		return neutral(string(id))
	}
	return neutral(channel + "/" + string(id))
}

// titleOf is how a group is called in texts: by its name, and its id behind that.
func titleOf(g *group.Group) string {
	if g.Name == "" {
		return chatID(g.Channel, g.ChatID)
	}
	return cell(g.Name) + " (" + chatID(g.Channel, g.ChatID) + ")"
}

func botName(g *group.Group, agent relay.AgentName) string {
	i := slices.IndexFunc(g.Bots, func(b group.Bot) bool { return b.Agent == agent })
	if i >= 0 && g.Bots[i].Name != "" {
		return neutral(g.Bots[i].Name)
	}
	return neutral(string(agent))
}

// findGroup returns the group that text names: by its id, as the only one of that name, or as
// the only one whose id begins so.
func findGroup(groups []group.Group, text string) (*group.Group, error) {
	id := func(g *group.Group) string { return g.Channel + "/" + string(g.ChatID) }
	for _, is := range []func(g *group.Group) bool{
		func(g *group.Group) bool { return string(g.ChatID) == text && g.Channel == relay.DefaultChannel },
		func(g *group.Group) bool { return string(g.ChatID) == text || id(g) == text },
		func(g *group.Group) bool { return g.Name == text && text != "" },
		func(g *group.Group) bool {
			return strings.HasPrefix(string(g.ChatID), text) || strings.HasPrefix(id(g), text)
		},
	} {
		found := slices.DeleteFunc(slices.Clone(groups), func(g group.Group) bool { return !is(&g) })
		if len(found) == 1 {
			return &found[0], nil
		}
		if len(found) > 1 {
			return nil, fmt.Errorf("%q names several groups: %s", text, groupNames(found))
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("there is no group %q: the sidecar knows of none", text)
	}
	return nil, fmt.Errorf("there is no group %q; known: %s", text, groupNames(groups))
}

func groupNames(groups []group.Group) string {
	names := make([]string, len(groups))
	for i := range groups {
		names[i] = titleOf(&groups[i])
	}
	return words.Words{}.List(names)
}

// groupCommand steers a group over the local API of the running sidecar.
type groupCommand struct {
	asks
	Args struct {
		Chat    string   `positional-arg-name:"CHAT"`
		Command []string `positional-arg-name:"COMMAND"`
	} `positional-args:"yes"`
}

func (c *groupCommand) run(p *cli, _ []string) error {
	a, err := c.client(p, c.JSON, language{}.words())
	if err != nil {
		return err
	}
	data, err := a.call(p.ctx, http.MethodGet, "/v1/groups", nil)
	if err != nil {
		return err
	}
	var all httpapi.GroupList
	if err := decode(data, &all); err != nil {
		return err
	}
	if c.Args.Chat == "" {
		return display(a, data, func(b *strings.Builder, l httpapi.GroupList) { a.printGroups(b, l.Groups) })
	}
	g, err := findGroup(all.Groups, c.Args.Chat)
	if err != nil {
		return err
	}
	verb, body, err := groupRequest(g, c.Args.Command)
	if err != nil {
		return p.misused("%s", neutral(err.Error()))
	}
	path := "/v1/groups/" + url.PathEscape(string(g.ChatID)) + verb.path + "?channel=" + url.QueryEscape(g.Channel)
	return ask(p.ctx, a, verb.method, path, body, func(b *strings.Builder, g group.Group) {
		if done := "group" + verb.path; words.Has(done) {
			fmt.Fprintln(b, a.say(done))
		}
		a.printGroup(b, &g)
	})
}

// groupVerb is what a command begins with, and the call of the API that it is, below the group's path. What a value may
// be, the sidecar says.
type groupVerb struct {
	name        string
	bots, value bool // it takes some
	method      string
	path        string
	key         string // of the setting that it changes
	to          any    // without a value
}

var groupVerbs = []groupVerb{
	{name: "status", method: http.MethodGet},
	{name: "pause", value: true, method: http.MethodPatch, key: "paused", to: true},
	{name: "resume", method: http.MethodPatch, key: "paused", to: false},
	{name: "mute", bots: true, value: true, method: http.MethodPatch, key: "muted", to: true},
	{name: "unmute", bots: true, method: http.MethodPatch, key: "muted", to: false},
	{name: "answer", bots: true, value: true, method: http.MethodPatch, key: "answer", to: ""},
	{name: "limit", value: true, method: http.MethodPatch, key: "limit", to: ""},
	{name: "threshold", value: true, method: http.MethodPatch, key: "threshold", to: ""},
	{name: "judge", value: true, method: http.MethodPatch, key: "judge", to: ""},
	{name: "budget", value: true, method: http.MethodPatch, key: "budget", to: ""},
	{name: "continue", bots: true, method: http.MethodPost, path: "/continue"},
	{name: "stop", method: http.MethodPost, path: "/stop"},
	{name: "forget", method: http.MethodDelete, path: "/settings"},
}

// valueOf is a word as the sidecar takes it: a number, or true and false for on and off.
func valueOf(word string) any {
	if n, err := strconv.Atoi(word); err == nil {
		return n
	}
	if word == "on" || word == "off" {
		return word == "on"
	}
	return word
}

// groupRequest reads a command; none shows the group.
func groupRequest(g *group.Group, command []string) (verb groupVerb, body any, err error) {
	if len(command) == 0 {
		command = []string{"status"}
	}
	i := slices.IndexFunc(groupVerbs, func(v groupVerb) bool { return v.name == command[0] })
	if i < 0 {
		var known []string
		for _, v := range groupVerbs {
			known = append(known, v.name)
		}
		return verb, nil, fmt.Errorf("there is no command %s%s; there are %s", command[0], didYouMean(command[0], known),
			strings.Join(known, ", "))
	}
	verb = groupVerbs[i]
	bots, to := []relay.AgentName{}, verb.to
	for _, word := range command[1:] {
		i := slices.IndexFunc(g.Bots, func(b group.Bot) bool {
			name := strings.TrimPrefix(word, "@")
			return strings.EqualFold(b.Name, name) || strings.EqualFold(string(b.Agent), name)
		})
		switch {
		case i >= 0 && verb.bots:
			bots = append(bots, g.Bots[i].Agent)
		case to == verb.to && verb.value:
			to = valueOf(word)
		default:
			return verb, nil, fmt.Errorf("%s: unexpected %q", verb.name, word)
		}
	}
	muted := map[relay.AgentName]any{}
	for _, b := range bots {
		muted[b] = to
	}
	switch {
	case verb.key == "muted" && len(bots) == 0:
		var here []string
		for _, b := range g.Bots {
			here = append(here, cmp.Or(b.Name, string(b.Agent)))
		}
		return verb, nil, fmt.Errorf("%s: which bot? Here are %s", verb.name, strings.Join(here, ", "))
	case verb.key == "muted":
		body = map[string]any{"muted": muted}
	case verb.key == "answer" && len(bots) > 0:
		body = map[string]any{"answer": "default", "default_bot": bots[0]}
	case verb.key != "":
		body = map[string]any{verb.key: to}
	case verb.bots:
		body = map[string]any{"bots": bots}
	}
	return verb, body, nil
}

// isOnline reports whether a bot gets messages: its sidecar is online, and the bot is connected to it.
func isOnline(b group.Bot) bool { return b.Online && b.Away == 0 }

// printGroups writes a table of groups.
func (c *client) printGroups(b *strings.Builder, groups []group.Group) {
	if len(groups) == 0 {
		fmt.Fprintln(b, c.say("no groups"))
		return
	}
	var rows [][]string
	for i := range groups {
		g := &groups[i]
		answer, state, stop, here := neutral(string(g.Settings.Answer)), "-", "-", 0
		if g.Settings.Answer == group.ModeDefault && g.Settings.DefaultBot != "" {
			answer += " " + botName(g, g.Settings.DefaultBot)
		}
		switch {
		case g.Settings.Paused != nil:
			state = c.say("paused")
		case len(g.Settings.Muted) > 0:
			state = c.say("muted", len(g.Settings.Muted))
		}
		if s := g.LastStop; s != nil {
			stop = c.say("stop", neutral(string(s.Reason)), c.age(s.At.Time()), neutral(string(s.MessageID)))
		}
		for _, b := range g.Bots {
			if isOnline(b) {
				here++
			}
		}
		rows = append(rows, []string{cmp.Or(cell(g.Name), "-"), chatID(g.Channel, g.ChatID),
			fmt.Sprintf("%d/%d", here, len(g.Bots)), answer,
			fmt.Sprintf("%d/%d", g.Depth, g.Settings.Limit), state, stop})
	}
	writeTable(b, c.say("group columns"), rows)
}

// printGroup writes how the bots of a group behave.
func (c *client) printGroup(b *strings.Builder, g *group.Group) {
	c.printGroups(b, []group.Group{*g})
	line := func(key string, args ...any) { b.WriteString(c.say(key, args...) + "\n") }
	bots, muted := map[bool][]string{}, []string{} // bots by isOnline
	for _, one := range g.Bots {
		name := botName(g, one.Agent)
		bots[isOnline(one)] = append(bots[isOnline(one)], name)
		if g.Settings.Muted[one.Agent] != nil {
			muted = append(muted, name)
		}
	}
	line("group online", len(bots[true]), c.words.List(bots[true]))
	if offline := bots[false]; len(offline) > 0 {
		line("group offline", len(offline), c.words.List(offline))
	}
	set := &g.Settings
	line("group limits", g.Depth, set.Limit, set.Threshold, map[bool]string{true: "on", false: "off"}[set.Judge])
	if set.Budget > 0 {
		line("group budget", set.Budget)
	}
	if len(muted) > 0 {
		line("group muted", len(muted), c.words.List(muted))
	}
}
