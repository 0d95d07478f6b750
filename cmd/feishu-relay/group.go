package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

const groupHelp = `Shows and changes how the bots of a group behave, as /relay does in the group.
Without CHAT it lists the groups; without COMMAND it shows one. CHAT is a chat id (oc_x),
channel/chat_id, the group's name, or the beginning of an id, as far as only one group has it.
The commands, after which the group is shown:

  pause [30m]                   resume
  mute BOT… [2h]                unmute BOT…
  answer all|named|default|one|BOT
  limit 5                       threshold 1
  judge on|off                  budget 100
  continue [BOT…]               stop
  status                        forget

It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN).

  feishu-relay group
  feishu-relay group oc_a1b2 mute BotB 2h`

// group is a group as GET /v1/groups has it.
type group struct {
	Channel  string       `json:"channel"`
	ChatID   relay.ChatID `json:"chat_id"`
	Name     string       `json:"name,omitempty"`
	Depth    int          `json:"depth"`
	Bots     []bot        `json:"bots"`
	Settings struct {
		Answer     string               `json:"answer"`
		DefaultBot relay.AgentName      `json:"default_bot"`
		Limit      int                  `json:"limit"`
		Threshold  int                  `json:"threshold"`
		Judge      bool                 `json:"judge"`
		Budget     int                  `json:"budget"`
		Paused     *pauseEnd            `json:"paused"`
		Muted      map[string]*pauseEnd `json:"muted"`
	} `json:"settings"`
	LastStop *struct {
		MessageID relay.MessageID   `json:"message_id"`
		Sender    relay.AgentName   `json:"sender"`
		Bots      []relay.AgentName `json:"bots"`
		Reason    relay.Reason      `json:"reason"`
		At        relay.Millis      `json:"at"`
	} `json:"last_stop,omitempty"`
}

type bot struct {
	Agent  relay.AgentName `json:"agent"`
	Name   string          `json:"name"`
	Online bool            `json:"online"`               // its sidecar is
	Away   relay.Millis    `json:"away_since,omitempty"` // since when it is not connected though its sidecar is online
}

// pauseEnd is the end of a pause; nil: until somebody ends it.
type pauseEnd struct {
	Until *relay.Millis `json:"until"`
}

func (u *pauseEnd) holds(at time.Time) bool {
	return u != nil && (u.Until == nil || at.Before(u.Until.Time()))
}

// id is how a group is called here: by its id, with its channel where that is not the usual one.
func (g *group) id() string {
	if g.Channel == relay.DefaultChannel {
		return neutral(string(g.ChatID))
	}
	return neutral(g.Channel + "/" + string(g.ChatID))
}

// title is how a group is called in texts: by its name, and its id behind that.
func (g *group) title() string {
	if g.Name == "" {
		return g.id()
	}
	return cell(g.Name) + " (" + g.id() + ")"
}

// path is a path of the API with a query, and the channel where that is not the usual one.
func (g *group) path(path string, query url.Values) string {
	if g.Channel != relay.DefaultChannel {
		query.Set("channel", g.Channel)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

func (g *group) botName(agent relay.AgentName) string {
	for _, b := range g.Bots {
		if b.Agent == agent {
			return neutral(cmp.Or(b.Name, string(agent)))
		}
	}
	return neutral(string(agent))
}

// findGroup returns the group that text names: by its id, as the only one of that name, or as
// the only one whose id begins so.
func findGroup(groups []group, text string) (*group, error) {
	ids := func(g *group) []string { return []string{string(g.ChatID), g.Channel + "/" + string(g.ChatID)} }
	begins := func(id string) bool { return strings.HasPrefix(id, text) }
	for _, is := range []func(g *group) bool{
		func(g *group) bool { return slices.Contains(ids(g), text) },
		func(g *group) bool { return g.Name == text && text != "" },
		func(g *group) bool { return slices.ContainsFunc(ids(g), begins) },
	} {
		found := slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return !is(&g) })
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

func groupNames(groups []group) string {
	names := make([]string, len(groups))
	for i := range groups {
		names[i] = groups[i].title()
	}
	return words.Words{}.List(names)
}

// groupCommand steers a group over the local API of the running sidecar.
type groupCommand struct {
	reach
	JSON bool `long:"json"`
	Args struct {
		Chat    string   `positional-arg-name:"CHAT"`
		Command []string `positional-arg-name:"COMMAND"`
	} `positional-args:"yes"`
}

type groupList struct {
	Groups []group `json:"groups"`
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
	var all groupList
	if err := decode(data, &all); err != nil {
		return err
	}
	if c.Args.Chat == "" {
		return display(a, data, func(b *strings.Builder, l groupList) { a.printGroups(b, l.Groups) })
	}
	g, err := findGroup(all.Groups, c.Args.Chat)
	if err != nil {
		return err
	}
	method, path, body, err := g.request(c.Args.Command)
	if err != nil {
		return p.misused("%s", neutral(err.Error()))
	}
	done := "group" + path
	path = g.path("/v1/groups/"+url.PathEscape(string(g.ChatID))+path, url.Values{})
	return ask(p.ctx, a, method, path, body, func(b *strings.Builder, g group) {
		if words.Has(done) {
			fmt.Fprintln(b, a.say(done))
		}
		a.printGroup(b, &g)
	})
}

// groupCommands are the words of which a command begins with one.
var groupCommands = []string{"status", "pause", "resume", "mute", "unmute", "answer", "limit", "threshold", "judge", "budget",
	"continue", "stop", "forget"}

// request is the call of the API that a command is, below the group's path. What a value may be, the sidecar says.
func (g *group) request(command []string) (method, path string, body any, err error) {
	if len(command) == 0 {
		return http.MethodGet, "", nil, nil
	}
	verb, bots, value := command[0], []relay.AgentName{}, ""
	for _, word := range command[1:] {
		i := slices.IndexFunc(g.Bots, func(b bot) bool {
			return strings.EqualFold(b.Name, word) || strings.EqualFold(string(b.Agent), word)
		})
		switch {
		case i >= 0:
			bots = append(bots, g.Bots[i].Agent)
		case value == "":
			value = word
		default:
			return "", "", nil, fmt.Errorf("%s: unexpected %q", verb, word)
		}
	}
	end := any(true)
	if value != "" {
		end = value
	}
	number := any(value)
	if n, err := strconv.Atoi(value); err == nil {
		number = n
	}
	muted := map[relay.AgentName]any{}
	for _, b := range bots {
		if muted[b] = any(false); verb == "mute" {
			muted[b] = end
		}
	}
	patch := func(set map[string]any) (string, string, any, error) { return http.MethodPatch, "", set, nil }
	switch {
	case (verb == "mute" || verb == "unmute") && len(bots) == 0:
		return "", "", nil, fmt.Errorf("%s: which bot? Here are %s", verb, g.botNames())
	case verb == "mute" || verb == "unmute":
		return patch(map[string]any{"muted": muted})
	case verb == "answer" && len(bots) == 1:
		return patch(map[string]any{"answer": "default", "default_bot": bots[0]})
	case verb == "continue":
		return http.MethodPost, "/continue", map[string]any{"bots": bots}, nil
	case len(bots) > 0:
		return "", "", nil, fmt.Errorf("%s: unexpected %q", verb, bots[0])
	case verb == "answer":
		return patch(map[string]any{"answer": value})
	case verb == "pause":
		return patch(map[string]any{"paused": end})
	case verb == "limit" || verb == "threshold" || verb == "budget":
		return patch(map[string]any{verb: number})
	case verb == "judge" && (value == "on" || value == "off"):
		return patch(map[string]any{verb: value == "on"})
	case value != "":
		return "", "", nil, fmt.Errorf("%s: unexpected %q", verb, value)
	case verb == "resume":
		return patch(map[string]any{"paused": false})
	case verb == "status":
		return http.MethodGet, "", nil, nil
	case verb == "stop":
		return http.MethodPost, "/stop", nil, nil
	case verb == "forget":
		return http.MethodDelete, "/settings", nil, nil
	}
	return "", "", nil, fmt.Errorf("there is no command %s%s; there are %s", verb, didYouMean(verb, groupCommands),
		strings.Join(groupCommands, ", "))
}

func (g *group) botNames() string {
	var names []string
	for _, b := range g.Bots {
		names = append(names, cmp.Or(b.Name, string(b.Agent)))
	}
	return strings.Join(names, ", ")
}

// printGroups writes a table of groups.
func (c *client) printGroups(b *strings.Builder, groups []group) {
	if len(groups) == 0 {
		fmt.Fprintln(b, c.say("no groups"))
		return
	}
	var rows [][]string
	for i := range groups {
		g := &groups[i]
		state, stop, here := "-", "-", 0
		switch {
		case g.Settings.Paused.holds(c.now):
			state = c.say("paused")
		case len(g.Settings.Muted) > 0:
			state = c.say("muted", len(g.Settings.Muted))
		}
		if s := g.LastStop; s != nil {
			stop = c.say("stop", neutral(string(s.Reason)), c.words.Age(c.now.Sub(s.At.Time())), neutral(string(s.MessageID)))
		}
		for _, b := range g.Bots {
			if b.Online && b.Away == 0 {
				here++
			}
		}
		rows = append(rows, []string{cmp.Or(cell(g.Name), "-"), g.id(), fmt.Sprintf("%d/%d", here, len(g.Bots)),
			neutral(g.Settings.Answer), fmt.Sprintf("%d/%d", g.Depth, g.Settings.Limit), state, stop})
	}
	writeTable(b, c.say("group columns"), rows)
}

// printGroup writes how the bots of a group behave.
func (c *client) printGroup(b *strings.Builder, g *group) {
	line := func(key string, args ...any) { b.WriteString(c.say(key, args...) + "\n") }
	online, offline, muted := []string{}, []string{}, []string{}
	for _, one := range g.Bots {
		list := &offline
		if one.Online {
			list = &online
		}
		*list = append(*list, g.botName(one.Agent))
		if end := g.Settings.Muted[string(one.Agent)]; end.holds(c.now) {
			muted = append(muted, g.botName(one.Agent)+c.end(end))
		}
	}
	b.WriteString(c.paint.text(bold, g.title()) + "\n")
	line("group online", len(online), c.words.List(online))
	if len(offline) > 0 {
		line("group offline", len(offline), c.words.List(offline))
	}
	if s := &g.Settings; s.Answer == "default" && s.DefaultBot != "" {
		line("group answer/default bot", g.botName(s.DefaultBot))
	} else if key := "group answer/" + s.Answer; words.Has(key) {
		line(key)
	}
	line("group limits", g.Depth, g.Settings.Limit, g.Settings.Threshold, map[bool]string{true: "on", false: "off"}[g.Settings.Judge])
	if n := g.Settings.Budget; n > 0 {
		line("group budget", n)
	}
	if end := g.Settings.Paused; end.holds(c.now) {
		line("group paused", c.end(end))
	}
	if len(muted) > 0 {
		line("group muted", len(muted), c.words.List(muted))
	}
	if s := g.LastStop; s != nil {
		var at []string
		for _, agent := range s.Bots {
			at = append(at, g.botName(agent))
		}
		line("group stop", c.words.Age(c.now.Sub(s.At.Time())), g.botName(s.Sender), c.words.List(at), neutral(string(s.Reason)))
	}
}

// end says until when a pause holds.
func (c *client) end(u *pauseEnd) string {
	if u.Until == nil {
		return ""
	}
	return c.say("until", moment(u.Until.Time()))
}

// groups are those of the sidecar.
func (c *client) groups(ctx context.Context) ([]group, error) {
	var all groupList
	err := c.get(ctx, "/v1/groups", &all)
	return all.Groups, err
}
