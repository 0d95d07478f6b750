package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"feishu-relay/group"
	"feishu-relay/httpapi"
	"feishu-relay/internal/runes"
	"feishu-relay/internal/words"
	"feishu-relay/relay"
)

const (
	whyOutcomes = 5000             // of a group are asked for; a message beyond them counts as not recorded
	whyEntries  = 1000             // of its transcript
	whyText     = 120              // columns of the message are shown
	onItsWay    = 30 * time.Second // how long a message that was just sent may be undecided
	answerLimit = 15 * time.Minute // how long a bot may take to answer, as DELIVERY_TIMEOUT is by default
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
		x := &explained{Group: &groups[i], MessageID: c.Args.ID, Bots: []fate{}, client: a, where: p.where(c.Addr)}
		switch found, err := x.find(p.ctx); {
		case err != nil:
			return err
		case found && c.JSON:
			return writeLine(a.out, x)
		case found:
			_, err = io.WriteString(a.out, title+x.text())
			return err
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

// where returns the flags by which another command reaches the same sidecar, with a space behind them.
func (p *cli) where(addr string) (flags string) {
	if p.EnvFile != "" {
		flags += "--env-file " + shellWord(string(p.EnvFile)) + " "
	}
	if addr != "" {
		flags += "--addr " + shellWord(addr) + " "
	}
	return flags
}

// explained is a message and what became of it at each bot of its group.
type explained struct {
	Channel   string              `json:"channel"`
	ChatID    relay.ChatID        `json:"chat_id"`
	Name      string              `json:"group,omitempty"`
	MessageID relay.MessageID     `json:"message_id"`
	Message   *httpapi.ShownEntry `json:"message,omitempty"` // nil: it is not in the transcript
	Depth     int                 `json:"depth,omitempty"`
	Bots      []fate              `json:"bots"`

	*client `json:"-"`
	Group   *group.Group `json:"-"`
	where   string       // the flags by which other commands reach the same sidecar

	sent   time.Time
	person bool                 // a person has said it
	later  []httpapi.ShownEntry // what was said after it
}

// The states of a message at a bot; the catalogue has what they mean ("fate/STATE").
const (
	fateDelivered   = "delivered"
	fateStopped     = "stopped"
	fateWaits       = "waits"        // for the bot
	fateAway        = "bot_away"     // it has not got it, and is not connected
	fateOffline     = "offline"      // nothing is noted, and the sidecar does not run
	fateUndecided   = "undecided"    // nothing is noted yet
	fateNotRecorded = "not_recorded" // nothing is noted any more, or it was never
	fateNotHeard    = "not_heard"    // a person's message that Feishu has not brought to the bot
)

// fate is what became of a message at a bot.
type fate struct {
	Agent   relay.AgentName  `json:"agent"`
	Name    string           `json:"name"`
	Online  bool             `json:"online"`
	State   string           `json:"state"`
	Means   string           `json:"means,omitempty"` // of the reason
	Do      string           `json:"do,omitempty"`
	Command string           `json:"command,omitempty"`    // that does it
	Since   relay.Millis     `json:"away_since,omitempty"` // with fateAway
	Answer  relay.MessageID  `json:"answer,omitempty"`     // the first message that the bot sent after this one
	At      relay.Millis     `json:"answered_at,omitempty"`
	Outcome *httpapi.Outcome `json:"outcome,omitempty"`
}

// find looks for the message in the group, "" for the last one. It reports whether anything is known of it.
func (x *explained) find(ctx context.Context) (bool, error) {
	g := x.Group
	x.Channel, x.ChatID, x.Name = g.Channel, g.ChatID, g.Name
	said, err := x.entries(ctx, g.Channel, string(g.ChatID), whyEntries)
	if err != nil {
		return false, err
	}
	said = slices.DeleteFunc(said, func(e httpapi.ShownEntry) bool { return isNotice(e) || e.EditOf != "" })
	for i, e := range slices.Backward(said) {
		if x.MessageID == "" || e.MessageID == string(x.MessageID) {
			x.Message, x.MessageID, x.Depth, x.later = &e, relay.MessageID(e.MessageID), e.Depth, said[i+1:]
			x.sent, x.person = time.UnixMilli(e.TS), e.Role == relay.RoleUser
			break
		}
	}
	if x.MessageID == "" {
		return false, nil
	}
	var all httpapi.OutcomeList
	query := url.Values{"channel": {g.Channel}, "chat_id": {string(g.ChatID)}, "limit": {fmt.Sprint(whyOutcomes)}}
	if err := x.get(ctx, "/v1/outcomes?"+query.Encode(), &all); err != nil {
		return false, err
	}
	recorded := all.Complete && len(all.Outcomes) < whyOutcomes // all outcomes of the message's time are known
	for _, o := range all.Outcomes {
		recorded = recorded || o.At <= relay.MillisOf(x.sent)
	}
	seen := map[relay.AgentName]bool{}
	if x.Message != nil && !x.person {
		seen[relay.AgentName(x.Message.Sender)] = true
	}
	for _, o := range all.Outcomes {
		if o.RelayMsgID != x.MessageID {
			continue
		}
		if o.Decision != nil {
			x.Depth = max(x.Depth, o.Decision.Depth)
		}
		seen[o.Agent] = true
		x.add(fate{Agent: o.Agent, Outcome: &o}, recorded)
	}
	found := x.Message != nil || len(x.Bots) > 0
	for _, b := range g.Bots {
		if !seen[b.Agent] {
			x.add(fate{Agent: b.Agent}, recorded)
		}
	}
	return found, nil
}

// add finds out the state of the message at a bot, and what can be done.
func (x *explained) add(f fate, recorded bool) {
	f.Name = botName(x.Group, f.Agent)
	for _, b := range x.Group.Bots {
		if b.Agent == f.Agent {
			f.Online, f.Since = b.Online, b.Away
		}
	}
	switch o := f.Outcome; {
	case o != nil && o.Stopped != "":
		f.State, f.Means = fateStopped, string(o.Stopped)
		if key := "reason/" + f.Means; words.Has(key) {
			f.Means, f.Do = x.say(key), x.say(key+"/do")
		}
		if released(o.Stopped) && x.personSpoke() {
			f.Do = x.say("person has spoken")
		}
	case o != nil && o.Delivered != 0:
		f.State = fateDelivered
		x.answered(&f)
	case o == nil && f.Online && x.now.Sub(x.sent) < onItsWay:
		f.State = fateUndecided
	case o == nil && !f.Online:
		f.State = fateOffline
	case o == nil && !recorded:
		f.State = fateNotRecorded
	case f.Since != 0:
		f.State = fateAway
	case o != nil:
		f.State = fateWaits
	case x.person:
		f.State = fateNotHeard
	default:
		f.State = fateUndecided
	}
	if f.State != fateAway {
		f.Since = 0
	}
	key := "fate/" + f.State + "/do"
	if x.person && f.Outcome == nil && words.Has(key+"/person") {
		key += "/person"
	}
	if f.Do == "" && words.Has(key) {
		f.Do = x.say(key)
	}
	f.Command = x.command([]fate{f})
	x.Bots = append(x.Bots, f)
}

// answered looks what the bot has said since it was given the message.
func (x *explained) answered(f *fate) {
	i := slices.IndexFunc(x.later, func(e httpapi.ShownEntry) bool {
		return e.Role == relay.RoleAssistant && relay.AgentName(e.Sender) == f.Agent
	})
	switch waited := x.now.Sub(f.Outcome.Delivered.Time()); {
	case i >= 0:
		f.Answer, f.At = relay.MessageID(x.later[i].MessageID), relay.Millis(x.later[i].TS)
	case !x.person: // a bot need not answer a bot
	case waited < answerLimit:
		f.Do = x.say("may be working", x.words.Age(waited))
	default:
		f.Do = x.say("relay has done its part")
	}
}

// released reports whether "continue" gives the bots what was stopped for a reason.
func released(why relay.Reason) bool { return why == relay.MaxDepth || why == relay.Budget }

func (x *explained) personSpoke() bool {
	return slices.ContainsFunc(x.later, func(e httpapi.ShownEntry) bool { return e.Role == relay.RoleUser })
}

// command is the one that does what is advised about bots at which a message stopped for one reason, "" for none.
func (x *explained) command(bots []fate) string {
	if bots[0].State != fateStopped {
		return ""
	}
	var agents []string
	for _, b := range bots {
		agents = append(agents, shellWord(string(b.Agent)))
	}
	all := " " + strings.Join(agents, " ")
	does := map[relay.Reason]string{relay.Muted: "unmute" + all, relay.Paused: "resume", relay.NotForMe: "answer all",
		relay.JudgeNo: fmt.Sprintf("threshold %d", x.Group.Settings.Threshold+1)}
	if !x.personSpoke() {
		does[relay.MaxDepth], does[relay.Budget], does[relay.StoppedByPerson] = "continue"+all, "continue"+all, "continue"
	}
	if words := does[bots[0].Outcome.Stopped]; words != "" {
		return "feishu-relay group " + x.where + shellWord(chatID(x.Channel, x.ChatID)) + " " + words
	}
	return ""
}

// text is x for people.
func (x *explained) text() string {
	name, at := "", relay.MillisOf(x.sent)
	switch e := x.Message; {
	case e != nil && e.Role == relay.RoleAssistant:
		name = botName(x.Group, relay.AgentName(e.Sender))
	case e != nil:
		name = neutral(cmp.Or(e.SenderName, e.Sender))
	default:
		name, at = botName(x.Group, x.Bots[0].Outcome.Sender), x.Bots[0].Outcome.At
	}
	title := x.say("why title", x.paint.text(bold, neutral(string(x.MessageID))), name, titleOf(x.Group),
		moment(at.Time()))
	if x.Depth > 0 {
		title += x.say("why depth title", x.Depth)
	}
	lines := []string{title}
	if e := x.Message; e != nil {
		lines = append(lines, "  "+x.paint.text(dim, runes.Fit(strings.Join(contentLines(e.Entry), " "), whyText)))
	}
	if len(x.Bots) == 0 {
		lines = append(lines, x.say("no other bot"))
	}
	for _, f := range x.Bots {
		lines = append(lines, x.line(f))
	}
	if advised := x.advised(); len(advised) > 0 {
		lines = append(append(lines, "", x.paint.text(bold, x.say("what to do"))), advised...)
	}
	return strings.Join(lines, "\n") + "\n"
}

// line is one line about a bot.
func (x *explained) line(f fate) string {
	name := f.Name
	if f.Name != string(f.Agent) {
		name += " (" + neutral(string(f.Agent)) + ")"
	}
	clock := func(at relay.Millis) string { return at.Time().Local().Format(time.TimeOnly) }
	mark, text, o := x.paint.text(dim, "?"), "", f.Outcome
	switch f.State {
	case fateDelivered:
		mark = x.paint.text(green, "✓")
		if text = x.say("fate/delivered", clock(o.Delivered), neutral(o.Door)); o.Door == "" { // it has it from Feishu
			text = x.say("fate/reported", clock(o.Delivered))
		}
		if f.Answer != "" {
			text += x.say("fate/answered", neutral(string(f.Answer)), clock(f.At))
		} else {
			text += x.say("fate/silent")
		}
	case fateStopped:
		mark = x.paint.text(yellow, "✗")
		if text = x.say("fate/stopped", neutral(string(o.Stopped)), neutral(f.Means)); o.Detail != "" {
			text += " (" + neutral(o.Detail) + ")"
		}
	case fateAway:
		mark, text = x.paint.text(yellow, "…"), x.say("fate/bot_away", moment(f.Since.Time()))
	case fateWaits:
		mark, text = x.paint.text(yellow, "…"), x.say("fate/waits")
	default:
		text = x.say("fate/" + f.State)
	}
	return fmt.Sprintf("%s %s: %s", mark, name, text)
}

// advised is what to do, once for all bots that it is the same for.
func (x *explained) advised() (lines []string) {
	bots := map[string][]fate{} // by what to do
	var order []string
	for _, f := range x.Bots {
		if f.Do == "" {
			continue
		}
		about, more := f.Name, ""
		if f.State == fateStopped {
			about = neutral(string(f.Outcome.Stopped))
			if key := "reason/" + string(f.Outcome.Stopped) + "/more"; words.Has(key) {
				more = " (docs/" + x.say(key) + ")"
			}
		}
		advice := "  " + about + ": " + f.Do + more
		if bots[advice] == nil {
			order = append(order, advice)
		}
		bots[advice] = append(bots[advice], f)
	}
	for _, advice := range order {
		lines = append(lines, advice)
		if command := x.command(bots[advice]); command != "" {
			lines = append(lines, "    "+command)
		}
	}
	return lines
}
