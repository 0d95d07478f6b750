package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"feishu-relay/internal/words"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

const groupHelp = `Shows and changes how the bots of a group behave, as /relay does in the group.
Without CHAT it lists the groups; without COMMAND it shows the group's status.
CHAT is a chat id (oc_x), channel/chat_id, the group's name, or the beginning of an
id, as far as only one group has it. The commands, in English or Chinese:

  status                        help
  pause [30m]                   resume
  mute BOT… [2h]                unmute BOT…
  answer all|named|default|one|BOT
  limit 5                       threshold 1
  judge on|off                  budget 100
  continue [BOT…]               stop
  why [MESSAGE_ID]              forget

It asks the running sidecar of this environment (LISTEN_ADDR, API_TOKEN).

  feishu-relay group
  feishu-relay group oc_a1b2 mute BotB 2h`

// groupCommand steers a group over the local API of the running sidecar.
type groupCommand struct {
	reach
	JSON bool `long:"json"`
	Args struct {
		Chat    string   `positional-arg-name:"CHAT"`
		Command []string `positional-arg-name:"COMMAND"`
	} `positional-args:"yes"`
}

func (g *groupCommand) run(p *cli, _ []string) error {
	ctx, c := p.ctx, groupCall{out: p.stdout, now: time.Now(), json: g.JSON}
	var err error
	if c.api, err = newLocalAPI(g.Addr); err != nil {
		return err
	}
	groups, data, err := c.groups(ctx)
	if err != nil {
		return err
	}
	if g.Args.Chat == "" {
		return c.list(groups, data)
	}
	if c.group, err = findGroup(groups, g.Args.Chat); err != nil {
		return err
	}
	asked, about, mistake := c.parse(strings.Fields(strings.Join(g.Args.Command, " ")))
	if mistake != "" {
		return p.misused("%s", neutral(mistake))
	}
	return c.do(ctx, asked, about)
}

// groupCall is one use of the command.
type groupCall struct {
	out   io.Writer
	api   *localAPI
	json  bool
	now   time.Time
	group steer.Group
}

func (c *groupCall) groups(ctx context.Context) ([]steer.Group, []byte, error) {
	data, err := c.api.call(ctx, http.MethodGet, "/v1/groups", nil)
	if err != nil {
		return nil, nil, err
	}
	var answer struct{ Groups []steer.Group }
	err = c.read(data, &answer)
	return answer.Groups, data, err
}

func (c *groupCall) read(data []byte, to any) error {
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("the sidecar's answer has an unknown form (is it one of this version? --json shows it): %w", err)
	}
	return nil
}

// raw prints an answer as it is.
func (c *groupCall) raw(data []byte) error {
	_, err := c.out.Write(append(bytes.TrimSuffix(neutralJSON(data), []byte{'\n'}), '\n'))
	return err
}

func (c *groupCall) list(groups []steer.Group, data []byte) error {
	if c.json {
		return c.raw(data)
	}
	if len(groups) == 0 {
		_, err := fmt.Fprintln(c.out, "There are no groups yet: "+
			"the sidecar knows one when its bot was heard or heard something there.")
		return err
	}
	rows := make([][]string, len(groups))
	for i, g := range groups {
		state := "-"
		switch {
		case g.Settings.Paused.Holds(c.now):
			state = "paused"
		case len(g.Settings.Muted) > 0:
			state = fmt.Sprintf("%d muted", len(g.Settings.Muted))
		}
		rows[i] = []string{cmp.Or(cell(g.Name), "-"), groupName(g), canHear(g),
			neutral(string(g.Settings.Answer)), fmt.Sprintf("%d/%d", g.Depth, g.Settings.Limit), state}
	}
	return writeTable(c.out, "NAME|CHAT|ONLINE|ANSWER|DEPTH|STATE", rows)
}

// canHear is how many of a group's bots can hear: those that are connected to a sidecar that is online.
func canHear(g steer.Group) string {
	n := 0
	for _, b := range g.Bots {
		if b.Online && b.Away == 0 {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(g.Bots))
}

// groupName is how a group is called here: by its id, with its channel where that is not the
// usual one.
func groupName(g steer.Group) string {
	if g.Channel == relay.DefaultChannel {
		return neutral(string(g.ChatID))
	}
	return neutral(g.Channel + "/" + string(g.ChatID))
}

// groupTitle is how a group is called in texts: by its name, and its id behind that.
func groupTitle(g steer.Group) string {
	if g.Name == "" {
		return groupName(g)
	}
	return cell(g.Name) + " (" + groupName(g) + ")"
}

// findGroup returns the group that text names: by its id, as the only one of that name, or as
// the only one whose id begins so.
func findGroup(groups []steer.Group, text string) (steer.Group, error) {
	ids := func(g steer.Group) []string { return []string{string(g.ChatID), g.Channel + "/" + string(g.ChatID)} }
	begins := func(id string) bool { return strings.HasPrefix(id, text) }
	for _, is := range []func(g steer.Group) bool{
		func(g steer.Group) bool { return slices.Contains(ids(g), text) },
		func(g steer.Group) bool { return g.Name == text && text != "" },
		func(g steer.Group) bool { return slices.ContainsFunc(ids(g), begins) },
	} {
		var found []steer.Group
		for _, g := range groups {
			if is(g) {
				found = append(found, g)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return steer.Group{}, fmt.Errorf("%q names several groups: %s", text, groupNames(found))
		}
	}
	if len(groups) == 0 {
		return steer.Group{}, fmt.Errorf("there is no group %q: the sidecar knows of none", text)
	}
	return steer.Group{}, fmt.Errorf("there is no group %q; known: %s", text, groupNames(groups))
}

func groupNames(groups []steer.Group) string {
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = groupTitle(g)
	}
	return words.Words{}.List(names)
}

// word is what stands for the command word in texts.
func (c *groupCall) word() string { return "feishu-relay group " + string(c.group.ChatID) }

// parse reads a command as the sidecars do in the group; about is the message that `why` asks for.
// A mistake is a sentence.
func (c *groupCall) parse(said []string) (asked steer.Asked, about relay.MessageID, mistake string) {
	read := func(said []string) steer.Asked {
		text := steer.Said{Text: c.word() + " " + strings.Join(said, " ")}
		asked, _ := steer.ParseCommand(text, []string{c.word()}, c.group.Bots)
		return asked
	}
	if asked = read(said); asked.Verb == steer.VerbWhy && len(said) == 2 {
		asked, about = read(said[:1]), relay.MessageID(said[1])
	}
	asked.Chinese = inChinese("") || len(said) > 0 && steer.HanIn(said[0])
	if asked.Mistake != nil {
		mistake = asked.Mistake.Text(asked.Chinese)
	}
	return asked, about, mistake
}

// do carries a command out and prints its answer.
func (c *groupCall) do(ctx context.Context, asked steer.Asked, about relay.MessageID) error {
	switch asked.Verb {
	case steer.VerbHelp:
		return c.print(c.help(asked.Chinese))
	case steer.VerbWhy:
		return c.why(ctx, about, asked.Chinese)
	}
	method, path, body := request(asked)
	data, err := c.api.call(ctx, method, c.path("/v1/groups/"+url.PathEscape(string(c.group.ChatID))+path, nil), body)
	if err != nil {
		return err
	}
	if c.json {
		return c.raw(data)
	}
	var g steer.Group
	if err := c.read(data, &g); err != nil {
		return err
	}
	if asked.Verb == steer.VerbBudget && asked.N == 0 {
		g.Operator = g.Settings.Budget // what is left is the operator's
	}
	return c.print(asked.AnswerText(g, c.now))
}

// help is that of the group, but `why` is given an id: there is nothing to reply to.
func (c *groupCall) help(chinese bool) string {
	args, means := " [MESSAGE_ID]: ", "what happened to that message; without it, to the last one that was stopped"
	if chinese {
		args, means = " [MESSAGE_ID]：", "这条消息的处理结果；不写则查看最近被停止的那条"
	}
	lines := strings.Split(steer.HelpText([]string{c.word()}, chinese), "\n")
	i := slices.Index(steer.Verbs, steer.VerbWhy)
	usage, _, _ := strings.Cut(lines[i], args[len(" [MESSAGE_ID]"):])
	lines[i] = usage + args + means
	return strings.Join(lines, "\n")
}

// path adds a query, with the channel where that is not the usual one.
func (c *groupCall) path(path string, query url.Values) string {
	if query == nil {
		query = url.Values{}
	}
	if c.group.Channel != relay.DefaultChannel {
		query.Set("channel", c.group.Channel)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

func (c *groupCall) print(text string) error {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = neutral(line)
	}
	_, err := fmt.Fprintln(c.out, strings.Join(lines, "\n"))
	return err
}

// request is the call of the API that a command is, below the group's path.
func request(asked steer.Asked) (method, path string, body any) {
	pause := any(true)
	if asked.For > 0 {
		pause = fmt.Sprintf("%dm", int(asked.For.Minutes()))
	}
	set := map[string]any{}
	switch asked.Verb {
	case steer.VerbStatus:
		return http.MethodGet, "", nil
	case steer.VerbStop:
		return http.MethodPost, "/stop", nil
	case steer.VerbContinue:
		return http.MethodPost, "/continue", map[string]any{"bots": asked.Bots}
	case steer.VerbForget:
		return http.MethodDelete, "/settings", nil
	case steer.VerbPause:
		set["paused"] = pause
	case steer.VerbResume:
		set["paused"] = false
	case steer.VerbMute, steer.VerbUnmute:
		muted := map[relay.AgentName]any{}
		for _, bot := range asked.Bots {
			if muted[bot] = any(false); asked.Verb == steer.VerbMute {
				muted[bot] = pause
			}
		}
		set["muted"] = muted
	case steer.VerbAnswer:
		set["answer"] = asked.Mode
		if len(asked.Bots) > 0 {
			set["default_bot"] = asked.Bots[0]
		}
	case steer.VerbLimit, steer.VerbThreshold, steer.VerbBudget:
		set[string(asked.Verb)] = asked.N
	case steer.VerbJudge:
		set["judge"] = asked.On
	}
	return http.MethodPatch, "", set
}

// why tells what became of a message, else of the last one that stopped.
func (c *groupCall) why(ctx context.Context, about relay.MessageID, chinese bool) error {
	w := whyCall{groupCall: *c, inline: inline{chinese}, paint: newPaint(c.out), limit: answerLimit}
	w.settings(ctx)
	if about == "" {
		all, _, err := w.outcomes(ctx, "")
		if err != nil {
			return err
		}
		for _, o := range all {
			if o.Stopped != "" {
				about = o.RelayMsgID
			}
		}
	}
	return w.explainIn(ctx, []steer.Group{c.group}, about, "")
}

func (c *groupCall) botName(agent relay.AgentName) string {
	for _, b := range c.group.Bots {
		if b.Agent == agent {
			return cmp.Or(b.Name, string(agent))
		}
	}
	return string(agent)
}
