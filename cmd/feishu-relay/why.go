package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/selftest"
	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

const (
	whyOutcomes = 5000 // of a group are asked for
	whyEntries  = 1000 // of its transcript
	whyText     = 120  // columns of the message are shown
)

type whyCommand struct {
	language
	reach
	Chat string `long:"chat" value-name:"CHAT"`
	JSON bool   `long:"json"`
	Args struct {
		ID relay.MessageID `positional-arg-name:"MESSAGE_ID"`
	} `positional-args:"yes"`
}

func (c *whyCommand) run(p *cli, _ []string) error {
	a, err := c.client(p, c.JSON, c.words())
	if err != nil {
		return err
	}
	groups, err := a.chats(p.ctx)
	if err != nil {
		return err
	}
	title := ""
	switch {
	case c.Chat != "":
		g, err := findGroup(groups, c.Chat)
		if err != nil {
			return err
		}
		groups = []group.Group{*g}
	case c.Args.ID == "" && len(groups) > 1:
		title = a.say("newest of all", len(groups)) + "\n"
		groups = groups[:1]
	}
	for i := range groups {
		switch x, err := a.explain(p.ctx, &groups[i], c.Args.ID); {
		case err != nil:
			return err
		case x != nil && c.JSON:
			return writeLine(a.out, x)
		case x != nil:
			fmt.Fprint(a.out, title)
			a.printWhy(&groups[i], x)
			return nil
		}
	}
	return notFound(groups, c.Args.ID)
}

func notFound(groups []group.Group, id relay.MessageID) error {
	switch {
	case strings.HasPrefix(string(id), "msg_"):
		return fmt.Errorf("%.100q is in no group; is it mail? `feishu-relay mailbox tasks` shows how tasks stand, "+
			"`feishu-relay mailbox inbox` what waits for the bot", id)
	case len(groups) == 0:
		return errors.New("the sidecar knows of no group yet: was anything said to this bot, or by it?")
	case id == "":
		return fmt.Errorf("nobody has said anything in %s yet", titleOf(&groups[0]))
	}
	return fmt.Errorf("no message %.100q is among the newest of %s; "+
		"`feishu-relay transcript show CHAT` shows the recorded ones", id, groupNames(groups))
}

// explained is a message and what became of it at each bot of its group.
type explained struct {
	Channel   string              `json:"channel"`
	ChatID    relay.ChatID        `json:"chat_id"`
	Name      string              `json:"group,omitempty"`
	MessageID relay.MessageID     `json:"message_id"`
	Message   *httpapi.ShownEntry `json:"message"`
	Depth     int                 `json:"depth,omitempty"`
	Bots      []fate              `json:"bots"`
}

// fate is what became of a message at a bot. The catalogue has the texts of its states ("fate/STATE").
type fate struct {
	Agent   relay.AgentName  `json:"agent"`
	Name    string           `json:"name"`
	Online  bool             `json:"online"`
	State   string           `json:"state"`
	Detail  string           `json:"detail"`
	Do      string           `json:"do,omitempty"`
	Outcome *httpapi.Outcome `json:"outcome,omitempty"`
}

// explain looks for a message in a group, "" for the last one; nil: it is not there.
func (c *client) explain(ctx context.Context, g *group.Group, id relay.MessageID) (*explained, error) {
	said, err := c.entries(ctx, g.Channel, string(g.ChatID), whyEntries)
	if err != nil {
		return nil, err
	}
	said = slices.DeleteFunc(said, func(e httpapi.ShownEntry) bool {
		return isNotice(e) || e.EditOf != "" || id != "" && e.MessageID != string(id)
	})
	if len(said) == 0 {
		return nil, nil
	}
	e := &said[len(said)-1]
	x := &explained{g.Channel, g.ChatID, g.Name, relay.MessageID(e.MessageID), e, e.Depth, []fate{}}
	var all httpapi.OutcomeList
	query := url.Values{"channel": {g.Channel}, "chat_id": {string(g.ChatID)}, "limit": {fmt.Sprint(whyOutcomes)}}
	if err := c.get(ctx, "/v1/outcomes?"+query.Encode(), &all); err != nil {
		return nil, err
	}
	outcomes := map[relay.AgentName]*httpapi.Outcome{}
	for _, o := range all.Outcomes {
		if o.RelayMsgID == x.MessageID {
			outcomes[o.Agent] = &o
		}
	}
	for _, b := range g.Bots {
		if e.Role == relay.RoleUser || string(b.Agent) != e.Sender {
			x.Bots = append(x.Bots, c.fate(&b, botName(g, b.Agent), outcomes[b.Agent], e.Role == relay.RoleUser))
		}
	}
	return x, nil
}

// fate says what became of a message, which a person may have written, at a bot.
func (c *client) fate(b *group.Bot, name string, o *httpapi.Outcome, person bool) fate {
	f := fate{Agent: b.Agent, Name: name, Online: b.Online, Outcome: o}
	args := []any{}
	switch {
	case o != nil && o.Stopped != "":
		f.State = "stopped"
		means, key := string(o.Stopped), "reason/"+string(o.Stopped)
		if words.Has(key) {
			means, f.Do = c.say(key), c.say(key+"/do")
		}
		if o.Detail != "" {
			means += " (" + o.Detail + ")"
		}
		if words.Has(key + "/more") {
			f.Do += " (docs/" + c.say(key+"/more") + ")"
		}
		args = append(args, o.Stopped, means)
	case o != nil && o.Delivered != 0:
		f.State = "delivered"
		args = append(args, o.Delivered.Time().Local().Format(time.TimeOnly), cmp.Or(o.Door, "Feishu"))
	case !b.Online:
		f.State = "offline"
	case b.Away != 0:
		f.State = "bot_away"
		args = append(args, moment(b.Away.Time()))
	case o != nil:
		f.State = "waits"
	case person:
		f.State = "not_heard"
	default:
		f.State = "undecided"
	}
	f.Detail = c.say("fate/"+f.State, args...)
	if do := "fate/" + f.State + "/do"; words.Has(do) {
		f.Do = c.say(do)
	}
	return f
}

// printWhy prints what became of a message, for people.
func (c *client) printWhy(g *group.Group, x *explained) {
	e := x.Message
	name := neutral(cmp.Or(e.SenderName, e.Sender))
	if e.Role == relay.RoleAssistant {
		name = botName(g, relay.AgentName(e.Sender))
	}
	title := c.say("why title", c.paint.text(bold, neutral(string(x.MessageID))), name, titleOf(g),
		moment(time.UnixMilli(e.TS)))
	if x.Depth > 0 {
		title += c.say("why depth title", x.Depth)
	}
	fmt.Fprintln(c.out, title)
	fmt.Fprintln(c.out, "  "+c.paint.text(dim, runes.Fit(strings.Join(contentLines(e.Entry), " "), whyText)))
	if len(x.Bots) == 0 {
		fmt.Fprintln(c.out, c.say("no other bot"))
	}
	out := newFindings(c.out, false, c.words)
	for _, f := range x.Bots {
		name := f.Name
		if name != string(f.Agent) {
			name += " (" + string(f.Agent) + ")"
		}
		status := map[string]selftest.Status{"delivered": selftest.OK, "stopped": selftest.Fail, "waits": selftest.Warn,
			"bot_away": selftest.Warn}[f.State]
		out.show(selftest.Finding{Name: name, Status: cmp.Or(status, selftest.Unknown), Detail: f.Detail, Mend: f.Do})
	}
}
